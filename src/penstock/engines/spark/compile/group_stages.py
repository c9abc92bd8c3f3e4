"""The stages of a query that run on the executors of a group.

Spark gives a resource profile to a whole stage, and refuses a stage with two of them. A stage consists of the operators
between two shuffles. The profile of a group therefore applies to all operators of the stage, with these consequences:

- A row function carries the profile itself. All other operators are followed by an Arrow function that carries the
  profile and returns its input.
- An operator without a group runs in the group of the operator with which it shares a stage.
- A shuffle separates two operators of different groups that would share a stage.
- The rows of an operator with state are shuffled, so its group runs the state. A partial aggregate before the shuffle
  belongs to the stage of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.resource import ResourceProfile
from pyspark.sql import DataFrame

from penstock.dataflow import Operator, RowFunction
from penstock.engines.spark.storage.column_names import map_in_arrow

ProfileOf = Callable[[str], ResourceProfile]  # group -> resource profile


class GroupStages:
    """The group of the stage that computes the output of each operator, recorded from upstream to downstream."""

    def __init__(self, groups: Mapping[str, str], replicas: Mapping[str, int], profile: ProfileOf | None) -> None:
        """`groups` maps operators to groups; without any, `profile` may be None."""
        self._groups = dict(groups)
        self._replicas = replicas
        self._profile = profile
        self._stages: dict[str, str | None] = {}  # operator -> group of the stage of its output

    def profile(self, operator: str) -> ResourceProfile | None:
        """Return the resource profile of an operator; None if it has no group."""
        group = self._groups.get(operator)
        if group is None:
            return None
        assert self._profile is not None
        return self._profile(group)

    def conflicting_inputs(self, operator: Operator, *, is_moved: bool) -> list[str]:
        """Return the inputs that need a shuffle, because their stages and the one that reads them have two groups.

        is_moved: the rows of all inputs are shuffled to the replicas of the operator in any case.
        """
        stage = None if is_moved or self._shuffles(operator) else self._groups.get(operator.name)
        conflicting = []
        for name in operator.inputs:
            group = self._stages.get(name)
            stage = stage or group
            if group not in (None, stage):
                conflicting.append(name)
        return conflicting

    def add(self, operator: Operator, df: DataFrame, *, is_moved: bool) -> DataFrame:
        """Record the stage of an operator and return its output, computed in its group.

        is_moved: the rows were shuffled to its replicas.
        """
        own = self._groups.get(operator.name)
        if own is None:
            # A function of the user may shuffle as well. Without a shuffle, the stage is that of the input.
            before = [self._stages.get(name) for name in operator.inputs]
            is_separate = is_moved or self._shuffles(operator)
            self._stages[operator.name] = None if is_separate else next(filter(None, before), None)
            return df
        self._stages[operator.name] = own
        if isinstance(operator.fn, RowFunction):
            return df
        return map_in_arrow(df, _unchanged, df.schema, self.profile(operator.name))

    def _shuffles(self, operator: Operator) -> bool:
        """Return whether Spark shuffles the input of an operator; it does not shuffle to a single replica."""
        return operator.kind.has_state and self._replicas[operator.name] > 1


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
