"""State that a function makes Spark keep, found in the plan that Spark has of it.

A plan change hands on the state of operators that are declared to have one. What a stateless one kept would be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

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
    added = _state(output) - sum((_state(df) for df in inputs), Counter())
    if added:
        raise DataflowError(
            f"operator '{name}' is declared stateless, but its function keeps state from batch to batch (Spark's "
            f"{', '.join(sorted(added))}), which a change of plan would lose; declare it keyed or stateful"
        )


def _state(df: DataFrame) -> Counter[str]:
    found: Counter[str] = Counter()
    nodes = [df._jdf.queryExecution().analyzed()]
    while nodes:
        node = nodes.pop()
        inputs = [one for one in _children(node) if one.isStreaming()]
        kind = node.nodeName()
        if kind in _KEEPERS or (kind == "Join" and len(inputs) == 2):
            found[kind] += 1
        nodes += inputs
    return found


def _children(node: object) -> list[object]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]
