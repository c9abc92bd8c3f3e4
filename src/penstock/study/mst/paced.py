"""Measure MST by the second definition: the highest paced rate at which the latency does not keep growing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from penstock.control.loop import Clock
from penstock.dataflow.dataflow import Dataflow
from penstock.engines.ports import RunnableEngine
from penstock.measure.stationarity import latency_grows
from penstock.measure.window import Window
from penstock.study.mst.samples import Measured
from penstock.study.mst.throughput import mix, sustained
from penstock.study.mst.trial_engine import recovered, started

_MAX_RATES = 20  # rates to try if all are sustained
_SHORTFALL = 0.05  # relative shortfall of the throughput that is more than noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    window_s: float = 5.0
    warm_up: int = 3  # windows of each rate that do not count
    windows: int = 10  # windows of each rate that count
    within: float = 0.05  # relative precision of the result
    around: float = 0.5  # first interval around the guess, as a share


def measure_paced(
    fresh: Callable[[], RunnableEngine], guess_per_s: float, settings: Bisection, clock: Clock
) -> Measured:
    """Find the highest sustained rate by bisection. Each rate gets a new engine, so that no backlog is left over."""
    low, high = guess_per_s * (1.0 - settings.around), guess_per_s * (1.0 + settings.around)
    tried: list[float] = []
    kept_up = False
    too_much = False
    while high - low > settings.within * high:
        rate = (low + high) / 2.0
        tried.append(rate)
        if keeps_up(fresh, rate, settings, clock):
            low, kept_up = rate, True
        else:
            high, too_much = rate, True
        if kept_up and not too_much and high - low <= settings.within * high:  # the guess was too low
            low, high = high, 2.0 * high
            if len(tried) > _MAX_RATES:
                reason = f"{rate:.4g} rows/s are sustained; higher rates were not tried"
                return Measured(rows_per_s=rate, converged=False, samples=tuple(tried), reason=reason)
    if not kept_up:
        reason = f"no rate above {guess_per_s * (1.0 - settings.around):.4g} rows/s was sustained"
        return Measured(rows_per_s=None, converged=False, samples=tuple(tried), reason=reason)
    return Measured(rows_per_s=(low + high) / 2.0, converged=True, samples=tuple(tried))


def keeps_up(fresh: Callable[[], RunnableEngine], rows_per_s: float, settings: Bisection, clock: Clock) -> bool:
    with started(fresh()) as engine:
        for name, part in mix(engine.flow).items():
            engine.set_rate(name, rows_per_s * part)
        windows = []
        for _ in range(settings.warm_up + settings.windows):
            clock.sleep(settings.window_s)
            recovered(engine, f"at {rows_per_s:.4g} rows/s")
            windows.append(engine.observe())
        counted = windows[settings.warm_up :]
        behind_s = [_behind_s(window, rows_per_s) for window in counted]
        if min(behind_s) > 0 and _falls_behind(engine.flow, counted, rows_per_s):
            return False
        return not latency_grows([window.end_s for window in counted], behind_s)


def _falls_behind(flow: Dataflow, windows: Sequence[Window], rows_per_s: float) -> bool:
    """Return whether less is processed than arrives, so that the latency grows by 1 - m/r per second.

    Batches that last for several windows make the backlog a sawtooth, in which no slope can be detected.
    """
    taken = [sustained(flow, window, before) for before, window in pairwise(windows)]
    known = [rate for rate in taken if rate is not None]
    return bool(known) and 1.0 - fmean(known) / rows_per_s >= _SHORTFALL


def _behind_s(window: Window, rows_per_s: float) -> float:
    """Return the minimum latency of a row that is appended now: the backlog divided by the tried rate."""
    waiting = sum(pipeline.backlog_rows or 0 for pipeline in window.pipelines)
    return waiting / rows_per_s
