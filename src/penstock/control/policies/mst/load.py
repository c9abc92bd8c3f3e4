"""The load that MST plans for: arrivals, backlog, and a forecast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.policy import Hold, Memory, Reason, Situation
from penstock.control.visit_ratios import external_backlog, operator_visits, pipeline_visits, rows_read
from penstock.dataflow.dataflow import Dataflow
from penstock.measure.window import Window

LEVEL, SLOPE, AT_S = "mst.level", "mst.slope", "mst.at_s"
GAP_S = 120.0  # a longer time between turns restarts the forecast
_LEVEL_OVER, _SLOPE_OVER = 0.25, 0.5  # time constants of level and slope, as shares of the forecast time


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLoad:
    at_s: float
    arriving: float  # rows/s
    latest: float  # rows/s in the latest window
    earlier: float  # rows/s in the windows before it
    worked: float | None  # external rows/s that were processed in all windows of this plan; None: unknown
    backlog: float  # rows that wait at sources and cuts, in external rows
    within_a_batch: bool  # no batch has ended: all rows that arrived since its start wait
    ordinary: float  # rows that arrive during a batch and one second: they always wait for the next batch


def input_load(situation: Situation) -> InputLoad | Hold:
    measured = situation.measured()
    if isinstance(measured, Hold):
        return measured
    window, latest = measured
    arriving = window.external_rows_per_s
    if arriving is None:
        return Hold(reason_code=Reason.MISSING, reason="The input rate is not measured yet.")
    flow = situation.topology.flow
    if any(
        operator.backlog_rows is None
        for operator in latest.operators
        if operator.operator in situation.topology.sources
    ):
        return Hold(reason_code=Reason.MISSING, reason="The backlog of the sources is not measured yet.")
    read = rows_read(flow, window)
    known = pipeline_visits(flow, latest, read) or {}
    ordinary = arriving
    coming = {pipeline.pipeline: pipeline for pipeline in window.pipelines}
    for pipeline in latest.pipelines:
        share = known.get(pipeline.pipeline) or 1.0
        if (mean := coming.get(pipeline.pipeline)) is not None:
            taken = mean.rows_in / share / max(window.end_s - window.start_s, 1e-3)
            ordinary += (mean.batch_s or 0.0) * min(arriving, taken)
    came = arriving if latest.external_rows_per_s is None else latest.external_rows_per_s
    span_s, all_s = latest.end_s - latest.start_s, window.end_s - window.start_s
    return InputLoad(
        at_s=latest.end_s,
        arriving=arriving,
        latest=came,
        earlier=(arriving * all_s - came * span_s) / (all_s - span_s) if all_s > span_s else arriving,
        worked=_processed_per_s(flow, window, read),
        backlog=external_backlog(flow, latest, read),
        within_a_batch=situation.micro_batch
        and any(pipeline.backlog_rows and not pipeline.batches for pipeline in latest.pipelines),
        ordinary=ordinary,
    )


def _processed_per_s(flow: Dataflow, window: Window, read: Mapping[str, float]) -> float | None:
    """Return the external rows/s that the slowest query or operator processed.

    Batches are divided by their own duration, because a window may end within a batch.
    """
    by_query, by_operator = pipeline_visits(flow, window, read), operator_visits(flow, window, read)
    if by_query is None or by_operator is None:
        return None
    span_s = max(window.end_s - window.start_s, 1e-3)
    rates_per_s = []
    for pipeline in window.pipelines:
        share = by_query.get(pipeline.pipeline, 0.0)
        if pipeline.batches and pipeline.batch_s and share > 0:
            rates_per_s.append(pipeline.rows_in / (pipeline.batches * pipeline.batch_s) / share)
    if not rates_per_s:
        rows = {operator.operator: operator.rows_in for operator in window.operators}
        rates_per_s = [(rows.get(name) or 0) / visited / span_s for name, visited in by_operator.items() if visited > 0]
    return min(rates_per_s, default=None)


def with_forecast(memory: Memory, rate: float, now_s: float, lead_s: float) -> dict[str, float]:
    """Update level and slope by Holt's equations, for turns at irregular times; a long gap resets the slope.

    A new value is weighted by the time since the previous one, so that the forecast does not depend on the length of a
    window. Otherwise the slope of a two-second window would be extrapolated over thirty seconds.
    """
    if LEVEL not in memory or now_s - memory[AT_S] > max(GAP_S, 4 * lead_s):
        return {**memory, LEVEL: rate, SLOPE: 0.0, AT_S: now_s}
    span_s, lead_s = max(now_s - memory[AT_S], 1e-3), max(lead_s, 1e-3)
    new, newly = (1.0 - math.exp(-span_s / (over * lead_s)) for over in (_LEVEL_OVER, _SLOPE_OVER))
    level = max(0.0, new * rate + (1.0 - new) * (memory[LEVEL] + memory[SLOPE] * min(span_s, lead_s)))
    slope = newly * (level - memory[LEVEL]) / span_s + (1.0 - newly) * memory[SLOPE]
    return {**memory, LEVEL: level, SLOPE: slope, AT_S: now_s}
