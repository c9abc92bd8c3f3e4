"""The meter: combines batches, offsets, task times and clocks of the running queries into a window."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from penstock.dataflow import Kind, Operator
from penstock.dataflow.edge import Edge
from penstock.engines.spark.metering.batches import Batch, CommittedBatches, RowCounts, rows_through
from penstock.engines.spark.metering.costs import CostGroup, OperatorCosts, OperatorSamples
from penstock.engines.spark.metering.fixed_cost import FixedCosts
from penstock.engines.spark.metering.lineage import Lineage
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.run_directory.committed import ChannelInput, Committed, Origin, Query
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.measure.estimators import (
    cost_per_row,
    grouped_scv,
    latency,
    ratio,
    service_moments,
    true_rate,
    utilisation,
)
from penstock.measure.window import CallWindow, OperatorWindow, PipelineWindow, SharedCost, Window
from penstock.plan.plan import Threads

_TOTALS_FILE = "totals.json"


class _Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The counts that survive a restart of the run."""

    last_batches: dict[str, int]  # checkpoint -> last batch that is included
    rows: dict[str, tuple[int, int]]  # operator -> rows in and out
    late_rows: dict[str, int] = {}
    dropped_rows: dict[str, int] = {}


class _State(NamedTuple):
    """The state of an operator after its last batch."""

    rows: int
    bytes: int
    open_windows: int | None


class _QueryRows(NamedTuple):
    """Rows of one query in one window, and the rows that wait at its inputs."""

    counts: dict[str, RowCounts]  # by operator
    backlog: dict[Origin, int | None]  # appended, and not taken by a batch
    uncounted: dict[Origin, int | None]  # appended to a channel, and in no batch that has been counted
    window_s: float
    busy_span_s: float  # the time to which the busy time of these rows is compared; 0 if it is unknown
    late: dict[str, int]  # dropped, by operator with state
    arrival_scv: float | None  # SCV of the arrivals at its only source


