"""What operators cost: the busy time of clocks, state and tasks, given to the operators that it belongs to."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, Kind
from penstock.engines.spark.metering.batches import Batch, rows_through
from penstock.engines.spark.metering.stages import Stages
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.busy_time import ReaderBusyTime
from penstock.engines.spark.run_directory.committed import ChannelInput, Query
from penstock.measure.estimators import ServiceSample, cost_per_row, ratio

_KEPT_SAMPLES = 64


@dataclass(slots=True)
class Tally:
    """What is known of one operator since the run began, and lately."""

    rows_in: int = 0
    rows_out: int = 0
    samples: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_KEPT_SAMPLES))
    timed: deque[ServiceSample] = field(default_factory=lambda: deque(maxlen=_KEPT_SAMPLES))  # rows, of row functions
    clocked: bool = False  # by a clock of its own, which knows nothing of what a batch costs besides
    _early_s: float = 0.0  # of a window without rows

    def clock(self, rows: int, seconds: float) -> None:
        """Rows and seconds are seen at slightly different times: only their sums belong together.

        So the time of a window without rows may be that of rows in the next. If that has none either, it was spent in
        batches without rows, which is no row's cost.
        """
        self.clocked = True
        if rows:
            self.samples.append((rows, self._early_s + seconds))
        self._early_s = 0.0 if rows else seconds

    def cost(self) -> float | None:
        if self.clocked:
            return ratio(sum(seconds for _, seconds in self.samples), sum(rows for rows, _ in self.samples))
        return cost_per_row(self.samples)


class Costs:
    def __init__(self, flow: Dataflow, spark: SparkSession, run: Path, tallies: defaultdict[str, Tally]) -> None:
        self._flow = flow
        self._stages = Stages(spark)
        self._run = run
        self._tallies = tallies
        self._reading: dict[str, float] = {}
        self._commits: dict[str, float] = {}  # start of a query -> the least seconds that a commit of its state took
        self._warm: set[str] = set()  # starts of queries that have been through a window

    def started(self, query: Query) -> None:
        """What readers of these names took in earlier processes is none of the next window's."""
        for source in query.inputs:
            self._reading.setdefault(source.name, self._read_s(source.name))

    def look(self) -> None:
        self._stages.look()

    def busy_s(self, running: RunningQuery, batch: Batch) -> float | None:
        return self._stages.busy_s(str(running.query.runId), batch.number)

    def add(self, query: Query, running: RunningQuery | None, batches: list[Batch]) -> None:
        """Adds this window's (rows, busy seconds) to the operators' samples.

        Python functions and readers have clocks of their own. State is timed by Spark. What is left of the tasks' time
        is that of the native operators, shared among them by the rows that they handle.
        """
        if running is None or not batches:
            return
        moved = [batch for batch in batches if batch.moved_rows]
        sampled = [busy for batch in moved if (busy := self.busy_s(running, batch)) is not None]
        share = len(sampled) / len(moved) if moved else 0.0
        left = sum(sampled)
        native: list[tuple[str, int]] = []
        for name in query.operators:
            operator, tally = self._flow[name], self._tallies[name]
            rows_in, rows_out = rows_through(operator, query, batches)
            if operator.kind is Kind.SOURCE:
                spent = self._since(query.input(name).name)
                left -= spent * share
                tally.clock(rows_out or 0, spent)
                continue
            timing = running.compiled.timings.get(name)
            spent = 0.0
            if timing is not None:
                spent, sample = timing.pull()
                if sample.rows:
                    tally.timed.append(sample)
            besides = 0.0
            if operator.kind.has_state:
                # The update of state by a Python function goes on while that works, which its own clock has counted.
                updates = not spent
                # State is committed in each batch, however few its rows are; only what larger ones take is theirs.
                least = self._least_commit(str(running.query.runId), batches)
                for batch in moved:
                    own_s = batch.update_s * updates + batch.commit_s - least
                    besides += least
                    if batch.took_rows:
                        spent += own_s
                    else:
                        besides += own_s
            left -= (spent + besides) * share
            if spent > 0 or tally.clocked or operator.kind.has_state:
                tally.clock(rows_in or 0, spent)
            elif rows_in and operator.kind is not Kind.SINK:
                native.append((name, rows_in))
        for source in query.inputs:
            if isinstance(source, ChannelInput):
                left -= self._since(source.name) * share
        handled = sum(rows for _, rows in native)
        start = str(running.query.runId)
        cold = start not in self._warm
        self._warm.add(start)
        if share > 0 and handled and not cold:  # a query's first batches start workers and compile code
            for name, rows in native:
                self._tallies[name].samples.append((rows, max(0.0, left / share) * rows / handled))

    def _least_commit(self, start: str, batches: list[Batch]) -> float:
        """Of the batches of one start of a query, whose number of replicas is one."""
        seen = min(batch.commit_s for batch in batches)
        self._commits[start] = min(seen, self._commits.get(start, seen))
        return self._commits[start]

    def _since(self, reader: str) -> float:
        """Seconds that readers of this name have been busy since the last window."""
        before, self._reading[reader] = self._reading[reader], self._read_s(reader)
        return max(0.0, self._reading[reader] - before)

    def _read_s(self, reader: str) -> float:
        return ReaderBusyTime(self._run, reader).total_s()
