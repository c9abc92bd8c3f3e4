"""A small discrete simulation of micro-batch programs with known costs, independent of the estimator under test.

A program has one or more queries. A batch reads the rows that have arrived (or at most `limit`), runs its stages one
after another on the slots, and takes a fixed time and a time of the driver. The tasks of a stage are placed on the
slots greedily. Queries that run at the same time share the slots. The simulation yields the same reports as Spark:
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
from penstock.models.microbatch.capacity import StageRun

EPOCH_S = 1_700_000_000.0
Source = Literal["continuous", "each second", "kafka"]


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
            return rows / max(query.trigger_s, sum(_batch_s(query, rows, slots, None)[0]))
        low, high = 0.0, slots / sum(query.share * sum(stage.row_s for stage in query.stages) for query in self.queries)
        for _ in range(8):
            middle = (low + high) / 2
            low, high = (middle, high) if self._is_stable(middle, executors) else (low, middle)
        return low

    def _is_stable(self, rows_per_s: float, executors: int) -> bool:
        quiet = replace(self, queries=tuple(replace(query, noise=0.0) for query in self.queries))
        batches = simulate_batches(quiet, rows_per_s=rows_per_s, executors=executors, seconds=400.0, seed=0)
        longest = [
            max(batch.report.batch_s for batch in batches if batch.query.name == query.name and is_late(batch))
            for query in quiet.queries
            for is_late in (lambda batch: batch.report.ended_s > EPOCH_S + 200.0,)
        ]
        return max(longest) < 20.0


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
    free_s: float = 0.0  # end of the last batch
    scheduled_s: float = 0.0
    busy_until_s: float = field(default=0.0)


def simulate_batches(
    program: SimulatedProgram, *, rows_per_s: float, executors: int, seconds: float, seed: int
) -> list[SimulatedBatch]:
    """Return the batches in the order of their ends."""
    noise = random.Random(seed)
    states = [_State(query) for query in program.queries]
    slots = executors * program.slots_per_executor
    batches: list[SimulatedBatch] = []
    queue = [(0.0, index) for index in range(len(states))]
    heapq.heapify(queue)
    while queue:
        now_s, index = heapq.heappop(queue)
        if now_s >= seconds:
            continue
        state = states[index]
        query = state.query
        available = _arrived(query, now_s, rows_per_s) - state.read
        rows = min(available, query.limit or available)
        if rows <= 0:
            heapq.heappush(queue, (now_s + max(0.01, query.trigger_s), index))
            continue
        at_once = 1 + sum(other.busy_until_s > now_s for other in states if other is not state)
        parts, stages = _batch_s(query, rows, max(1, slots // at_once), noise)
        cold_s = 6.0 if state.number == 0 else 0.0  # Python starts
        batch_s = sum(parts) + cold_s
        state.busy_until_s = now_s + batch_s
        batches.append(_batch(state, now_s, batch_s, parts[0], rows, available, stages))
        state.number += 1
        state.read += rows
        next_s = now_s + batch_s
        if query.trigger_s:
            next_s = max(next_s, (math.floor(now_s / query.trigger_s) + 1) * query.trigger_s)
        heapq.heappush(queue, (next_s, index))
    return sorted(batches, key=lambda batch: batch.report.ended_s)


def _arrived(query: SimulatedQuery, at_s: float, rows_per_s: float) -> int:
    seconds = math.floor(at_s) if query.source == "each second" else at_s
    return int(seconds * rows_per_s * query.share)


def _batch_s(
    query: SimulatedQuery, rows: int, slots: int, noise: random.Random | None
) -> tuple[list[float], tuple[StageRun, ...]]:
    """Return the times of the fixed part, of the driver and of each stage, and the stages."""

    def noisy(seconds: float) -> float:
        if noise is None or seconds == 0:
            return seconds
        slow = 1.6 if noise.random() < 0.01 else 1.0  # garbage collection
        return seconds * slow * max(0.3, noise.gauss(1.0, query.noise))

    parts, runs = [noisy(query.fixed_s), noisy(query.driver_row_s * rows)], []
    for stage in query.stages:
        tasks = [noisy(stage.task_s + stage.row_s * part) for part in _task_rows(stage, rows)]
        wall_s = _placed_s(tasks, slots) + noisy(stage.overhead_s)
        parts.append(wall_s)
        runs.append(StageRun(tasks=len(tasks), task_s=sum(tasks), wall_s=wall_s, longest_s=max(tasks)))
    return parts, tuple(runs)


def _task_rows(stage: SimulatedStage, rows: int) -> Iterator[float]:
    if stage.largest_share is None or stage.tasks == 1:
        yield from [rows / stage.tasks] * stage.tasks
        return
    yield rows * stage.largest_share
    yield from [rows * (1.0 - stage.largest_share) / (stage.tasks - 1)] * (stage.tasks - 1)


def _placed_s(tasks: list[float], slots: int) -> float:
    """Return the end of the last task if each one takes the first free slot, in the given order."""
    free = [0.0] * slots
    for seconds in tasks:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def _batch(
    state: _State,
    began_s: float,
    batch_s: float,
    fixed_s: float,
    rows: int,
    available: int,
    stages: tuple[StageRun, ...],
) -> SimulatedBatch:
    is_kafka = state.query.source == "kafka"
    source = SourceProgress(
        description="KafkaV2[Subscribe[rows]]" if is_kafka else "SomeSource[]",
        start_offset={"rows": {"0": state.read}},
        end_offset={"rows": {"0": state.read + rows}},
        latest_offset={"rows": {"0": state.read + available}} if is_kafka else None,
        num_input_rows=rows,
    )
    milliseconds = {"triggerExecution": 1000 * batch_s, "addBatch": 1000 * (batch_s - fixed_s / 2)}
    report = Progress(
        batch_id=state.number,
        run_id="run",
        timestamp=datetime.fromtimestamp(EPOCH_S + began_s, UTC).isoformat(),
        duration_ms=milliseconds | {"walCommit": 500 * fixed_s},
        num_input_rows=rows,
        sources=(source,),
    )
    return SimulatedBatch(query=state.query, report=report, stages=stages)