class QueryMeter:
    """Measures the queries of a run. It is notified of each start and stop, and builds one window per call."""

    def __init__(self, context: RunContext) -> None:
        self._flow = context.flow
        self._sources = context.sources
        self._directory = context.directory
        self._lineage = Lineage(context)
        self._batches = CommittedBatches(context, self._lineage)
        self._samples: defaultdict[str, OperatorSamples] = defaultdict(OperatorSamples)
        self._costs = OperatorCosts(context, self._samples)
        self._fixed_costs = FixedCosts()
        self._appended = {name: source.available() for name, source in self._sources.items()}
        self._state: dict[str, _State] = {}  # by operator
        self._late_rows: dict[str, int] = {}  # since the start of the run, by operator with state
        self._dropped_rows: dict[str, int] = {}  # since the start of the run, by operator class with a limit
        self._uncounted_before: dict[str, int] = {}  # at the end of the last window, by operator that reads channels
        self._latencies: list[tuple[float, float]] = []  # (seconds, rows) of batches that belong to the next window
        self._last_arrival: dict[str, tuple[float, float]] = {}  # checkpoint -> (time, rows) before this window
        self._window_began_s = time.time()
        self._generation = 0
        self._load_totals()

    # ---- notifications

    def begin(self) -> None:
        """Begin the first window now. The time before is the start of the run.

        A paced source that is resumed goes back to the rows that have been read, so its end counts from here, too.
        """
        self._window_began_s = time.time()
        self._appended = {name: source.available() for name, source in self._sources.items()}

    def query_started(self, running: RunningQuery) -> None:
        self._lineage.add_query(running.record)
        self._costs.query_started(running.record)
        self._fixed_costs.begin(running.record.checkpoint)

    def query_stopped(self, running: RunningQuery) -> None:
        """Add the batches since the last window to the totals, and their latencies to the next window."""
        query = running.record
        batches = self._batches.fetch(query, running)
        self._count_rows(query, batches)
        if query.appends_to is None:
            self._latencies += self._batch_latencies(query, batches)
        self._save_totals()

    # ---- windows

    def counted_up_to(self, query: Query, origin: Origin) -> Offset | None:
        """Return the offset of an input up to which all batches have been counted, or None if it is unknown."""
        batch_id = self._batches.last_returned.get(query.checkpoint)
        ranges = self._lineage.ranges(query.checkpoint, batch_id) if batch_id is not None else None
        return ranges[origin][1] if ranges and origin in ranges else None

    def window(self, committed: Committed, running: dict[str, RunningQuery]) -> Window:
        """Return the measurements since the last window. `running` maps checkpoints to running queries."""
        now = time.time()
        window_s = max(now - self._window_began_s, 1e-3)
        if committed.generation != self._generation:
            self._generation = committed.generation
            self._uncounted_before.clear()  # under another plan, rows wait at other operators
        self._costs.refresh()
        pipelines: list[PipelineWindow] = []
        operators: dict[str, OperatorWindow] = {}
        latencies, self._latencies = self._latencies, []
        appended = self._appended_rows()
        for query in committed.queries:
            active = running.get(query.checkpoint)
            batches = self._batches.fetch(query, active) if active is not None else []
            busy_span_s = self._busy_span_s(query, batches, now)
            counts, backlog = self._count_rows(query, batches), self._backlog(query)
            uncounted = self._uncounted(query)
            late = {name: _late_rows(name, batches) for name in query.operators if self._flow[name].kind.has_state}
            arrival_scv = self._arrival_scv(query, batches)
            rows = _QueryRows(counts, backlog, uncounted, window_s, busy_span_s, late, arrival_scv)
            pipelines.append(self._pipeline_window(query, active, batches, rows))
            if active is not None:
                self._costs.add(query, active, batches)
            for name in query.operators:
                operator = self._operator_window(self._flow[name], query, rows, appended)
                calls = _call_window(self._samples[name], committed.plan.threads.get(name))
                operators[name] = operator if calls is None else msgspec.structs.replace(operator, calls=calls)
            if query.appends_to is None:
                latencies += self._batch_latencies(query, batches)
        self._window_began_s = now
        self._save_totals()
        return Window(
            start_s=now - window_s,
            end_s=now,
            generation=committed.generation,
            external_rows_per_s=ratio(_sum_if_known(appended.values()), window_s),
            latency=latency(latencies),
            pipelines=tuple(pipelines),
            operators=tuple(operators[op.name] for op in self._flow.operators if op.name in operators),
        )

    def _pipeline_window(
        self, query: Query, running: RunningQuery | None, batches: list[Batch], rows: _QueryRows
    ) -> PipelineWindow:
        if batches:
            for name in query.operators:
                if self._flow[name].kind.has_state:
                    state = batches[-1].states[name]
                    is_open = running is not None and name in running.compiled.emits_closed_windows
                    self._state[name] = _State(state.rows, state.bytes, state.rows if is_open else None)
        phases_s: dict[str, float] = defaultdict(float)
        for batch in batches:
            for phase, seconds in batch.phases_s.items():
                phases_s[phase] += seconds / len(batches)
        self._fixed_costs.add(query.checkpoint, batches)
        busy_s = [self._costs.busy_s(running, batch) for batch in batches] if running is not None else []
        known_busy_s = [seconds for seconds in busy_s if seconds is not None]
        return PipelineWindow(
            pipeline=query.pipeline,
            operators=query.operators,
            batches=len(batches),
            rows_in=sum(count or 0 for batch in batches for count in batch.rows_read.values()),
            batch_s=sum(batch.seconds for batch in batches) / len(batches) if batches else None,
            batch_max_s=max((batch.seconds for batch in batches), default=None),
            phases_s=dict(phases_s),
            busy_s=sum(known_busy_s) * len(batches) / len(known_busy_s) if known_busy_s else None,
            backlog_rows=_sum_if_known(rows.backlog.values()),
            fixed_s=self._fixed_costs.estimate(query.checkpoint),
            last_batch_ended_s=max((batch.ended_s for batch in batches), default=None),
        )

    def _operator_window(
        self, operator: Operator, query: Query, rows: _QueryRows, appended: dict[str, int | None]
    ) -> OperatorWindow:
        samples = self._samples[operator.name]
        counts = rows.counts[operator.name]
        seconds_per_row, service = samples.seconds_per_row(), service_moments(samples.service)
        replicas = query.replicas.get(operator.name)
        inputs = _inputs_of(operator, query)
        backlog = _sum_if_known(rows.backlog[origin] for origin in inputs) if inputs else None
        if operator.kind is Kind.SOURCE:
            arrived = appended[operator.name]
        else:
            arrived = self._arrived_rows(operator.name, rows, inputs) if inputs else counts.rows_in
        has_state = operator.kind.has_state
        state = self._state.get(operator.name)
        return OperatorWindow(
            operator=operator.name,
            pipeline=query.pipeline,
            replicas=replicas,
            rows_in_total=samples.rows_in if counts.rows_in is not None else None,
            rows_out_total=samples.rows_out if counts.rows_out is not None else None,
            rows_in=counts.rows_in,
            rows_out=counts.rows_out,
            input_rows_per_s=ratio(arrived, rows.window_s),
            processed_rows_per_s=ratio(counts.rows_in, rows.window_s),
            true_rows_per_s=true_rate(seconds_per_row) if samples.group is None else None,
            selectivity=_selectivity(operator, counts, samples),
            seconds_per_row=seconds_per_row,
            utilisation=utilisation(counts.rows_in, seconds_per_row, replicas, rows.busy_span_s),
            utilisation_s=rows.busy_span_s,
            backlog_rows=backlog,
            state_rows=None if state is None else state.rows,
            state_bytes=None if state is None else state.bytes,
            late_rows=rows.late[operator.name] if has_state else None,
            late_rows_total=self._late_rows.get(operator.name, 0) if has_state else None,
            dropped_rows_total=self._dropped_rows.get(operator.name),
            open_windows=None if state is None else state.open_windows,
            arrival_scv=rows.arrival_scv if self._receives_all_rows(operator) else None,
            service_scv=None if service is None else service[1],
            shared_cost=_shared_cost(samples.group, query, rows),
            min_seconds_per_row=samples.min_seconds_per_row(),
        )

    def _busy_span_s(self, query: Query, batches: list[Batch], now_s: float) -> float:
        """Return the time to which the busy time of these batches is compared, or 0 if a batch lasts all the window.

        A batch counts in the window in which it ends, with all its rows. Its whole duration counts there as well, and
        the time of a batch that has not ended counts in a later window.
        """
        is_in_batch = self._directory.checkpoint(query).interrupted()
        if is_in_batch and not batches:
            return 0.0
        began_s = min([self._window_began_s, *(batch.ended_s - batch.seconds for batch in batches)])
        ended_s = max(batch.ended_s for batch in batches) if is_in_batch else now_s
        return max(0.0, ended_s - began_s)

    # ---- rows

    def _count_rows(self, query: Query, batches: list[Batch]) -> dict[str, RowCounts]:
        """Return the rows into and out of each operator over these batches, and add them to the totals."""
        counts = {name: rows_through(self._flow[name], query, batches) for name in query.operators}
        for name, (rows_in, rows_out) in counts.items():
            self._samples[name].rows_in += rows_in or 0
            self._samples[name].rows_out += rows_out or 0
            if self._flow[name].kind.has_state:
                self._late_rows[name] = self._late_rows.get(name, 0) + _late_rows(name, batches)
        for batch in batches:
            for name, dropped in batch.dropped_rows.items():
                self._dropped_rows[name] = self._dropped_rows.get(name, 0) + dropped
        return counts

    def _backlog(self, query: Query) -> dict[Origin, int | None]:
        """Return the rows of each input that have been appended and that no batch has taken yet."""
        checkpoint = self._directory.checkpoint(query)
        try:
            planned = checkpoint.offsets(checkpoint.planned())
        except FileNotFoundError:  # Spark deleted the file after its name was read
            return {source.origin: None for source in query.inputs}
        backlog: dict[Origin, int | None] = {}
        for source in query.inputs:
            at = planned.get(source.name, source.start)
            if isinstance(source, ChannelInput):
                end: Offset | None = self._directory.channel(source.folder).end()
            else:
                end = self._sources[source.operator].available()
            rows = self._batches.rows_between(source, at, end) if end is not None else None
            backlog[source.origin] = None if rows is None else max(0, rows)
        return backlog

    def _uncounted(self, query: Query) -> dict[Origin, int | None]:
        """Return the rows in each channel of a query behind its last counted batch, also those of a batch that runs."""
        uncounted: dict[Origin, int | None] = {}
        for source in query.inputs:
            if isinstance(source, ChannelInput):
                at = self.counted_up_to(query, source.origin) or source.start
                end = self._directory.channel(source.folder).end()
                uncounted[source.origin] = self._batches.rows_between(source, at, end)
        return uncounted

    def _arrived_rows(self, operator: str, rows: _QueryRows, inputs: list[Origin]) -> int | None:
        """Return the rows that arrived from channels: the counted rows plus the growth of those not counted yet."""
        rows_in, before = rows.counts[operator].rows_in, self._uncounted_before.pop(operator, None)
        uncounted = _sum_if_known(rows.uncounted[origin] for origin in inputs)
        if uncounted is not None:
            self._uncounted_before[operator] = uncounted
        if rows_in is None or uncounted is None or before is None:
            return None
        return max(0, rows_in + uncounted - before)

    def _appended_rows(self) -> dict[str, int | None]:
        """Return the rows appended at each source since the last window; None if they are unknown."""
        appended: dict[str, int | None] = {}
        for name, source in self._sources.items():
            before, end = self._appended[name], source.available()
            self._appended[name] = end
            appended[name] = source.rows_between(before, end) if before is not None and end is not None else None
        return appended

    def _batch_latencies(self, query: Query, batches: list[Batch]) -> list[tuple[float, float]]:
        """Return (seconds from append to commit, rows) of the source rows behind these batches of a sink's query."""
        latencies = []
        for batch in batches:
            append_times = self._lineage.append_times(query.checkpoint, batch.number)
            latencies += [(max(0.0, batch.ended_s - at), rows) for at, rows in append_times or ()]
        return latencies

    def _arrival_scv(self, query: Query, batches: list[Batch]) -> float | None:
        """Return the variability of the arrivals at a query with a single source, from the append times of its rows.

        The rows of several sources, or of a channel, have no append times of their own.
        """
        if len(query.inputs) != 1 or isinstance(query.inputs[0], ChannelInput):
            return None
        groups = []
        for batch in batches:
            groups += self._lineage.append_times(query.checkpoint, batch.number) or []
        if not groups:
            return None
        groups.sort()
        before = self._last_arrival.get(query.checkpoint)
        self._last_arrival[query.checkpoint] = groups[-1]
        return grouped_scv(groups if before is None else [before, *groups])

    def _receives_all_rows(self, operator: Operator) -> bool:
        """Return whether the arrivals at the source of a query are those of this operator."""
        if operator.kind is Kind.SOURCE:
            return True
        return len(operator.inputs) == 1 and self._flow[operator.inputs[0]].kind is Kind.SOURCE

    # ---- restarts of the run

    def _save_totals(self) -> None:
        rows = {name: (samples.rows_in, samples.rows_out) for name, samples in self._samples.items()}
        totals = _Totals(
            last_batches=self._batches.last_returned,
            rows=rows,
            late_rows=self._late_rows,
            dropped_rows=self._dropped_rows,
        )
        write_atomically(self._directory.path / _TOTALS_FILE, msgspec.json.encode(totals))

    def _load_totals(self) -> None:
        path = self._directory.path / _TOTALS_FILE
        if path.exists():
            totals = msgspec.json.decode(path.read_bytes(), type=_Totals)
            self._batches.last_returned = totals.last_batches
            self._late_rows = totals.late_rows
            self._dropped_rows = totals.dropped_rows
            for name, (rows_in, rows_out) in totals.rows.items():
                self._samples[name].rows_in, self._samples[name].rows_out = rows_in, rows_out


