"""A watched program: its latency estimated from batches, its capacity and the latest recommendation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from penstock.measure.window import Latency, PipelineWindow, Window
from penstock.report.formatting import count, plural
from penstock.report.history import WindowSummary
from penstock.store import DecisionRecord, StoreReader

# Inputs of the decisions of policy mst: the estimated capacity and the ends of its interval.
_CAPACITY, _LOW, _HIGH = "capacity_rows_per_s", "capacity_low_rows_per_s", "capacity_high_rows_per_s"
_RECENT_DECISIONS = 50  # decisions of a warm-up have no inputs


class WatchedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of watching. A value is None if it is unknown."""

    latency_s: float | None  # in the latest window with batches; estimated from the batches
    input_rows_per_s: float | None  # in the latest window
    capacity_rows_per_s: float | None  # rate that the current executors sustain
    capacity_low_rows_per_s: float | None  # ends of its interval
    capacity_high_rows_per_s: float | None
    bottleneck: str | None  # the part of the program that limits the capacity
    executors: int | None
    recommended_executors: int | None  # None: the number of executors is not known, or need not change
    recommendation: str | None  # the latest decision in one sentence
    decided_at_s: float | None


def watched_summary(reader: StoreReader, windows: Sequence[WindowSummary]) -> WatchedSummary:
    run = reader.last_run()
    decisions = [decision for _, decision in reader.decisions(last=_RECENT_DECISIONS)]
    decision = decisions[-1] if decisions else None
    measured = next((each for each in reversed(decisions) if each.inputs.get(_CAPACITY) or each.inputs.get(_LOW)), None)
    inputs = {} if measured is None else measured.inputs
    plan = reader.plan()
    slots_per_executor = None if run is None else run.slots_per_executor
    return WatchedSummary(
        latency_s=next((w.latency_mean_s for w in reversed(windows) if w.latency_mean_s is not None), None),
        input_rows_per_s=windows[-1].arriving_rows_per_s if windows else None,
        capacity_rows_per_s=inputs.get(_CAPACITY),
        capacity_low_rows_per_s=inputs.get(_LOW),
        capacity_high_rows_per_s=inputs.get(_HIGH),
        bottleneck=None if measured is None else measured.binding,
        executors=_executors(None if plan is None else plan.slots, slots_per_executor),
        recommended_executors=_recommended(decision, slots_per_executor),
        recommendation=None if decision is None else decision.reason,
        decided_at_s=None if decision is None else decision.at_s,
    )


def capacity_text(watched: WatchedSummary) -> str:
    """Return the capacity as a rate, as a lower limit if only that is known, or as unknown."""
    if watched.capacity_rows_per_s is not None:
        return f"{count(watched.capacity_rows_per_s)} /s"
    low = watched.capacity_low_rows_per_s
    return "unknown" if not low else f"at least {count(low)} /s"


def capacity_note(watched: WatchedSummary) -> str:
    """Return the interval of the capacity and the executors to which it applies."""
    low, high = watched.capacity_low_rows_per_s, watched.capacity_high_rows_per_s
    parts = [f"{count(low)} to {count(high)}"] if low is not None and high is not None else []
    if watched.executors is not None:
        parts.append(f"with {plural(watched.executors, 'executor')}")
    return ", ".join(parts) or "rows that can be sustained"


def estimated_latency(window: Window) -> Latency | None:
    """Return the latency of the slowest query, estimated from its batches; None if no batch ended in the window.

    A row waits for the start of the next batch, on average half the time between two starts, and then for the end of
    its batch. Rows of a known backlog wait longer: backlog / rows per second. The time that rows spend in an unknown
    backlog is missing.
    """
    span_s = window.end_s - window.start_s
    slowest = max(
        (pipeline for pipeline in window.pipelines if pipeline.batches and pipeline.batch_s is not None and span_s > 0),
        key=lambda pipeline: _mean_latency_s(pipeline, span_s),
        default=None,
    )
    if slowest is None or slowest.batch_s is None:
        return None
    mean_s = _mean_latency_s(slowest, span_s)
    longest_s = mean_s + _interval_s(slowest, span_s) / 2  # a row that arrives when a batch has just begun
    return Latency(rows=slowest.rows_in, mean_s=mean_s, p50_s=mean_s, p95_s=longest_s, p99_s=longest_s)


def _mean_latency_s(pipeline: PipelineWindow, span_s: float) -> float:
    waiting_s = _interval_s(pipeline, span_s) / 2
    if pipeline.backlog_rows and pipeline.rows_in:
        waiting_s += pipeline.backlog_rows / pipeline.rows_in * span_s
    return waiting_s + (pipeline.batch_s or 0.0)


def _interval_s(pipeline: PipelineWindow, span_s: float) -> float:
    """Return the time between the starts of two batches, which is the window itself if a single batch ended in it."""
    batch_s = pipeline.batch_s or 0.0
    return max(batch_s, span_s / pipeline.batches if pipeline.batches > 1 else batch_s)


def _executors(slots: int | None, slots_per_executor: int | None) -> int | None:
    return None if slots is None or not slots_per_executor else math.ceil(slots / slots_per_executor)


def _recommended(decision: DecisionRecord | None, slots_per_executor: int | None) -> int | None:
    if decision is None or decision.new is None or decision.applied != "recommended":
        return None
    return _executors(decision.new.slots, slots_per_executor)
