"""Calibrate the two costs of an engine that the model of pipelined fission needs (`models/pipelined_fission.py`).

A dataflow runs with 1, 2, 4, ... replicas under more rows than it can process. In each trial the slowest region needs
k / rate seconds of a replica per row. The operators explain a part of this time; the rest is the time to pass a row
and to distribute rows over replicas. On Spark it includes the fixed time of batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.control.loop import Clock
from penstock.dataflow import Dataflow, Kind, regions
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.regions import Region
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.models.fission_costs import FissionCosts
from penstock.models.pipelined_fission import CalibrationTrial, fitted_costs
from penstock.plan import Plan, default_plan
from penstock.study.mst.trial_engine import recovered, started

FreshEngine = Callable[[Plan], tuple[RunnableEngine, Clock]]  # an engine that is not started, and the clock of its time

_FIRST_RATE, _FASTER = 100.0, 3.0  # rows/s of each source, and the factor while too few rows wait
_AHEAD_WINDOWS = 2.0  # windows of work that must wait, so that the sources are not the bottleneck
_MAX_WINDOWS = 40  # until rows wait


@dataclass(frozen=True, slots=True, kw_only=True)
class FissionCalibration:
    """The calibrated costs, the trials that they explain, and the largest relative error of a predicted throughput."""

    costs: FissionCosts
    trials: tuple[CalibrationTrial, ...]
    largest_error: float


def calibrate(
    fresh: FreshEngine, flow: Dataflow, replicas: Iterable[int], *, slots: int, window_s: float
) -> FissionCalibration:
    """Measure the dataflow with these numbers of replicas, and fit the costs.

    Args:
        fresh: Creates the engine of a trial.
        flow: A dataflow whose sources accept a rate.
        replicas: Numbers of replicas; at least two different ones.
        slots: Slots of the platform.
        window_s: Length of a measurement.

    Raises:
        PenstockError: There are too few numbers of replicas, the sources are too slow, or a trial failed.
    """
    counts = sorted(set(replicas))
    if len(counts) < 2 or counts[0] < 1:
        raise PenstockError(f"replicas is {counts}; give at least two different numbers from 1 on, such as 1, 2 and 4.")
    trials = tuple(_trial(fresh, _plan(flow, count, slots), window_s) for count in counts)
    costs = fitted_costs(trials)
    errors = [
        abs(trial.replicas / (trial.work_s + costs.per_row_s(trial.replicas)) / trial.rows_per_s - 1.0)
        for trial in trials
    ]
    return FissionCalibration(costs=costs, trials=trials, largest_error=max(errors))


def _plan(flow: Dataflow, replicas: int, slots: int) -> Plan:
    counts = {
        region.name: replicas if region.replicable else 1 for region in regions(flow) if region.kind is not Kind.SOURCE
    }
    return default_plan(flow, slots=slots, replicas=counts)


def _trial(fresh: FreshEngine, plan: Plan, window_s: float) -> CalibrationTrial:
    engine, clock = fresh(plan)
    with started(engine):
        _saturate(engine, clock, window_s)
        window = _next_window(engine, clock, 2.0 * window_s)
    slowest = max(
        (region for region in regions(engine.flow) if region.kind is not Kind.SOURCE),
        key=lambda region: _busy(window, region),
    )
    first = window.operator(slowest.name)
    rate = processed_rows_per_s(first)
    if not rate or not first.rows_in:
        raise PenstockError(
            f"Region '{slowest.name}' processed no rows within {2.0 * window_s:g} s; use longer windows."
        )
    work_s = math.fsum(
        (window.operator(name).rows_in or 0) * (window.operator(name).seconds_per_row or 0.0)
        for name in slowest.operators
    )
    return CalibrationTrial(replicas=plan.replicas[slowest.name], rows_per_s=rate, work_s=work_s / first.rows_in)


def processed_rows_per_s(operator: OperatorWindow) -> float | None:
    """Return the processed rows/s, over whole batches if the engine measures their time."""
    if operator.utilisation_s:
        return (operator.rows_in or 0) / operator.utilisation_s
    return operator.processed_rows_per_s


def _busy(window: Window, region: Region) -> float:
    first = window.operator(region.name).overhead or 0.0
    return first + math.fsum(window.operator(name).utilisation or 0.0 for name in region.operators)


def _saturate(engine: RunnableEngine, clock: Clock, window_s: float) -> None:
    """Raise the rate of the sources until so many rows wait that they are not the bottleneck."""
    sources = [operator.name for operator in engine.flow.operators if operator.kind is Kind.SOURCE]
    rate = _FIRST_RATE
    for _ in range(_MAX_WINDOWS):
        for name in sources:
            engine.set_rate(name, rate)
        window = _next_window(engine, clock, window_s)
        waiting = [window.operator(name).backlog_rows or 0 for name in sources]
        processed = max(
            (operator.processed_rows_per_s or 0.0 for operator in window.operators if operator.operator not in sources),
            default=0.0,
        )
        if processed > 0 and min(waiting) > _AHEAD_WINDOWS * window_s * processed:
            return
        if min(waiting) < 0.5 * window_s * rate:  # most rows are processed as they arrive
            rate *= _FASTER
    raise PenstockError(
        f"The sources did not emit more rows than the dataflow processes within {_MAX_WINDOWS} windows; use faster "
        "sources, or operators with more work."
    )


def _next_window(engine: RunnableEngine, clock: Clock, seconds: float) -> Window:
    engine.observe()
    while True:
        clock.sleep(seconds)
        if not recovered(engine, "while it was calibrated"):
            return engine.observe()
        engine.observe()
