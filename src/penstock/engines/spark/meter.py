"""The meter: what the queries' progress, stages, offsets and clocks say, put together into a window."""

from __future__ import annotations

import datetime
import json
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, Kind, Operator
from penstock.engines.spark.channels import Channel
from penstock.engines.spark.checkpoint import Checkpoint
from penstock.engines.spark.committed import Committed, Query
from penstock.engines.spark.files import write_whole
from penstock.engines.spark.lineage import Lineage
from penstock.engines.spark.running import RunningQuery
from penstock.engines.spark.sources.contract import LiveSource, Offset
from penstock.engines.spark.stages import Stages
from penstock.engines.spark.timing import ReadingTime
from penstock.measure.estimators import (
    ServiceSample,
    cost_per_row,
    ratio,
    service_moments,
    sojourn,
    true_rate,
    utilisation,
)
from penstock.measure.window import OperatorWindow, PipelineWindow, Window

_KEPT_SAMPLES = 64


@dataclass(slots=True)
class Batch:
    """One committed batch of a query."""

    number: int
    ended_s: float
    seconds: float
    phases_s: dict[str, float]
    rows_read: dict[str, int | None]  # by key of the source
    rows_out: dict[str, int]  # by operator, as observed
    state_rows: int
    state_bytes: int
    update_s: float  # of state, until the last row is out
    commit_s: float


@dataclass(slots=True)
class Tally:
    """What is known of one operator since the run began, and lately."""

    rows_in: int = 0
    rows_out: int = 0
    samples: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_KEPT_SAMPLES))
    timed: deque[ServiceSample] = field(default_factory=lambda: deque(maxlen=_KEPT_SAMPLES))  # rows, of row functions
    clocked: bool = False  # by a clock of its own, which knows nothing of what a batch costs besides

    def cost(self) -> float | None:
        if self.clocked:
            return ratio(sum(seconds for _, seconds in self.samples), sum(rows for rows, _ in self.samples))
        return cost_per_row(self.samples)


def _written_by_spark(progress: dict[str, Any]) -> int | None:
    rows = (progress.get("sink") or {}).get("numOutputRows", -1)
    return rows if rows >= 0 else None


