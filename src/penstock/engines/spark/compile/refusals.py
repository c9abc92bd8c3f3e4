"""Functions that cannot run as declared, recognised by the plan that Spark has of their output."""

from __future__ import annotations

from collections.abc import Iterable, Set

from pyspark.sql import DataFrame

from penstock.dataflow import DataflowError
from penstock.engines.spark.jvm import PlanNode, analyzed_plan

_WATERMARK = "EventTimeWatermark"
_STATEFUL_NODES = {
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
# Nodes of a plan that process the rows of a partition one after the other.
_NARROW_NODES = {
    "ArrowEvalPython",
    "BatchEvalPython",
    "CollectMetrics",
    "Filter",
    "Generate",
    "MapInArrow",
    "MapInPandas",
    "Project",
    "PythonMapInArrow",
    "SubqueryAlias",
    "Union",
    _WATERMARK,
}
# Nodes of a plan that emit one row for each row.
_ROW_BY_ROW_NODES = {
    "CollectMetrics",
    "Project",
    "Repartition",
    "RepartitionByExpression",
    "SubqueryAlias",
    _WATERMARK,
}
# Nodes of the plan that process groups of rows without state, and the methods of PySpark that create them.
_WITHIN_BATCHES = {
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "cogroup",
    "FlatMapCoGroupsInArrow": "cogroup",
}


def refuse_dependence_on_batches(name: str, inputs: Iterable[DataFrame], output: DataFrame) -> None:
    """Raise DataflowError if a function groups the rows of each batch by themselves.

    Spark accepts this. The result then depends on the sizes of the batches, which a run chooses.
    """
    plan = analyzed_plan(output)
    text = plan.text()  # a single call; the nodes are visited only if there is something to find
    if not any(node in text for node in _WITHIN_BATCHES):
        return
    for node in nodes_above(plan, [analyzed_plan(df) for df in inputs]):
        if node.is_streaming and node.name in _WITHIN_BATCHES:
            raise DataflowError(
                f"the function of '{name}' calls {_WITHIN_BATCHES[node.name]} on a stream, which groups the rows of "
                "each batch only, so that the result depends on the sizes of batches; use groupBy with agg, "
                "applyInPandasWithState or transformWithState in a keyed operator, or call it in foreach_batch"
            )


def refuse_python_aggregates(name: str, inputs: Iterable[DataFrame], output: DataFrame) -> None:
    """Raise DataflowError if a function aggregates with a Python function. Spark refuses this in the first batch."""
    for node in nodes_above(analyzed_plan(output), [analyzed_plan(df) for df in inputs]):
        if node.is_streaming and node.calls_python_aggregate():
            raise DataflowError(
                f"the function of '{name}' aggregates with a Python function, which Spark cannot do in a stream; use "
                "functions of Spark, applyInPandasWithState or transformWithState"
            )


def refuse_hidden_state(
    name: str, inputs: Iterable[DataFrame], output: DataFrame, harmless: Set[str] = frozenset()
) -> None:
    """Raise DataflowError if the function of a stateless operator keeps state.

    A plan change keeps the state of operators that are declared to have one; the state of others would be lost. The
    inputs may have state of their own, which belongs to the operators before this one. `harmless` nodes of the plan
    keep no state here.
    """
    state = stateful_nodes(analyzed_plan(output), [analyzed_plan(df) for df in inputs]) - harmless
    if state:
        raise DataflowError(
            f"operator '{name}' is declared stateless, but its function keeps state from batch to batch (Spark's "
            f"{', '.join(sorted(state))}), which a change of plan would lose; declare it with keyed or global_state"
        )


def refuse_second_watermark(name: str, output: DataFrame) -> None:
    """Raise DataflowError if two watermarks are declared on one path, which Spark refuses when the first batch runs."""
    for node in analyzed_plan(output).walk():
        if node.name == _WATERMARK and sum(below.name == _WATERMARK for below in node.walk()) > 1:
            raise DataflowError(
                f"the output of '{name}' has two watermarks on one path, and Spark allows one in a query; remove one, "
                "or replace a withWatermark behind an operator with state by stream.watermark(...)"
            )


def refuse_two_event_times(name: str, inputs: Iterable[DataFrame], output: DataFrame) -> None:
    """Raise DataflowError if dropDuplicatesWithinWatermark receives two columns with event time.

    Both sides of a join have event time. Spark refuses this only when the first batch runs.
    """
    before = [analyzed_plan(df) for df in inputs]
    for node in nodes_above(analyzed_plan(output), before):
        columns = node.input_event_times() if node.name == "DeduplicateWithinWatermark" else []
        if len(columns) > 1:
            raise DataflowError(
                f"the state of operator '{name}' receives two columns with event time ({', '.join(columns)}), and "
                "Spark allows one; drop the others, or remove their mark with F.col('ts').alias('ts', metadata={})"
            )


def refuse_repeated_input(name: str, inputs: Iterable[DataFrame], output: DataFrame) -> None:
    """Raise DataflowError if a function uses one of its inputs more than once.

    Spark reads a stream that is used twice in one query through two sources with the same name, and refuses that. A
    fan-out of the dataflow reads the stream twice under two names.
    """
    if _count_streams(output) > sum(map(_count_streams, inputs)):
        raise DataflowError(
            f"the function of '{name}' uses an input more than once, which Spark cannot read twice in one query; "
            f"declare each use as a separate operator, and pass all of them to '{name}' as inputs"
        )


def nodes_above(output: PlanNode, inputs: list[PlanNode]) -> list[PlanNode]:
    """Return the nodes of a function, parents first, beginning with its output.

    An input is recognised by the ids of its columns as well, because Spark considers a projection that only renames
    columns the same result as its input.
    """
    nodes, above = [output], []
    while nodes:
        node = nodes.pop(0)
        if not any(
            node.columns().keys() == before.columns().keys() and node.has_same_result(before) for before in inputs
        ):
            above.append(node)
            nodes += node.children
    return above


def stateful_nodes(output: PlanNode, inputs: list[PlanNode]) -> set[str]:
    """Return the names of the plan nodes between the inputs and the output that keep state."""
    names: set[str] = set()
    nodes = [output]
    while nodes:
        node = nodes.pop()
        if any(node.has_same_result(before) for before in inputs):
            continue
        if is_stateful(node):
            names.add(node.name)
        nodes += [child for child in node.children if child.is_streaming]
    return names


def shuffles(output: PlanNode, inputs: list[PlanNode]) -> bool:
    """Return whether a function may change the order of the rows within a partition."""
    return any(node.name not in _NARROW_NODES for node in nodes_above(output, inputs))


def calls_pivot(output: DataFrame) -> bool:
    """Return whether the plan contains a pivot, which is an aggregate of an aggregate."""
    return "pivotfirst(" in analyzed_plan(output).text().lower()


def keeps_row_count(source: DataFrame, output: DataFrame) -> bool:
    """Return whether a function emits exactly one row for each row of its input."""
    return all(node.name in _ROW_BY_ROW_NODES for node in nodes_above(analyzed_plan(output), [analyzed_plan(source)]))


def is_stateful(node: PlanNode) -> bool:
    """Return whether a node of a streaming plan keeps state. A join does if both of its sides are streams."""
    if not node.is_streaming:
        return False
    return node.name in _STATEFUL_NODES or (node.name == "Join" and all(child.is_streaming for child in node.children))


def _count_streams(df: DataFrame) -> int:
    return sum(node.is_streaming and not node.children for node in analyzed_plan(df).walk())
