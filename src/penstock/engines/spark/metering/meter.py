"""The meter: what the queries' progress, stages, offsets and clocks say, put together into a window."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, Kind, Operator
from penstock.dataflow.edge import Edge
from penstock.engines.spark.channels import Channel
from penstock.engines.spark.metering.batches import Batch, Batches, rows_through
from penstock.engines.spark.metering.costs import Costs, Tally
from penstock.engines.spark.metering.lineage import Lineage
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.committed import ChannelInput, Committed, Origin, Query
from penstock.engines.spark.sources.contract import StreamSource
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.measure.estimators import (
    latency,
    ratio,
    service_moments,
    true_rate,
    utilisation,
)
from penstock.measure.window import OperatorWindow, PipelineWindow, Window


class Meter:
    def __init__(
        self,
        flow: Dataflow,
        spark: SparkSession,
        sources: dict[str, StreamSource],
        channel: Callable[[str], Channel],
        run: Path,
    ) -> None:
        self._flow = flow
        self._sources = sources
        self._channel = channel
        self._run = run
        self._lineage = Lineage(run, sources, channel)
        self._batches = Batches(sources, channel, self._lineage)
        self._tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self._costs = Costs(flow, spark, run, self._tallies)
        self._appended = {name: source.available() for name, source in sources.items()}
        self._state: dict[str, tuple[int, int]] = {}
        self._waiting: dict[str, int] = {}  # backlog at the end of the last window, by operator at an entrance
        self._late: list[tuple[float, float]] = []  # stays of rows in batches that no window saw
        self._since_s = time.time()
        self._generation = 0
        self._load()

    def started(self, running: RunningQuery) -> None:
        self._lineage.know(running.record)
        self._costs.started(running.record)

    def settle(self, running: RunningQuery) -> None:
        """A query has stopped: what it did since the last window is added to the totals; its stays go to the next."""
        query = running.record
        batches = self._batches.fresh(query, running)
        self._count(query, batches)
        if query.appends_to is None:
            self._late += self._stays(query, batches)
        self._save()

    def counted_up_to(self, query: Query, origin: Origin) -> Offset | None:
        """Where the last batch that was counted ended on one of its sources."""
        number = self._batches.seen.get(query.checkpoint)
        ranges = self._lineage.ranges(query.checkpoint, number) if number is not None else None
        return ranges[origin][1] if ranges and origin in ranges else None

    def window(self, committed: Committed, running: dict[str, RunningQuery]) -> Window:
        now = time.time()
        span = max(now - self._since_s, 1e-3)
        if committed.generation != self._generation:
            self._generation = committed.generation
            self._waiting.clear()  # rows wait in other places now
        self._costs.look()
        pipelines: list[PipelineWindow] = []
        operators: dict[str, OperatorWindow] = {}
        stays, self._late = self._late, []
        for query in committed.queries:
            one = running.get(query.checkpoint)
            batches = self._batches.fresh(query, one) if one is not None else []
            pipeline, rows, waiting = self._pipeline(query, one, batches, span)
            pipelines.append(pipeline)
            self._costs.add(query, one, batches)
            for name in query.operators:
                operators[name] = self._operator(self._flow[name], query, rows, waiting, span)
            if query.appends_to is None:
                stays += self._stays(query, batches)
        appended = self._external()
        self._since_s = now
        self._save()
        return Window(
            start_s=now - span,
            end_s=now,
            generation=committed.generation,
            external_rows_per_s=ratio(appended, span),
            latency=latency(stays),
            pipelines=tuple(pipelines),
            operators=tuple(operators[one.name] for one in self._flow.operators if one.name in operators),
        )

    # ---- pipelines

    def _pipeline(
        self, query: Query, running: RunningQuery | None, batches: list[Batch], span: float
    ) -> tuple[PipelineWindow, dict[str, tuple[int | None, int | None]], dict[Origin, int | None]]:
        rows = self._count(query, batches)
        if batches and batches[-1].phases_s:
            last = batches[-1]
            for name in query.operators:
                if self._flow[name].kind.has_state:
                    self._state[name] = (last.state_rows, last.state_bytes)
        waiting = self._backlog(query)
        phases: dict[str, float] = defaultdict(float)
        for batch in batches:
            for name, seconds in batch.phases_s.items():
                phases[name] += seconds / len(batches)
        known = [self._costs.busy_s(running, batch) for batch in batches] if running is not None else []
        sampled = [busy for busy in known if busy is not None]
        window = PipelineWindow(
            pipeline=query.pipeline,
            operators=query.operators,
            batches=len(batches),
            rows_in=sum(rows or 0 for batch in batches for rows in batch.rows_read.values()),
            batch_s=sum(batch.seconds for batch in batches) / len(batches) if batches else None,
            batch_max_s=max((batch.seconds for batch in batches), default=None),
            phases_s=dict(phases),
            busy_s=sum(sampled) * len(batches) / len(sampled) if sampled else None,
            backlog_rows=_total(waiting.values()),
        )
        return window, rows, waiting

    def _count(self, query: Query, batches: list[Batch]) -> dict[str, tuple[int | None, int | None]]:
        """Rows in and out of each operator over these batches, which are added to the totals."""
        rows = {name: rows_through(self._flow[name], query, batches) for name in query.operators}
        for name, (rows_in, rows_out) in rows.items():
            self._tallies[name].rows_in += rows_in or 0
            self._tallies[name].rows_out += rows_out or 0
        return rows

    def _backlog(self, query: Query) -> dict[Origin, int | None]:
        """Rows appended to each of its sources and channels and not yet taken into a batch."""
        checkpoint = Checkpoint(self._run / "checkpoints" / query.checkpoint)
        try:
            planned = checkpoint.offsets(checkpoint.planned())
        except FileNotFoundError:  # purged between two looks
            return {source.origin: None for source in query.inputs}
        backlog: dict[Origin, int | None] = {}
        for source in query.inputs:
            at = planned.get(source.name, source.start)
            if isinstance(source, ChannelInput):
                end = self._channel(source.folder).end()
            else:
                end = self._sources[source.operator].available()
            rows = self._batches.rows_between(source, at, end) if end is not None else None
            backlog[source.origin] = None if rows is None else max(0, rows)
        return backlog

    # ---- operators

    def _operator(
        self,
        operator: Operator,
        query: Query,
        rows: dict[str, tuple[int | None, int | None]],
        by_input: dict[Origin, int | None],
        span: float,
    ) -> OperatorWindow:
        tally = self._tallies[operator.name]
        rows_in, rows_out = rows[operator.name]
        cost, service = tally.cost(), service_moments(tally.timed)
        replicas = query.replicas.get(operator.name)
        entrances: list[Origin] = [operator.name] if operator.kind is Kind.SOURCE else []
        edges = [Edge(name, operator.name) for name in operator.inputs]
        entrances += [edge for edge in edges if query.find_input(edge) is not None]
        waiting = _total(by_input[origin] for origin in entrances)
        state = self._state.get(operator.name)
        arrived = rows_in
        if entrances:
            before = self._waiting.get(operator.name)
            known = rows_in is not None and waiting is not None and before is not None
            arrived = max(0, rows_in + waiting - before) if known else None
            if waiting is not None:
                self._waiting[operator.name] = waiting
        return OperatorWindow(
            operator=operator.name,
            pipeline=query.pipeline,
            replicas=replicas,
            rows_in_total=tally.rows_in if rows_in is not None else None,
            rows_out_total=tally.rows_out if rows_out is not None else None,
            rows_in=rows_in,
            rows_out=rows_out,
            input_rows_per_s=ratio(arrived, span),
            processed_rows_per_s=ratio(rows_in, span),
            true_rows_per_s=true_rate(cost),
            selectivity=_selectivity(operator, rows[operator.name], tally),
            seconds_per_row=cost,
            utilisation=utilisation(rows_in, cost, replicas, span),
            backlog_rows=waiting if entrances else None,
            state_rows=state[0] if state else None,
            state_bytes=state[1] if state else None,
            service_scv=None if service is None else service[1],
        )

    def _external(self) -> int | None:
        """Rows appended at all sources since the last window."""
        total: int | None = 0
        for name, source in self._sources.items():
            before, end = self._appended[name], source.available()
            self._appended[name] = end
            rows = source.rows_between(before, end) if before is not None and end is not None else None
            total = None if total is None or rows is None else total + rows
        return total

    def _stays(self, query: Query, batches: list[Batch]) -> list[tuple[float, float]]:
        """(seconds from append to commit, rows) of the rows behind these batches of a sink's query."""
        found = []
        for batch in batches:
            moments = self._lineage.moments(query.checkpoint, batch.number)
            found += [(max(0.0, batch.ended_s - at), rows) for at, rows in moments or ()]
        return found

    # ---- across restarts

    def _save(self) -> None:
        totals = {name: (tally.rows_in, tally.rows_out) for name, tally in self._tallies.items()}
        write_atomically(self._run / "totals.json", msgspec.json.encode({"seen": self._batches.seen, "totals": totals}))

    def _load(self) -> None:
        path = self._run / "totals.json"
        if path.exists():
            saved = msgspec.json.decode(path.read_bytes())
            self._batches.seen = saved["seen"]
            for name, (rows_in, rows_out) in saved["totals"].items():
                self._tallies[name].rows_in, self._tallies[name].rows_out = rows_in, rows_out


def _selectivity(operator: Operator, rows: tuple[int | None, int | None], tally: Tally) -> float | None:
    """As declared, or of this window, or of all rows where this window had none."""
    rows_in, rows_out = rows
    if operator.selectivity is not None or rows_out is None:
        return operator.selectivity
    return ratio(rows_out, rows_in) if rows_in else ratio(tally.rows_out, tally.rows_in)


def _total(counts: Iterable[int | None]) -> int | None:
    """None where one of them is not known."""
    known = list(counts)
    return None if None in known else sum(one or 0 for one in known)
