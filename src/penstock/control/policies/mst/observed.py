"""The MST policy without a study before it: capacity as far as the load has shown it.

In micro-batches a batch of n rows takes D = A + C n, which the windows of a plan show for the sizes that the load
makes; a query that may take D_max seconds for a batch sustains (1 - A / D_max) / C rows/s then. Under a steady load all
batches are alike and show no line. Then A is what the tasks' own time leaves of a batch, or half of it where nobody
knows that time: batches that follow each other at once are as long as what arrives makes them, so n / D is what comes
and not what could. All queries together do no more than their tasks leave slots for. Row by row there is no A, n is
what the slowest operator processed and D the time that it worked: what has come may still be waiting before it.

Sums are kept by executor count and query, fading, so that all there is to remember is a few numbers. Counts not yet
seen go by the nearest that was: what of C is the tasks' own time in proportion below it and a little less than that
above it, and the driver's as it is.
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

_FADING = 0.97  # a window
_FORGOTTEN = 0.01  # of a batch
_DISTINCT = 0.05  # spread of batch sizes, over their mean: less shows no slope
_GAIN = 0.9  # exponent of a larger count that was never seen
_MOST_FIXED = 0.75  # of a batch: no more than four times what was seen is believed of it
_CARE = 0.05  # of what fewer executors are taken to sustain: the windows seen are no nearer to it than that
_SUM = re.compile(r"mst\.\d+\.")
_SINCE = "mst.since."
_SIZE = "mst.slots_each"
_SUMS = ("w", "n", "d", "nn", "nd", "x", "v", "p")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMst:
    slots_each: int
    least: int = 1
    most: int
    lead_s: float = 30.0
    catch_up_s: float = 120.0
    stable_turns: int = 5
    batch_most_s: float = 10.0
    name: str = field(default="mst", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        window = situation.latest
        if window is None or situation.window is None:
            return Hold(reason=Reason.MISSING, why="nothing has been measured under this plan yet"), memory
        now = max(1, situation.plan.slots // self.slots_each)
        memory = _of_size(memory, self.slots_each)
        memory = with_window(memory, situation.topology.flow, window, now, slots=now * self.slots_each)
        running = {one.pipeline for one in window.pipelines}
        batch_most_s = self.batch_most_s if situation.micro_batch else None
        capacity = capacities(memory, self.most, batch_most_s=batch_most_s, running=running)
        if capacity is None:
            return Hold(reason=Reason.MISSING, why="no batch with rows has been seen yet"), memory
        # A load at the very edge of what fewer sustain would take them now and give them back with the next window.
        careful = (rate * (1.0 - _CARE) if m < now else rate for m, rate in enumerate(capacity, start=1))
        settings = MstSettings(
            capacity=tuple(careful),
            slots_each=self.slots_each,
            least=self.least,
            most=self.most,
            lead_s=self.lead_s,
            catch_up_s=self.catch_up_s,
            stable_turns=self.stable_turns,
        )
        return Mst(settings).decide(situation, memory)


def with_window(memory: Memory, flow: Dataflow, window: Window, executors: int, *, slots: int) -> dict[str, float]:
    """One window more, under so many executors."""
    found = _faded(memory, executors)
    read = rows_read(flow, window)
    known, coming_by = pipeline_visits(flow, window, read) or {}, operator_visits(flow, window, read) or {}
    since = _read_since(memory, window, read)
    for key in [key for key in found if key.startswith(_SINCE)]:  # of queries that have ended, too
        del found[key]
    for pipeline in window.pipelines:
        seen = _batches(pipeline, known.get(pipeline.pipeline, 0.0))
        if pipeline.pipeline in since:
            began, rows = f"{_SINCE}{pipeline.pipeline}", since[pipeline.pipeline]
            if seen is not None:
                found[began] = 0.0
                seen = None if rows is None else seen._replace(from_outside=rows)
            elif rows is not None:
                found[began] = rows
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
            new |= {"v": seen.batches, "p": seen.work_s / slots}  # seconds of all slots
        for name, value in new.items():
            key = f"mst.{executors}.{pipeline.pipeline}.{name}"
            found[key] = found.get(key, 0.0) + value
    return found


def _read_since(memory: Memory, window: Window, read: Mapping[str, float]) -> dict[str, float | None]:
    """Of queries that read one source, as those of a black box do: rows of all since the last window with its batches.

    With a trigger of its own, what a query reads in a window came in many. None before its first batch.
    """
    found: dict[str, float | None] = {}
    for one in window.pipelines:
        if any(other is not one and {*one.operators} & {*other.operators} & {*read} for other in window.pipelines):
            before = memory.get(f"{_SINCE}{one.pipeline}")
            found[one.pipeline] = None if before is None else before + sum(read.values())
    return found


def _of_size(memory: Memory, slots_each: int) -> dict[str, float]:
    """What executors of another size did says nothing of these, which a program may have been started again with."""
    alike = memory.get(_SIZE, slots_each) == slots_each
    return {key: value for key, value in memory.items() if alike or not _SUM.match(key)} | {_SIZE: float(slots_each)}


def _faded(memory: Memory, executors: int) -> dict[str, float]:
    """Queries come and go in somebody else's program: what was not seen for long is forgotten."""
    found = dict(memory)
    for key in [key for key in memory if key.startswith(f"mst.{executors}.") and key.endswith(".w")]:
        for name in _SUMS:
            one = key[: -len("w")] + name
            found[one] = found.get(one, 0.0) * _FADING
        if found[key] < _FORGOTTEN:
            for name in _SUMS:
                found.pop(key[: -len("w")] + name, None)
    return found


