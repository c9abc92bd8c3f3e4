"""State that a function makes Spark keep, found in the plan that Spark has of it.

A plan change hands on the state of operators that are declared to have one. What a stateless one kept would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from penstock.dataflow import DataflowError

_KEEPERS = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "TransformWithState",
    "TransformWithStateInPySpark",
}


def refuse_hidden_state(name: str, inputs: Iterable[DataFrame], output: DataFrame) -> None:
    """`inputs` may have state behind them: that of the operators before."""
    added = _state(_plan(output), [_plan(df) for df in inputs])
    if added:
        raise DataflowError(
            f"operator '{name}' is declared stateless, but its function keeps state from batch to batch (Spark's "
            f"{', '.join(sorted(added))}), which a change of plan would lose; declare it with keyed or global_state"
        )


def _plan(df: DataFrame) -> Any:
    return df._jdf.queryExecution().analyzed()


def _state(output: Any, inputs: list[Any]) -> set[str]:
    """What keeps state between the inputs, however often each is used, and the output."""
    found: set[str] = set()
    nodes = [output]
    while nodes:
        node = nodes.pop()
        if any(node.sameResult(one) for one in inputs):
            continue
        children = [one for one in _children(node) if one.isStreaming()]
        kind = node.nodeName()
        if kind in _KEEPERS or (kind == "Join" and len(children) == 2):
            found.add(kind)
        nodes += children
    return found


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]
