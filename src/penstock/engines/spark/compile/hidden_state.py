"""State that a function makes Spark keep, found in the plan that Spark has of it.

A plan change hands on the state of operators that are declared to have one. What a stateless one kept would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from penstock.dataflow import DataflowError
from penstock.engines.spark.jvm import PlanNode, analyzed_plan

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
    added = _state(analyzed_plan(output), [analyzed_plan(df) for df in inputs])
    if added:
        raise DataflowError(
            f"operator '{name}' is declared stateless, but its function keeps state from batch to batch (Spark's "
            f"{', '.join(sorted(added))}), which a change of plan would lose; declare it with keyed or global_state"
        )


def _state(output: PlanNode, inputs: list[PlanNode]) -> set[str]:
    """What keeps state between the inputs, however often each is used, and the output."""
    found: set[str] = set()
    nodes = [output]
    while nodes:
        node = nodes.pop()
        if any(node.has_same_result(before) for before in inputs):
            continue
        children = [child for child in node.children if child.is_streaming]
        kind = node.name
        if kind in _KEEPERS or (kind == "Join" and len(children) == 2):
            found.add(kind)
        nodes += children
    return found
