"""The aggregates of an operator with state, and its declared keys compared with the columns by which it groups rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.dataflow import DataflowError
from penstock.engines.spark.compile.refusals import is_stateful, nodes_above
from penstock.engines.spark.jvm import analyzed_plan


def aggregates_of(inputs: Sequence[DataFrame], output: DataFrame) -> tuple[str, ...]:
    """Return the aggregate functions of a keyed or global operator, from its output to its inputs."""
    nodes = nodes_above(analyzed_plan(output), [analyzed_plan(df) for df in inputs])
    return tuple(aggregate for node in nodes if is_stateful(node) for aggregate in node.aggregates())


def check_grouping(name: str, keys: Sequence[str], inputs: Sequence[DataFrame], output: DataFrame) -> None:
    """Raise DataflowError if the state of a keyed operator is partitioned by other columns than its keys.

    Spark partitions state by the grouping of the function (groupBy, dropDuplicates or a join condition). It may group
    by more columns than the keys, such as a window. A key may also be the input of a grouping expression, such as the
    time of a window. A function that keeps no state by key is not checked.
    """
    nodes = nodes_above(analyzed_plan(output), [analyzed_plan(df) for df in inputs])
    state_keys = [node.state_keys() for node in nodes if is_stateful(node)]
    known_keys = [columns for columns in state_keys if columns is not None]
    if not known_keys:
        return
    used = set().union(*known_keys)
    reachable = {column for node in nodes for child in node.children for column in child.columns()}
    for node in nodes:  # parents come first, so that the origin of each column is known before those of its origins
        for column, origins in node.origins().items():
            if column in used:
                used |= origins
    for df in inputs:
        columns = analyzed_plan(df).columns()
        if not reachable & columns.keys():  # Spark gave the columns other ids, because two inputs have the same columns
            continue
        unused = [key for key in keys if key not in {columns[column] for column in used & columns.keys()}]
        if unused:
            grouping = sorted({columns[column] for column in used & columns.keys()})
            raise DataflowError(
                f"operator '{name}' has keys={list(keys)}, but its function does not group by '{unused[0]}'; it groups "
                f"by {', '.join(grouping) or 'no column'}; declare the columns that it groups by as keys, or use "
                "global_state if there is none"
            )
