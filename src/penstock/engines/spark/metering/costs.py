"""The cost of operators: busy time of clocks, state and tasks, assigned to the operators that caused it.

Four sources of busy time are combined. Python functions and readers are timed by clocks of Penstock. Spark times the
update and the commit of state. Spark also reports the total run time of the tasks of a batch. The task time that
remains after subtracting the first three belongs to the native operators and the sink of the query.

Spark fuses native operators and runs them row by row, so no metric separates them: the duration that Spark reports for
a physical operator includes the time of the operators before and after it. Their cost is therefore measured as that of
a group. For the models each native operator has a part of it in proportion to its rows. Rows that reach an operator
with state directly have a part, too, which belongs to no operator.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.dataflow import Kind, Operator
from penstock.engines.spark.calls.call_sums import CallSums
from penstock.engines.spark.metering.batches import Batch, rows_through
from penstock.engines.spark.metering.stages import StageTimes
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.busy_time import ReaderBusyTime
from penstock.engines.spark.run_directory.committed import ChannelInput, Query
from penstock.measure.estimators import ServiceSample, cost_per_row, low_cost_per_row, ratio

_KEPT_SAMPLES = 64
BusySamples = deque[tuple[int, float]]  # (rows, seconds)


def _busy_samples() -> BusySamples:
    return deque(maxlen=_KEPT_SAMPLES)


@dataclass(slots=True)
class CostGroup:
    """Operators whose cost is only known together; rows are those that enter the first operator."""

    operators: tuple[str, ...]
    busy: BusySamples = field(default_factory=_busy_samples)


@dataclass(slots=True)
class OperatorSamples:
    """The row totals of one operator since the run began, and its latest cost samples."""

    rows_in: int = 0
    rows_out: int = 0
    busy: BusySamples = field(default_factory=_busy_samples)
    group: CostGroup | None = None  # None: the cost is measured for this operator alone
    service: deque[ServiceSample] = field(default_factory=lambda: deque(maxlen=_KEPT_SAMPLES))  # single rows
    calls: CallSums = field(default_factory=CallSums)  # concurrent calls in the latest window
    calls_busy_s: float = 0.0  # busy time of the replicas that made these calls
    has_clock: bool = False  # a clock excludes the fixed cost of a batch, which task time includes
    _carried_s: float = 0.0  # busy time of a window without rows
    _only_cold: bool = True  # no window after the first one with rows of a query has been added

    def add_clocked(self, rows: int, seconds: float, *, is_cold: bool = False) -> None:
        """Add the rows and the clocked seconds of one window.

        The clock may show the time of a batch one window before its rows are counted. Time without rows is therefore
        carried over to the next window. If that has no rows either, the time was spent in empty batches and is dropped.

        A window is cold up to the first rows of a query: its time includes the start of workers, often with very few
        rows. Such a window counts only as long as there is no other one, and its time without rows is dropped.
        """
        self.has_clock = True
        if rows and not (is_cold and not self._only_cold):
            if self._only_cold and not is_cold:
                self.busy.clear()
                self._only_cold = False
            self.busy.append((rows, self._carried_s + seconds))
        self._carried_s = 0.0 if rows or is_cold else seconds

    def seconds_per_row(self) -> float | None:
        if self.has_clock:
            return ratio(sum(seconds for _, seconds in self.busy), sum(rows for rows, _ in self.busy))
        return cost_per_row(self.busy)

    def min_seconds_per_row(self) -> float | None:
        """Return the cost of a row while nothing disturbs the operator."""
        return low_cost_per_row(self.busy)


@dataclass(slots=True)
class _TaskTime:
    """The task time of a query in one window that is not assigned to an operator yet."""

    share: float  # fraction of the batches with rows whose task time is known
    remaining_s: float  # task time of the known batches

    def subtract(self, seconds: float) -> None:
        """Subtract time that was measured over all batches of the window."""
        self.remaining_s -= seconds * self.share

    def total_s(self) -> float:
        """Return the remaining time, extrapolated to all batches."""
        return max(0.0, self.remaining_s / self.share)


class OperatorCosts:
    """Adds the busy time of each window to the samples of the operators."""

    def __init__(self, context: RunContext, samples: defaultdict[str, OperatorSamples]) -> None:
        self._flow = context.flow
        self._run = context.directory.path
        self._stages = StageTimes(context.spark, from_now=True)
        self._samples = samples
        self._reading_s: dict[str, float] = {}  # reader -> busy seconds at the end of the last window
        self._min_commit_s: dict[tuple[str, str], float] = {}  # (run id, operator) -> shortest commit
        self._seen: set[str] = set()  # run ids of queries that have been through a window
        self._warm: set[str] = set()  # run ids of queries that have been through a window with rows

    def query_started(self, query: Query) -> None:
        """Exclude the time that the readers of these names spent in earlier processes."""
        for source in query.inputs:
            self._reading_s.setdefault(source.name, self._read_s(source.name))

    def refresh(self) -> None:
        """Read the latest task times; to be called once per window before `add`."""
        self._stages.refresh()

    def busy_s(self, running: RunningQuery, batch: Batch) -> float | None:
        """Return the task time of a batch, or None if it is unknown."""
        return self._stages.busy_s(running.run_id, batch.number)

    def add(self, query: Query, running: RunningQuery, batches: list[Batch]) -> None:
        """Add the rows and the busy seconds of one window to the samples of the operators of a query."""
        for name in query.operators:
            self._samples[name].calls, self._samples[name].calls_busy_s = CallSums(), 0.0
        if not batches:
            return
        moved = [batch for batch in batches if batch.may_have_moved_rows]
        known = [busy for batch in moved if (busy := self.busy_s(running, batch)) is not None]
        task_time = _TaskTime(len(known) / len(moved) if moved else 0.0, sum(known))
        is_first, is_cold = running.run_id not in self._seen, running.run_id not in self._warm
        self._seen.add(running.run_id)
        if any(batch.may_have_read_rows for batch in batches):
            self._warm.add(running.run_id)
        native: dict[str, int] = {}  # native operators and their rows
        sinks = []
        for name in query.operators:
            operator = self._flow[name]
            if operator.kind is Kind.SOURCE:
                self._add_source(operator, query, batches, task_time, is_cold=is_cold)
            elif operator.kind is Kind.SINK:
                sinks.append(name)
            else:
                rows = self._add_operator(operator, query, running, batches, task_time, is_cold=is_cold)
                if rows is not None:
                    native[name] = rows
        for source in query.inputs:
            if isinstance(source, ChannelInput):
                task_time.subtract(self._reading_since_last_window_s(source.name))
        native_rows = sum(native.values())
        all_rows = native_rows + self._rows_without_native_operator(query, native, batches)
        group = self._group(query, (*native, *sinks) if native else ())
        if task_time.share > 0 and native_rows and not is_first:  # the first batches start workers
            for name, rows in native.items():
                self._samples[name].busy.append((rows, task_time.total_s() * rows / all_rows))
            if group is not None:
                group.busy.append((native[group.operators[0]], task_time.total_s() * native_rows / all_rows))

    def _rows_without_native_operator(self, query: Query, native: Iterable[str], batches: list[Batch]) -> int:
        """Return the rows of operators with state that no native operator of the query precedes.

        Their rows are shuffled and deserialised. Operators behind the state, which may emit few rows, do not cause it.
        """
        behind_native, rows = set(native), 0
        for name in query.operators:
            operator = self._flow[name]
            if not behind_native.isdisjoint(operator.inputs):
                behind_native.add(name)
            elif operator.kind.has_state:
                rows += rows_through(operator, query, batches).rows_in or 0
        return rows

    def _group(self, query: Query, members: tuple[str, ...]) -> CostGroup | None:
        """Return the group of these operators and assign it to them; None if there are fewer than two."""
        group = None
        if len(members) > 1:
            group = self._samples[members[0]].group
            if group is None or group.operators != members:
                group = CostGroup(members)
        for name in query.operators:
            self._samples[name].group = group if name in members else None
        return group

    def _add_source(
        self, operator: Operator, query: Query, batches: list[Batch], task_time: _TaskTime, *, is_cold: bool
    ) -> None:
        busy_s = self._reading_since_last_window_s(query.input(operator.name).name)
        task_time.subtract(busy_s)
        rows = rows_through(operator, query, batches).rows_out or 0
        self._samples[operator.name].add_clocked(rows, busy_s, is_cold=is_cold)

    def _add_operator(
        self,
        operator: Operator,
        query: Query,
        running: RunningQuery,
        batches: list[Batch],
        task_time: _TaskTime,
        *,
        is_cold: bool,
    ) -> int | None:
        """Add the clocked time and the state time of an operator; return its rows if it is native and has neither."""
        samples = self._samples[operator.name]
        rows_in = rows_through(operator, query, batches).rows_in or 0
        busy_s = overhead_s = 0.0
        timing = running.compiled.timings.get(operator.name)
        if timing is not None:
            busy_s, sample, calls = timing.pull()
            samples.calls, samples.calls_busy_s = calls, busy_s
            if sample.rows:
                samples.service.append(sample)
        if operator.kind.has_state:
            state_s, overhead_s = self._state_time(operator.name, running, batches, includes_updates=not busy_s)
            busy_s += state_s
        task_time.subtract(busy_s + overhead_s)
        if busy_s > 0 or samples.has_clock or operator.kind.has_state:
            samples.add_clocked(rows_in, busy_s, is_cold=is_cold)
            return None
        return rows_in

    def _state_time(
        self, operator: str, running: RunningQuery, batches: list[Batch], *, includes_updates: bool
    ) -> tuple[float, float]:
        """Return (seconds that the rows caused, fixed seconds) of updating and committing state.

        A Python function updates state while its own clock runs, so `includes_updates` is False for it. Every batch
        commits state, however few rows it has. Only the time above the shortest commit counts as caused by rows.
        """
        min_commit_s = self._update_min_commit_s(running.run_id, operator, batches)
        rows_s = fixed_s = 0.0
        for batch in batches:
            if not batch.may_have_moved_rows:
                continue
            fixed_s += min_commit_s
            state = batch.states[operator]
            batch_s = (state.update_s if includes_updates else 0.0) + state.commit_s - min_commit_s
            if batch.may_have_read_rows:
                rows_s += batch_s
            else:
                fixed_s += batch_s
        return rows_s, fixed_s

    def _update_min_commit_s(self, run_id: str, operator: str, batches: list[Batch]) -> float:
        """Return the shortest commit of one start of a query, during which the number of replicas is constant."""
        shortest = min(batch.states[operator].commit_s for batch in batches)
        key = (run_id, operator)
        self._min_commit_s[key] = min(shortest, self._min_commit_s.get(key, shortest))
        return self._min_commit_s[key]

    def _reading_since_last_window_s(self, reader: str) -> float:
        before, self._reading_s[reader] = self._reading_s[reader], self._read_s(reader)
        return max(0.0, self._reading_s[reader] - before)

    def _read_s(self, reader: str) -> float:
        return ReaderBusyTime(self._run, reader).total_s()