def _inputs_of(operator: Operator, query: Query) -> list[Origin]:
    """Return the inputs of a query that this operator reads directly."""
    if operator.kind is Kind.SOURCE:
        return [operator.name]
    edges = [Edge(name, operator.name) for name in operator.inputs]
    return [edge for edge in edges if query.find_input(edge) is not None]


def _call_window(samples: OperatorSamples, bundles: Threads | None) -> CallWindow | None:
    """Return the concurrent calls of the latest window; None for an operator without threads."""
    if bundles is None:
        return None
    threads = bundles if isinstance(bundles, int) else round(sum(bundles) / len(bundles))
    sums = samples.calls
    return CallWindow(
        threads=threads,
        calls=sums.calls,
        in_flight=ratio(sums.call_s, samples.calls_busy_s),
        call_s=ratio(sums.call_s, sums.calls),
        wait_s=ratio(sums.wait_s, sums.rows),
        retries=sums.retries,
        timeouts=sums.timeouts,
        failed_rows=sums.failed_rows,
        abandoned=sums.abandoned,
    )


def _shared_cost(group: CostGroup | None, query: Query, rows: _QueryRows) -> SharedCost | None:
    if group is None or not set(group.operators) <= set(query.operators):  # a cut has divided the group
        return None
    first, seconds_per_row = group.operators[0], cost_per_row(group.busy)
    return SharedCost(
        operators=group.operators,
        seconds_per_row=seconds_per_row,
        utilisation=utilisation(
            rows.counts[first].rows_in, seconds_per_row, query.replicas.get(first), rows.busy_span_s
        ),
    )


def _selectivity(operator: Operator, counts: RowCounts, samples: OperatorSamples) -> float | None:
    """Return the declared selectivity, or the one measured in this window, or in all windows if it had no rows."""
    if operator.selectivity is not None or counts.rows_out is None:
        return operator.selectivity
    if counts.rows_in:
        return ratio(counts.rows_out, counts.rows_in)
    return ratio(samples.rows_out, samples.rows_in)


def _late_rows(operator: str, batches: list[Batch]) -> int:
    return sum(batch.states[operator].late_rows for batch in batches)


def _sum_if_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of the counts is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
