"""The MST policy without a study before it: capacity as far as the load has shown it.

In micro-batches a batch of n rows takes D = A + C n, which the windows of a plan show for the sizes that the load
makes; a query that may take D seconds for a batch sustains (1 - A / D) / C rows/s then. Sums of n, D, n^2 and n D are
kept by executor count and query, fading, so that all there is to remember is a few numbers. Counts not yet seen go by
the nearest that was, in proportion below it and a little less than that above it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.control.decisions import Decision, Hold, Reason
from penstock.control.policies.mst import Mst, MstSettings
from penstock.control.shares import read_in, shares
from penstock.control.situation import Memory, Situation
from penstock.dataflow.dataflow import Dataflow
from penstock.measure.window import PipelineWindow, Window

_FADING = 0.97  # a window
_FORGOTTEN = 0.01  # of a batch
_DISTINCT = 0.05  # spread of batch sizes, over their mean: less shows no slope
_GAIN = 0.9  # exponent of a larger count that was never seen
_SUMS = ("w", "n", "d", "nn", "nd", "x")


@dataclass(frozen=True, slots=True, kw_only=True)
class MstSeen:
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
        memory = learned(memory, situation.shape.flow, window, now)
        running = {one.pipeline for one in window.pipelines}
        capacity = capacities(memory, self.most, batch_most_s=self.batch_most_s, running=running)
        if capacity is None:
            return Hold(reason=Reason.MISSING, why="no batch with rows has been seen yet"), memory
        settings = MstSettings(
            capacity=capacity,
            slots_each=self.slots_each,
            least=self.least,
            most=self.most,
            lead_s=self.lead_s,
            catch_up_s=self.catch_up_s,
            stable_turns=self.stable_turns,
        )
        return Mst(settings).decide(situation, memory)


def learned(memory: Memory, flow: Dataflow, window: Window, executors: int) -> dict[str, float]:
    """One window more, under so many executors."""
    found = _faded(memory, executors)
    known = shares(flow, window, read_in(flow, window)) or {}
    for pipeline in window.pipelines:
        rows, seconds = _batch(pipeline)
        share = known.get(pipeline.pipeline, 0.0)
        if rows <= 0 or seconds <= 0 or share <= 0:
            continue
        external = pipeline.rows_in / share  # not what came: a backlog grows and drains
        weight = float(pipeline.batches or 1)
        new = (weight, weight * rows, weight * seconds, weight * rows**2, weight * rows * seconds, external)
        for name, value in zip(_SUMS, new, strict=True):
            key = f"mst.{executors}.{pipeline.pipeline}.{name}"
            found[key] = found.get(key, 0.0) + value
    return found


def _faded(memory: Memory, executors: int) -> dict[str, float]:
    """Queries come and go in somebody else's program: what was not seen for long is forgotten."""
    found = dict(memory)
    for key in [key for key in memory if key.startswith(f"mst.{executors}.") and key.endswith(".w")]:
        for name in _SUMS:
            one = key[: -len("w")] + name
            found[one] = found.get(one, 0.0) * _FADING
        if found[key] < _FORGOTTEN:
            for name in _SUMS:
                del found[key[: -len("w")] + name]
    return found


def _batch(pipeline: PipelineWindow) -> tuple[float, float]:
    """Rows and seconds of a mean batch."""
    if not pipeline.batches or not pipeline.batch_s:
        return 0.0, 0.0
    return pipeline.rows_in / pipeline.batches, pipeline.batch_s


def capacities(memory: Memory, most: int, *, batch_most_s: float, running: Collection[str]) -> tuple[float, ...] | None:
    """Rows/s from outside that 1, 2, ... executors sustain; None before anything was seen of what runs now."""
    seen = _seen(memory, batch_most_s, running)
    if not seen:
        return None
    found: list[float] = []
    for m in range(1, most + 1):
        nearest = min(seen, key=lambda one: (abs(one - m), one))
        ratio = m / nearest
        rate = seen[nearest] * (ratio if ratio <= 1 else ratio**_GAIN)
        found.append(max(rate, found[-1] if found else 0.0))  # nobody takes more executors to get less
    return tuple(found)


def _seen(memory: Memory, batch_most_s: float, running: Collection[str]) -> dict[int, float]:
    """Executors -> rows/s from outside that the slowest query sustains."""
    found: dict[int, float] = {}
    for key, weight in memory.items():
        parts = key.split(".", 2)
        if len(parts) != 3 or parts[0] != "mst" or not parts[1].isdigit() or not parts[2].endswith(".w"):
            continue
        if parts[2].removesuffix(".w") not in running:
            continue
        stem = key[: -len("w")]
        sums = {name: memory.get(stem + name, 0.0) for name in _SUMS}
        if weight <= 0 or sums["n"] <= 0 or sums["x"] <= 0:
            continue
        share = sums["n"] / sums["x"]  # rows of this query for a row from outside
        rate = _rate(sums, batch_most_s) / share
        executors = int(parts[1])
        found[executors] = min(found.get(executors, rate), rate)
    return found


def _rate(sums: dict[str, float], batch_most_s: float) -> float:
    """Rows/s of one query: by the line through its batches, or by their plain ratio where they show none."""
    w, n, d = sums["w"], sums["n"] / sums["w"], sums["d"] / sums["w"]
    variance = sums["nn"] / w - n**2
    plain = n / d
    if variance <= (_DISTINCT * n) ** 2:
        return plain
    slope = (sums["nd"] / w - n * d) / variance
    base = d - slope * n
    if slope <= 0 or base < 0 or base >= batch_most_s:
        return plain
    return max(plain, (1.0 - base / batch_most_s) / slope)