class Meter:
    def __init__(
        self,
        flow: Dataflow,
        spark: SparkSession,
        sources: dict[str, LiveSource],
        channel: Callable[[str], Channel],
        run: Path,
    ) -> None:
        self._flow = flow
        self._sources = sources
        self._channel = channel
        self._run = run
        self._lineage = Lineage(run, sources, channel)
        self._stages = Stages(spark)
        self._seen: dict[str, int] = {}  # checkpoint -> last batch counted
        self._tallies: dict[str, Tally] = defaultdict(Tally)
        self._busy: dict[tuple[str, int], float] = {}
        self._reading: dict[str, float] = {}
        self._appended = {name: source.available() for name, source in sources.items()}
        self._state: dict[str, tuple[int, int]] = {}
        self._waiting: dict[str, int] = {}  # backlog at the end of the last window, by operator at an entrance
        self._late: list[tuple[float, float]] = []  # stays of rows in batches that no window saw
        self._since_s = time.time()
        self._generation = 0
        self._warm: set[str] = set()  # starts of queries that have been through a window
        self._load()

    def started(self, running: RunningQuery) -> None:
        self._lineage.know(running.record)

    def settle(self, running: RunningQuery) -> None:
        """A query has stopped: what it did since the last window is added to the totals; its stays go to the next."""
        query = running.record
        batches = self._batches(query, running)
        self._count(query, batches)
        if query.appends_to is None:
            self._late += self._stays(query, batches)
        self._save()

    def counted_up_to(self, query: Query, key: str) -> Offset | None:
        """Where the last batch that was counted ended on one of its sources."""
        number = self._seen.get(query.checkpoint)
        ranges = self._lineage.ranges(query.checkpoint, number) if number is not None else None
        return ranges[key][1] if ranges and key in ranges else None

    def window(self, committed: Committed, running: dict[str, RunningQuery]) -> Window:
        now = time.time()
        span = max(now - self._since_s, 1e-3)
        if committed.generation != self._generation:
            self._generation = committed.generation
            self._waiting.clear()  # rows wait in other places now
        busy = self._stages.busy()
        self._busy |= busy
        pipelines: list[PipelineWindow] = []
        operators: dict[str, OperatorWindow] = {}
        stays, self._late = self._late, []
        for query in committed.queries:
            one = running.get(query.checkpoint)
            batches = self._batches(query, one) if one is not None else []
            pipeline, rows, waiting = self._pipeline(query, one, batches, span)
            pipelines.append(pipeline)
            self._costs(query, one, batches)
            for name in query.operators:
                operators[name] = self._operator(self._flow[name], query, rows, waiting, span)
            if query.appends_to is None:
                stays += self._stays(query, batches)
        appended = self._external()
        self._since_s = now
        self._busy = {key: seconds for key, seconds in self._busy.items() if key in busy}
        self._save()
        return Window(
            start_s=now - span,
            end_s=now,
            generation=committed.generation,
            external_rows_per_s=ratio(appended, span),
            sojourn=sojourn(stays),
            pipelines=tuple(pipelines),
            operators=tuple(operators[one.name] for one in self._flow.operators if one.name in operators),
        )

    # ---- batches

    def _batches(self, query: Query, running: RunningQuery) -> list[Batch]:
        """The batches that were committed since the last window, each counted once."""
        found = []
        written = running.written
        for raw in running.query._jsq.recentProgress():
            progress = json.loads(raw.json())
            number = progress["batchId"]
            if number <= self._seen.get(query.checkpoint, -1) or "addBatch" not in progress["durationMs"]:
                continue
            self._seen[query.checkpoint] = number
            batch = self._batch(query, number, progress)
            rows = written.get(number, _written_by_spark(progress))
            if running.compiled.counted is not None and rows is not None:
                batch.rows_out[running.compiled.counted] = rows
            found.append(batch)
            self._lineage.moments(query.checkpoint, number)  # while the channels before it still know
        return found

    def _batch(self, query: Query, number: int, progress: dict[str, Any]) -> Batch:
        ranges = self._lineage.ranges(query.checkpoint, number) or {}
        read = {key: self._rows_between(query, key, *ranges[key]) if key in ranges else None for key in query.sources}
        if len(read) == 1 and None in read.values():
            (only,) = read
            # Marks of event time are rows to Spark but not to anybody else; channels always know their rows.
            read[only] = None if ">" in only else progress["numInputRows"]
        observed = progress.get("observedMetrics") or {}
        states = progress.get("stateOperators") or []
        phases = {name: milliseconds / 1000 for name, milliseconds in progress["durationMs"].items()}
        began = datetime.datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        return Batch(
            number=number,
            ended_s=began + phases["triggerExecution"],
            seconds=phases["triggerExecution"],
            phases_s=phases,
            rows_read=read,
            rows_out={
                name.removeprefix("rows_"): values["rows"]
                for name, values in observed.items()
                if name.startswith("rows_")
            },
            state_rows=sum(state["numRowsTotal"] for state in states),
            state_bytes=sum(state["memoryUsedBytes"] for state in states),
            update_s=sum(state["allUpdatesTimeMs"] for state in states) / 1000,
            commit_s=sum(state["commitTimeMs"] for state in states) / 1000,
        )

    def _rows_between(self, query: Query, key: str, start: Offset, end: Offset) -> int | None:
        if ">" not in key:
            return self._sources[key].rows_between(start, end)
        try:
            return self._channel(query.reads[key]).rows_between(start, end)
        except FileNotFoundError:
            return None

    # ---- pipelines

    def _pipeline(
        self, query: Query, running: RunningQuery | None, batches: list[Batch], span: float
    ) -> tuple[PipelineWindow, dict[str, tuple[int | None, int | None]], int | None]:
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
        known = [self._busy_of(running, batch) for batch in batches] if running is not None else []
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
            backlog_rows=waiting,
        )
        return window, rows, waiting

    def _count(self, query: Query, batches: list[Batch]) -> dict[str, tuple[int | None, int | None]]:
        """Rows in and out of each operator over these batches, which are added to the totals."""
        rows = {name: self._rows(self._flow[name], query, batches) for name in query.operators}
        for name, (rows_in, rows_out) in rows.items():
            self._tallies[name].rows_in += rows_in or 0
            self._tallies[name].rows_out += rows_out or 0
        return rows

    def _rows(self, operator: Operator, query: Query, batches: list[Batch]) -> tuple[int | None, int | None]:
        """Rows in and out of an operator over these batches; None if one of its inputs cannot be counted."""
        rows_in: int | None = 0
        rows_out: int | None = 0
        for batch in batches:
            if operator.kind is Kind.SOURCE:
                read = batch.rows_read.get(operator.name)
                rows_in = rows_out = None if rows_in is None or read is None else rows_in + read
                continue
            for name in operator.inputs:
                key = f"{name}>{operator.name}"
                came = batch.rows_read.get(key if key in query.sources else name, batch.rows_out.get(name))
                rows_in = None if rows_in is None or came is None else rows_in + came
            out = batch.rows_out.get(operator.name)
            rows_out = None if rows_out is None or out is None else rows_out + out
        return rows_in, (None if operator.kind is Kind.SINK else rows_out)

    def _backlog(self, query: Query) -> int | None:
        """Rows appended to its sources and channels and not yet taken into a batch."""
        checkpoint = Checkpoint(self._run / "checkpoints" / query.checkpoint)
        try:
            planned = checkpoint.offsets(checkpoint.planned())
        except FileNotFoundError:  # purged between two looks
            return None
        total = 0
        for key, use in query.sources.items():
            at = planned.get(use.name, use.start)
            end = self._channel(query.reads[key]).end() if ">" in key else self._sources[key].available()
            rows = self._rows_between(query, key, at, end) if end is not None else None
            if rows is None:
                return None
            total += max(0, rows)
        return total

    def _busy_of(self, running: RunningQuery, batch: Batch) -> float | None:
        return self._busy.get((str(running.query.runId), batch.number))

    # ---- costs

    def _costs(self, query: Query, running: RunningQuery | None, batches: list[Batch]) -> None:
        """Adds this window's (rows, busy seconds) to the operators' samples.

        Python functions and readers have clocks of their own. State is timed by Spark. What is left of the tasks' time
        is that of the native operators, shared among them by the rows that they handle.
        """
        if running is None or not batches:
            return
        known = [self._busy_of(running, batch) for batch in batches]
        sampled = [(batch, busy) for batch, busy in zip(batches, known, strict=True) if busy is not None]
        share = len(sampled) / len(batches)
        left = sum(busy for _, busy in sampled)
        native: list[tuple[str, int]] = []
        for name in query.operators:
            operator, tally = self._flow[name], self._tallies[name]
            rows_in, rows_out = self._rows(operator, query, batches)
            if operator.kind is Kind.SOURCE:
                spent = self._since(query.sources[name].name)
                left -= spent * share
                tally.clocked = True
                tally.samples.append((rows_out or 0, spent))
                continue
            timing = running.compiled.timings.get(name)
            spent = 0.0
            if timing is not None:
                spent, sample = timing.pull()
                tally.timed.append(sample)
            if operator.kind.has_state:
                # The update of state by a Python function goes on while that works, which its own clock has counted.
                spent += sum(batch.commit_s + (0.0 if spent else batch.update_s) for batch in batches)
            left -= spent * share
            if spent > 0 or tally.clocked:
                # Rows and seconds are seen at slightly different times: only their sums belong together.
                tally.clocked = True
                tally.samples.append((rows_in or 0, spent))
            elif rows_in and operator.kind is not Kind.SINK:
                native.append((name, rows_in))
        for key in query.reads:
            left -= self._since(query.sources[key].name) * share
        handled = sum(rows for _, rows in native)
        start = str(running.query.runId)
        cold = start not in self._warm
        self._warm.add(start)
        if share > 0 and handled and not cold:  # a query's first batches start workers and compile code
            for name, rows in native:
                self._tallies[name].samples.append((rows, max(0.0, left / share) * rows / handled))

    def _since(self, reader: str) -> float:
        """Seconds that readers of this name have been busy since the last window."""
        total = ReadingTime(self._run / "timings" / reader).read()
        before, self._reading[reader] = self._reading.get(reader, 0.0), total
        return max(0.0, total - before)

    # ---- operators

    def _operator(
        self,
        operator: Operator,
        query: Query,
        rows: dict[str, tuple[int | None, int | None]],
        waiting: int | None,
        span: float,
    ) -> OperatorWindow:
        tally = self._tallies[operator.name]
        rows_in, rows_out = rows[operator.name]
        cost, service = tally.cost(), service_moments(tally.timed)
        replicas = query.replicas.get(operator.name)
        at_entrance = operator.kind is Kind.SOURCE or any(
            f"{name}>{operator.name}" in query.reads for name in operator.inputs
        )
        state = self._state.get(operator.name)
        arrived = rows_in
        if at_entrance:
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
            selectivity=operator.selectivity
            if operator.selectivity is not None
            else ratio(tally.rows_out, tally.rows_in),
            seconds_per_row=cost,
            utilisation=utilisation(rows_in, cost, replicas, span),
            backlog_rows=waiting if at_entrance else None,
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
        write_whole(self._run / "totals.json", msgspec.json.encode({"seen": self._seen, "totals": totals}))

    def _load(self) -> None:
        path = self._run / "totals.json"
        if path.exists():
            saved = msgspec.json.decode(path.read_bytes())
            self._seen = saved["seen"]
            for name, (rows_in, rows_out) in saved["totals"].items():
                self._tallies[name].rows_in, self._tallies[name].rows_out = rows_in, rows_out
