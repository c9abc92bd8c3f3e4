"""MST without a study: capacities are estimated from the windows of the run itself.

Micro-batch: a batch of n rows takes D = A + C n. If batches may take D_max seconds, a query sustains (1 - A / D_max) /
C rows/s. A comes from the window if the engine separates it from the cost of rows, as `watch` does. Otherwise the line
is fitted to the batches of a plan. Under a steady load all batches have the same size and show no line. A is then the
part of a batch that is not task time, or half of the batch if the task time is unknown. (n / D itself is the arrival
rate and not the capacity: consecutive batches are as long as the arrivals make them.) All queries together cannot
exceed the slots.

Row by row: A is 0, n is the number of rows that the slowest operator processed, and D the time that it was busy.

Exponentially decaying sums are kept per executor count and query. A count that was never used is extrapolated from the
nearest one: task time scales in proportion to fewer executors, and slightly less for more; driver time stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.control.policies.mst.policy import Mst, MstSettings
from penstock.control.policy import Decision, Hold, Memory, Reason, Situation
from penstock.control.visit_ratios import operator_visits, pipeline_visits, rows_read
from penstock.dataflow.dataflow import Dataflow
from penstock.measure.window import PipelineWindow, Window

_DECAY = 0.97  # per window
_FORGOTTEN = 0.01  # weight, in batches, below which sums are dropped
_DISTINCT = 0.05  # standard deviation of batch sizes / mean, below which no slope can be fitted
_GAIN = 0.9  # exponent of the speed-up for a larger count that was never used
_MOST_FIXED = 0.75  # largest share of a batch that counts as fixed: at most four times the measured rate is assumed
_CARE = 0.05  # reduction of the capacity of fewer executors, for the error of the estimate
_SUM = re.compile(r"mst\.\d+\.")
_SINCE = "mst.since."
_SIZE = "mst.slots_per_executor"
_SUMS = ("w", "n", "d", "nn", "nd", "x", "v", "p", "u", "a")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMst:
    slots_per_executor: int
    min_executors: int = 1
    max_executors: int
    lead_s: float = 30.0
    catch_up_s: float = 120.0
    stable_turns: int = 5
    batch_most_s: float = 10.0
    target_s: float | None = None
    quantile: float | None = None
    name: str = field(default="mst", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        measured = situation.measured()
        if isinstance(measured, Hold):  # nothing is learned from a stale window
            return measured, memory
        _, window = measured
        now = max(1, situation.plan.slots // self.slots_per_executor)
        memory = _of_size(memory, self.slots_per_executor)
        memory = with_window(memory, situation.topology.flow, window, now, slots=now * self.slots_per_executor)
        running = {pipeline.pipeline for pipeline in window.pipelines}
        batch_most_s = self.batch_most_s if situation.micro_batch else None
        capacity = capacities(memory, self.max_executors, batch_most_s=batch_most_s, running=running)
        if capacity is None:
            return Hold(reason_code=Reason.MISSING, reason="No batch with rows has been measured yet."), memory
        # Otherwise a load close to the capacity of fewer executors would release and add one in turn.
        careful = (rate * (1.0 - _CARE) if m < now else rate for m, rate in enumerate(capacity, start=1))
        settings = MstSettings(
            capacity=tuple(careful),
            slots_per_executor=self.slots_per_executor,
            min_executors=self.min_executors,
            max_executors=self.max_executors,
            lead_s=self.lead_s,
            catch_up_s=self.catch_up_s,
            stable_turns=self.stable_turns,
            target_s=self.target_s,
            quantile=self.quantile,
        )
        return Mst(settings).decide(situation, memory)


def with_window(memory: Memory, flow: Dataflow, window: Window, executors: int, *, slots: int) -> dict[str, float]:
    """Return the memory with the sums of one more window under this number of executors."""
    updated = _decayed(memory, executors)
    read = rows_read(flow, window)
    known, coming_by = pipeline_visits(flow, window, read) or {}, operator_visits(flow, window, read) or {}
    since = _read_since(memory, window, read)
    for key in [key for key in updated if key.startswith(_SINCE)]:  # including those of queries that have ended
        del updated[key]
    for pipeline in window.pipelines:
        seen = _batches(pipeline, known.get(pipeline.pipeline, 0.0))
        if pipeline.pipeline in since:
            began, rows = f"{_SINCE}{pipeline.pipeline}", since[pipeline.pipeline]
            if seen is not None:
                updated[began] = 0.0
                seen = None if rows is None else seen._replace(from_outside=rows)
            elif rows is not None:
                updated[began] = rows
        if (seen := seen or _slowest(pipeline, window, coming_by)) is None:
            continue
        new = {
            "w": seen.batches,
            "n": seen.batches * seen.rows,
            "d": seen.batches * seen.seconds,
            "nn": seen.batches * seen.rows**2,
            "nd": seen.batches * seen.rows * seen.seconds,
            "x": seen.from_outside,
        }
        if seen.work_s is not None:
            new |= {"v": seen.batches, "p": seen.work_s / slots}  # task seconds / slots
        if seen.fixed_s is not None:
            new |= {"u": seen.batches, "a": seen.batches * min(seen.fixed_s, seen.seconds)}
        for name, value in new.items():
            key = f"mst.{executors}.{pipeline.pipeline}.{name}"
            updated[key] = updated.get(key, 0.0) + value
    return updated


def _read_since(memory: Memory, window: Window, read: Mapping[str, float]) -> dict[str, float | None]:
    """Return, for queries that share a source, the rows of all of them since the query's last window with batches.

    Queries of a watched program have their own triggers; the rows that a query
    reads in one window may have arrived during several windows.
    None before the first batch of a query.
    """
    rows_read: dict[str, float | None] = {}
    for pipeline in window.pipelines:
        if any(
            other is not pipeline and {*pipeline.operators} & {*other.operators} & {*read} for other in window.pipelines
        ):
            before = memory.get(f"{_SINCE}{pipeline.pipeline}")
            rows_read[pipeline.pipeline] = None if before is None else before + sum(read.values())
    return rows_read


def _of_size(memory: Memory, slots_per_executor: int) -> dict[str, float]:
    """Drop the sums of executors of another size; a program may be restarted with another size."""
    alike = memory.get(_SIZE, slots_per_executor) == slots_per_executor
    return {key: value for key, value in memory.items() if alike or not _SUM.match(key)} | {
        _SIZE: float(slots_per_executor)
    }


def _decayed(memory: Memory, executors: int) -> dict[str, float]:
    """Decay all sums of this executor count, and drop those of queries that have not run for a long time."""
    decayed = dict(memory)
    for key in [key for key in memory if key.startswith(f"mst.{executors}.") and key.endswith(".w")]:
        for name in _SUMS:
            field = key[: -len("w")] + name
            decayed[field] = decayed.get(field, 0.0) * _DECAY
        if decayed[key] < _FORGOTTEN:
            for name in _SUMS:
                decayed.pop(key[: -len("w")] + name, None)
    return decayed


class _Done(NamedTuple):
    """The work that a query did in a window."""

    batches: float
    rows: float  # mean batch
    seconds: float  # mean batch
    from_outside: float  # external rows of all batches
    work_s: float | None = None  # task time of all batches
    fixed_s: float | None = None  # mean batch; None: not known


def _batches(pipeline: PipelineWindow, share: float) -> _Done | None:
    if not pipeline.batches or not pipeline.batch_s or not pipeline.rows_in or share <= 0:
        return None
    return _Done(
        batches=float(pipeline.batches),
        rows=pipeline.rows_in / pipeline.batches,
        seconds=pipeline.batch_s,
        from_outside=pipeline.rows_in / share,
        work_s=pipeline.busy_s,
        fixed_s=None if pipeline.fixed_s is None else pipeline.fixed_s.value,
    )


def _slowest(pipeline: PipelineWindow, window: Window, coming_by: Mapping[str, float]) -> _Done | None:
    """Return the window of the slowest operator as one batch, for engines that work row by row.

    Its rows are those that it processed. Rows that a source has passed on may wait in front of a slow operator.
    """
    done: list[_Done] = []
    for operator in window.operators:
        visited = coming_by.get(operator.operator, 0.0)
        if operator.operator in pipeline.operators and operator.rows_in and operator.utilisation and visited > 0:
            rows = operator.rows_in / visited
            worked_s = operator.utilisation * (window.end_s - window.start_s)
            done.append(_Done(batches=1.0, rows=rows, seconds=worked_s, from_outside=rows))
    return min(done, key=lambda work: work.rows / work.seconds, default=None)


def capacities(
    memory: Memory, max_executors: int, *, batch_most_s: float | None, running: Collection[str]
) -> tuple[float, ...] | None:
    """Return the external rows/s that 1, 2, ... executors sustain; None before the running queries were measured.

    `batch_most_s` is None for engines that work row by row.
    """
    queries = _seen(memory, running)
    if not queries:
        return None
    seen = {count: _sustained(there, batch_most_s) for count, there in queries.items()}
    rates: list[float] = []
    for m in range(1, max_executors + 1):
        nearest = min(seen, key=lambda executors: (abs(executors - m), executors))
        ratio = m / nearest
        rate = _sustained(queries[nearest], batch_most_s, ratio if ratio <= 1 else ratio**_GAIN)
        if m not in seen:  # at most the measured capacity of a larger count
            rate = min(rate, next((seen[more] for more in sorted(seen) if more > m), rate))
        rates.append(max(rate, rates[-1] if rates else 0.0))  # the capacity never decreases
    return tuple(rates)


def _seen(memory: Memory, running: Collection[str]) -> dict[int, list[dict[str, float]]]:
    """Return the sums of each running query by number of executors."""
    sums_by_executors: dict[int, list[dict[str, float]]] = {}
    for key, weight in memory.items():
        parts = key.split(".", 2)
        if len(parts) != 3 or parts[0] != "mst" or not parts[1].isdigit() or not parts[2].endswith(".w"):
            continue
        if parts[2].removesuffix(".w") not in running:
            continue
        sums = {name: memory.get(key[: -len("w")] + name, 0.0) for name in _SUMS}
        if weight > 0 and sums["n"] > 0 and sums["x"] > 0:
            sums_by_executors.setdefault(int(parts[1]), []).append(sums)
    return sums_by_executors


def _sustained(queries: list[dict[str, float]], batch_most_s: float | None, gain: float = 1.0) -> float:
    """Return the external rows/s that all queries sustain if their tasks become `gain` times faster."""
    rate = min(_rate(query, batch_most_s, gain) * query["x"] / query["n"] for query in queries)
    worked = sum(_row_work(query) / query["x"] for query in queries)  # task seconds / slots for a row from outside
    return min(rate, gain / worked) if worked else rate


def _row_work(sums: dict[str, float]) -> float:
    """Return the task seconds / slots of all rows, without the fixed part of each batch if that is known."""
    line = _measured_line(sums)
    return sums["p"] if line is None else min(sums["p"], line[0] * sums["n"])


def _rate(sums: dict[str, float], batch_most_s: float | None, gain: float) -> float:
    """Return the rows/s of one query."""
    n, d = sums["n"] / sums["w"], sums["d"] / sums["w"]
    if batch_most_s is None:
        return gain * n / d
    slope, base = _measured_line(sums) or _line(sums) or _line_of_work(sums)
    # The rest is driver time, which does not depend on the number of executors.
    tasks = min(slope, sums["p"] / sums["v"] / n) if sums["v"] else slope
    saved = tasks * (1.0 - 1.0 / gain)
    return max(n / (d - n * saved), (1.0 - base / batch_most_s) / (slope - saved))


def _measured_line(sums: dict[str, float]) -> tuple[float, float] | None:
    """Return C and A if the engine measured A, or None."""
    if not sums["u"]:
        return None
    n, d, base = sums["n"] / sums["w"], sums["d"] / sums["w"], sums["a"] / sums["u"]
    return ((d - base) / n, base) if base < d else None


def _line(sums: dict[str, float]) -> tuple[float, float] | None:
    """Return C and A by regression of batch time on rows, or None if the batch sizes do not differ enough."""
    w, n, d = sums["w"], sums["n"] / sums["w"], sums["d"] / sums["w"]
    variance = sums["nn"] / w - n**2
    if variance <= (_DISTINCT * n) ** 2:
        return None
    slope = (sums["nd"] / w - n * d) / variance
    base = d - slope * n
    return (slope, base) if slope > 0 and base >= 0 else None


def _line_of_work(sums: dict[str, float]) -> tuple[float, float]:
    """Return C and A from the task time of the batches."""
    n, d = sums["n"] / sums["w"], sums["d"] / sums["w"]
    work = sums["p"] / sums["v"] if sums["v"] else d / 2
    base = min(_MOST_FIXED * d, max(0.0, d - work))
    return (d - base) / n, base
