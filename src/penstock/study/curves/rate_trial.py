"""One trial: run the operator at a rate, and decide whether it is stable.

A trial is stable if the latency does not grow after the warm-up, and the backlog does not grow either. The latency of
rows that wait shows in no window before they are processed, so the latency alone would notice an overload too late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from penstock.control.loop import Clock
from penstock.engines.ports import RunnableEngine
from penstock.measure.stationarity import latency_grows, latency_slope
from penstock.measure.window import Window
from penstock.study.curves.measured_curve import CurveTrial, TrialWindow
from penstock.study.mst.throughput import mix, sustained
from penstock.study.mst.trial_engine import recovered

# A window is longer than its setting if that is too short for some rows or batches.
_ROWS_PER_WINDOW, _BATCHES_PER_WINDOW = 4.0, 2.0
_LONGEST_WINDOW_S, _LONGEST_WARM_UP_S = 120.0, 240.0
_SHORTFALL = 0.05  # relative shortfall of the throughput that is more than noise
Usage = Callable[[], tuple[float, float]]  # CPU % and memory % of the slot since the last call, above the idle load


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrialSettings:
    window_s: float = 2.0  # at least
    warm_up: int = 2  # windows that do not count; more until the first rows are processed
    windows: int = 6
    largest_slope: float = 0.02  # slope of the latency, in seconds per second


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEngine:
    """An engine that runs the operator alone on one slot, the clock of its time, and the usage of the slot."""

    engine: RunnableEngine
    clock: Clock
    usage: Usage
    set_threads: Callable[[int], None]
    drain: Callable[[], None]  # ends the input and waits until no row is left
    stop: Callable[[], None]

    def window(self, seconds: float) -> Window:
        """Let the engine run for this time and return what it did."""
        self.clock.sleep(seconds)
        recovered(self.engine, "in a trial")
        return self.engine.observe()


def run_trial(running: TrialEngine, threads: int, rows_per_s: float, settings: RateTrialSettings) -> CurveTrial:
    """Run the engine at a rate and return the result. It has the plan of the trial and no waiting rows."""
    clock = running.clock
    began_s = clock.monotonic()
    set_rate(running.engine, rows_per_s)
    warm_up = _warm_up(running, rows_per_s, settings)
    longest_s = max((query.batch_max_s or 0.0 for window in warm_up for query in window.pipelines), default=0.0)
    window_s = max(_window_s(rows_per_s, settings), min(_LONGEST_WINDOW_S, _BATCHES_PER_WINDOW * longest_s))
    running.usage()  # begins to count
    counted, uses = [], []
    for _ in range(settings.windows):
        counted.append(running.window(window_s))
        uses.append(running.usage())
    windows = tuple(
        TrialWindow(latency_s=window.latency.mean_s if window.latency is not None else None, cpu=cpu, memory=memory)
        for window, (cpu, memory) in zip(counted, uses, strict=True)
    )
    latencies = [(window.end_s, window.latency.mean_s) for window in counted if window.latency is not None]
    slope, _ = latency_slope(*zip(*latencies, strict=True)) if latencies else (0.0, 1.0)
    taken = [sustained(running.engine.flow, window, before) for before, window in pairwise([warm_up[-1], *counted])]
    known = [rate for rate in taken if rate is not None]
    return CurveTrial(
        threads=threads,
        rows_per_s=rows_per_s,
        reason=(reason := instability(counted, rows_per_s, known, settings.largest_slope)),
        is_stable=not reason,
        processed_rows_per_s=fmean(known) if known else None,
        latency_s=fmean(latency for _, latency in latencies) if latencies else None,
        latency_slope=slope,
        cpu=fmean(window.cpu for window in windows),
        memory=fmean(window.memory for window in windows),
        seconds=clock.monotonic() - began_s,
        windows=windows,
    )


def _warm_up(running: TrialEngine, rows_per_s: float, settings: RateTrialSettings) -> list[Window]:
    """Return the windows until the first batch has ended."""
    began_s, window_s = running.clock.monotonic(), _window_s(rows_per_s, settings)
    windows = [running.window(window_s) for _ in range(settings.warm_up)]
    while not any(map(_rows, windows)) and running.clock.monotonic() - began_s < _LONGEST_WARM_UP_S:
        windows.append(running.window(window_s))
    return windows


def _window_s(rows_per_s: float, settings: RateTrialSettings) -> float:
    return max(settings.window_s, min(_LONGEST_WINDOW_S, _ROWS_PER_WINDOW / rows_per_s))


def _rows(window: Window) -> int:
    return sum(query.rows_in for query in window.pipelines)


def instability(windows: Sequence[Window], rows_per_s: float, processed: Sequence[float], largest_slope: float) -> str:
    """Return why a trial is unstable, or an empty text.

    Args:
        windows: The windows after the warm-up.
        rows_per_s: The input rate.
        processed: The throughput of windows in which it is known.
        largest_slope: Largest growth of the latency in seconds per second.
    """
    times_s = [window.end_s for window in windows]
    behind_s = [sum(query.backlog_rows or 0 for query in window.pipelines) / rows_per_s for window in windows]
    if latency_grows(times_s, behind_s, at_least=largest_slope):
        return f"the backlog grows by {latency_slope(times_s, behind_s)[0]:.2g} s of input per second"
    if min(behind_s) > 0 and processed and 1.0 - fmean(processed) / rows_per_s >= _SHORTFALL:
        return f"only {fmean(processed):.4g} rows/s are processed"
    observed = [(window.end_s, window.latency.mean_s) for window in windows if window.latency is not None]
    if not observed:
        return "no row was processed"
    ends_s, latencies_s = zip(*observed, strict=True)
    if latency_grows(ends_s, latencies_s, at_least=largest_slope):
        return f"the latency grows by {latency_slope(ends_s, latencies_s)[0]:.2g} s per second"
    return ""


def set_rate(engine: RunnableEngine, rows_per_s: float) -> None:
    """Set the rates of all sources so that they have this sum."""
    for name, part in mix(engine.flow).items():
        engine.set_rate(name, rows_per_s * part)
