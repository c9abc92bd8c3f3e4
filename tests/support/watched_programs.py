"""A small discrete simulation of micro-batch programs with known costs, independent of the estimator under test.

A program has one or more queries. A batch reads the rows that have arrived (or at most `limit`), takes a fixed time and
a time of the driver, and runs its stages one after another. All queries share the slots: a task takes the first slot
that becomes free, in the order in which the stages were submitted. The simulation yields the same reports as Spark:
start, duration and rows of each batch, offsets, and the times of its stages.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Literal

from penstock.engines.spark.queries.progress import Progress, SourceProgress
from penstock.measure.stage_run import StageRun

EPOCH_S = 1_700_000_000.0
Source = Literal["continuous", "each second", "kafka", "files"]
ROWS_PER_FILE = 50
FINITE_S = 240.0  # the rows that exist at the start of a finite program are those of this time


@dataclass(frozen=True, kw_only=True)
class SimulatedStage:
    tasks: int
    row_s: float = 0.0  # task time per row of the batch
    task_s: float = 0.004  # fixed time of a task
    largest_share: float | None = None  # share of the rows in the largest task; None: equal tasks
    overhead_s: float = 0.005


@dataclass(frozen=True, kw_only=True)
class SimulatedQuery:
    name: str = "query"
    stages: tuple[SimulatedStage, ...]
    fixed_s: float = 0.15
    driver_row_s: float = 0.0
    trigger_s: float = 0.0
    source: Source = "continuous"
    limit: int | None = None  # rows of a batch at most
    is_finite: bool = False  # all rows exist at the start, and the query ends when it has read them ("available now")
    share: float = 1.0  # of the program's load
    noise: float = 0.08  # coefficient of variation of a batch


@dataclass(frozen=True, kw_only=True)
class SimulatedProgram:
    queries: tuple[SimulatedQuery, ...]
    slots_per_executor: int = 2

    @cache  # noqa: B019
    def capacity(self, executors: int) -> float:
        """Return the rows/s that the program sustains: of one query with a backlog that never ends, of several by trial."""
        slots = executors * self.slots_per_executor
        if len(self.queries) == 1:
            (query,) = self.queries
            rows = query.limit or 10_000_000
            stages_s = sum(
                _placed(_tasks(stage, rows), [0.0] * slots, 0.0) + stage.overhead_s for stage in query.stages
            )
            return rows / max(query.trigger_s, query.fixed_s + query.driver_row_s * rows + stages_s)
        low, high = 0.0, slots / sum(query.share * sum(stage.row_s for stage in query.stages) for query in self.queries)
        for _ in range(8):
            middle = (low + high) / 2
            low, high = (middle, high) if self._is_stable(middle, executors) else (low, middle)
        return low

    def _is_stable(self, rows_per_s: float, executors: int) -> bool:
        quiet = replace(self, queries=tuple(replace(query, noise=0.0) for query in self.queries))
        batches = simulate_batches(quiet, rows_per_s=rows_per_s, executors=executors, seconds=200.0, seed=0)
        longest = [
            max(batch.report.batch_s for batch in batches if batch.query.name == query.name and is_late(batch))
            for query in quiet.queries
            for is_late in (lambda batch: batch.report.ended_s > EPOCH_S + 100.0,)
        ]
        return max(longest) < 10.0


@dataclass(kw_only=True)
class SimulatedBatch:
    query: SimulatedQuery
    report: Progress
    stages: tuple[StageRun, ...]


@dataclass
class _State:
    query: SimulatedQuery
    number: int = 0
    read: int = 0
    began_s: float = 0.0  # of the current batch
    rows: int = 0
    available: int = 0
    fixed_s: float = 0.0
    stages: list[StageRun] = field(default_factory=list)  # completed, of the current batch
    in_batch: bool = False


def simulate_batches(
    program: SimulatedProgram, *, rows_per_s: float, executors: int, seconds: float, seed: int
) -> list[SimulatedBatch]:
    """Return the batches in the order of their ends."""
    noise = random.Random(seed)
    states = [_State(query) for query in program.queries]
    free_s = [0.0] * executors * program.slots_per_executor  # heap of the times at which the slots become free
    batches: list[SimulatedBatch] = []
    queue = [(0.0, index) for index in range(len(states))]
    heapq.heapify(queue)
    while queue:
        now_s, index = heapq.heappop(queue)
        state = states[index]
        if state.query.is_finite and not state.in_batch and state.number and state.read >= state.available:
            continue  # the query has read everything that existed at its start
        if state.in_batch and len(state.stages) == len(state.query.stages):
            batches.append(_ended(state, now_s))
            if state.query.trigger_s:
                trigger_s = state.query.trigger_s
                now_s = max(now_s, (math.floor(state.began_s / trigger_s) + 1) * trigger_s)
        elif state.in_batch:
            now_s = _run_stage(state, now_s, free_s, noise)
        elif now_s >= seconds:
            continue
        else:
            now_s = _begin(state, now_s, rows_per_s, noise)
        heapq.heappush(queue, (now_s, index))
    return sorted(batches, key=lambda batch: batch.report.ended_s)


def _begin(state: _State, now_s: float, rows_per_s: float, noise: random.Random) -> float:
    """Begin a batch if there are rows; return the time of the next event."""
    query = state.query
    state.available = arrived_rows(query, now_s, rows_per_s)
    waiting = state.available - state.read
    state.rows = min(waiting, query.limit or waiting)
    if state.rows <= 0:
        return now_s + max(0.01, query.trigger_s)
    state.in_batch, state.began_s, state.stages = True, now_s, []
    state.fixed_s = _noisy(query.fixed_s, query, noise)
    cold_s = 6.0 if state.number == 0 else 0.0  # Python starts
    return now_s + cold_s + state.fixed_s + _noisy(query.driver_row_s * state.rows, query, noise)


def _run_stage(state: _State, now_s: float, free_s: list[float], noise: random.Random) -> float:
    """Place the tasks of the next stage on the slots that become free first; return the end of the stage."""
    stage = state.query.stages[len(state.stages)]
    tasks = [_noisy(seconds, state.query, noise) for seconds in _tasks(stage, state.rows)]
    ended_s = _placed(tasks, free_s, now_s) + _noisy(stage.overhead_s, state.query, noise)
    run = StageRun(tasks=len(tasks), task_s=sum(tasks), wall_s=ended_s - now_s, longest_s=max(tasks))
    state.stages.append(run)
    return ended_s


def _ended(state: _State, now_s: float) -> SimulatedBatch:
    batch = _batch(state, now_s - state.began_s)
    state.number += 1
    state.read += state.rows
    state.in_batch = False
    return batch


def arrived_rows(query: SimulatedQuery, at_s: float, rows_per_s: float) -> int:
    """Return the rows that a source has received at a time, in seconds since the start."""
    seconds = FINITE_S if query.is_finite else math.floor(at_s) if query.source == "each second" else at_s
    rows = int(seconds * rows_per_s * query.share)
    return rows // ROWS_PER_FILE * ROWS_PER_FILE if query.source == "files" else rows


def _noisy(seconds: float, query: SimulatedQuery, noise: random.Random) -> float:
    if seconds == 0 or query.noise == 0:
        return seconds
    slow = 1.6 if noise.random() < 0.01 else 1.0  # garbage collection
    return seconds * slow * max(0.3, noise.gauss(1.0, query.noise))


def _tasks(stage: SimulatedStage, rows: int) -> list[float]:
    """Return the time of each task."""
    return [stage.task_s + stage.row_s * part for part in _task_rows(stage, rows)]


def _task_rows(stage: SimulatedStage, rows: int) -> Iterator[float]:
    if stage.largest_share is None or stage.tasks == 1:
        yield from [rows / stage.tasks] * stage.tasks
        return
    yield rows * stage.largest_share
    yield from [rows * (1.0 - stage.largest_share) / (stage.tasks - 1)] * (stage.tasks - 1)


def _placed(tasks: list[float], free_s: list[float], now_s: float) -> float:
    """Return the end of the last task if each one takes the first free slot, in the given order."""
    ended_s = now_s
    for seconds in tasks:
        end_s = max(free_s[0], now_s) + seconds
        heapq.heapreplace(free_s, end_s)
        ended_s = max(ended_s, end_s)
    return ended_s


def _batch(state: _State, batch_s: float) -> SimulatedBatch:
    is_kafka = state.query.source == "kafka"
    if state.query.source == "files":  # the offsets of files count batches
        source = SourceProgress(
            description="FileStreamSource[file:/input]",
            start_offset={"logOffset": state.number - 1} if state.number else None,
            end_offset={"logOffset": state.number},
            num_input_rows=state.rows,
        )
    else:
        source = SourceProgress(
            description="KafkaV2[Subscribe[rows]]" if is_kafka else "SomeSource[]",
            start_offset={"rows": {"0": state.read}},
            end_offset={"rows": {"0": state.read + state.rows}},
            latest_offset={"rows": {"0": state.available}} if is_kafka else None,
            num_input_rows=state.rows,
        )
    milliseconds = {"triggerExecution": 1000 * batch_s, "addBatch": 1000 * (batch_s - state.fixed_s / 2)}
    report = Progress(
        batch_id=state.number,
        run_id="run",
        timestamp=datetime.fromtimestamp(EPOCH_S + state.began_s, UTC).isoformat(),
        duration_ms=milliseconds | {"walCommit": 500 * state.fixed_s},
        num_input_rows=state.rows,
        sources=(source,),
    )
    return SimulatedBatch(query=state.query, report=report, stages=tuple(state.stages))