class _Done(NamedTuple):
    """What a query did in a window, and not what came: a backlog grows and drains."""

    batches: float
    rows: float  # of a mean batch
    seconds: float  # of a mean batch
    from_outside: float  # rows, of all batches
    work_s: float | None = None  # of all tasks, which share the slots


def _batches(pipeline: PipelineWindow, share: float) -> _Done | None:
    if not pipeline.batches or not pipeline.batch_s or not pipeline.rows_in or share <= 0:
        return None
    return _Done(
        batches=float(pipeline.batches),
        rows=pipeline.rows_in / pipeline.batches,
        seconds=pipeline.batch_s,
        from_outside=pipeline.rows_in / share,
        work_s=pipeline.busy_s,
    )


def _slowest(pipeline: PipelineWindow, window: Window, coming_by: Mapping[str, float]) -> _Done | None:
    """Row by row the window is one batch, of the operator that sustains the least.

    Its rows are those that it processed: what a source passes on waits in a queue before an operator that is behind.
    """
    found: list[_Done] = []
    for one in window.operators:
        visited = coming_by.get(one.operator, 0.0)
        if one.operator in pipeline.operators and one.rows_in and one.utilisation and visited > 0:
            rows = one.rows_in / visited
            worked_s = one.utilisation * (window.end_s - window.start_s)
            found.append(_Done(batches=1.0, rows=rows, seconds=worked_s, from_outside=rows))
    return min(found, key=lambda one: one.rows / one.seconds, default=None)


def capacities(
    memory: Memory, most: int, *, batch_most_s: float | None, running: Collection[str]
) -> tuple[float, ...] | None:
    """Rows/s from outside that 1, 2, ... executors sustain; None before anything was seen of what runs now.

    `batch_most_s` is None where rows go one by one.
    """
    queries = _seen(memory, running)
    if not queries:
        return None
    seen = {count: _sustained(there, batch_most_s) for count, there in queries.items()}
    found: list[float] = []
    for m in range(1, most + 1):
        nearest = min(seen, key=lambda one: (abs(one - m), one))
        ratio = m / nearest
        rate = _sustained(queries[nearest], batch_most_s, ratio if ratio <= 1 else ratio**_GAIN)
        if m not in seen:  # no more than a larger count was seen to sustain
            rate = min(rate, next((seen[more] for more in sorted(seen) if more > m), rate))
        found.append(max(rate, found[-1] if found else 0.0))  # nobody takes more executors to get less
    return tuple(found)


def _seen(memory: Memory, running: Collection[str]) -> dict[int, list[dict[str, float]]]:
    """Executors -> the sums of each query."""
    found: dict[int, list[dict[str, float]]] = {}
    for key, weight in memory.items():
        parts = key.split(".", 2)
        if len(parts) != 3 or parts[0] != "mst" or not parts[1].isdigit() or not parts[2].endswith(".w"):
            continue
        if parts[2].removesuffix(".w") not in running:
            continue
        sums = {name: memory.get(key[: -len("w")] + name, 0.0) for name in _SUMS}
        if weight > 0 and sums["n"] > 0 and sums["x"] > 0:
            found.setdefault(int(parts[1]), []).append(sums)
    return found


def _sustained(queries: list[dict[str, float]], batch_most_s: float | None, gain: float = 1.0) -> float:
    """Rows/s from outside that the slowest query sustains, and all of them together, where tasks go so much faster."""
    rate = min(_rate(one, batch_most_s, gain) * one["x"] / one["n"] for one in queries)
    worked = sum(one["p"] / one["x"] for one in queries)  # seconds of all slots for a row from outside
    return min(rate, gain / worked) if worked else rate


def _rate(sums: dict[str, float], batch_most_s: float | None, gain: float) -> float:
    """Rows/s of one query."""
    n, d = sums["n"] / sums["w"], sums["d"] / sums["w"]
    if batch_most_s is None:
        return gain * n / d
    slope, base = _line(sums) or _line_of_work(sums)
    # What is not the tasks' own time is the driver's, which more executors leave as it is.
    tasks = min(slope, sums["p"] / sums["v"] / n) if sums["v"] else slope
    saved = tasks * (1.0 - 1.0 / gain)
    return max(n / (d - n * saved), (1.0 - base / batch_most_s) / (slope - saved))


def _line(sums: dict[str, float]) -> tuple[float, float] | None:
    """C and A by the batches themselves, where they differ."""
    w, n, d = sums["w"], sums["n"] / sums["w"], sums["d"] / sums["w"]
    variance = sums["nn"] / w - n**2
    if variance <= (_DISTINCT * n) ** 2:
        return None
    slope = (sums["nd"] / w - n * d) / variance
    base = d - slope * n
    return (slope, base) if slope > 0 and base >= 0 else None


def _line_of_work(sums: dict[str, float]) -> tuple[float, float]:
    """C and A by what of a batch was work."""
    n, d = sums["n"] / sums["w"], sums["d"] / sums["w"]
    work = sums["p"] / sums["v"] if sums["v"] else d / 2
    base = min(_MOST_FIXED * d, max(0.0, d - work))
    return (d - base) / n, base
