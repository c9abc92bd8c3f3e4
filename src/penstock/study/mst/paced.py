"""The second definition: the highest paced rate at which rows do not stay longer and longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from penstock.control.loop import Clock
from penstock.dataflow.dataflow import Dataflow
from penstock.engines.ports import RunnableEngine
from penstock.measure.stability import latency_grows
from penstock.measure.window import Window
from penstock.study.mst.samples import Measured
from penstock.study.mst.throughput import mix, sustained
from penstock.study.mst.trial_engine import mended, on_trial

_TRIED = 20  # rates, at most, where all are kept up
_LESS = 0.05  # of what comes: less is noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    every_s: float = 5.0
    warm_up: int = 3  # windows of each rate that do not count
    windows: int = 10  # that do
    within: float = 0.05  # of the rate: closer is not looked for
    around: float = 0.5  # of the guess, to either side


def measure_paced(fresh: Callable[[], RunnableEngine], guess_per_s: float, how: Bisection, clock: Clock) -> Measured:
    """Each rate is tried on an engine of its own, because what one rate piled up would be in the way of the next."""
    low, high = guess_per_s * (1.0 - how.around), guess_per_s * (1.0 + how.around)
    tried: list[float] = []
    kept_up = False
    too_much = False
    while high - low > how.within * high:
        rate = (low + high) / 2.0
        tried.append(rate)
        if keeps_up(fresh, rate, how, clock):
            low, kept_up = rate, True
        else:
            high, too_much = rate, True
        if kept_up and not too_much and high - low <= how.within * high:  # the guess was too low
            low, high = high, 2.0 * high
            if len(tried) > _TRIED:
                why = f"{rate:.4g} rows/s are kept up, and more was not tried"
                return Measured(rows_per_s=rate, settled=False, samples=tuple(tried), why=why)
    if not kept_up:
        why = f"no rate from {guess_per_s * (1.0 - how.around):.4g} rows/s on was kept up"
        return Measured(rows_per_s=None, settled=False, samples=tuple(tried), why=why)
    return Measured(rows_per_s=(low + high) / 2.0, settled=True, samples=tuple(tried))


def keeps_up(fresh: Callable[[], RunnableEngine], rows_per_s: float, how: Bisection, clock: Clock) -> bool:
    with on_trial(fresh()) as engine:
        for name, part in mix(engine.flow).items():
            engine.set_rate(name, rows_per_s * part)
        windows = []
        for _ in range(how.warm_up + how.windows):
            clock.sleep(how.every_s)
            mended(engine, f"at {rows_per_s:.4g} rows/s")
            windows.append(engine.observe())
        counted = windows[how.warm_up :]
        behind_s = [_behind_s(one, rows_per_s) for one in counted]
        if min(behind_s) > 0 and _falls_behind(engine.flow, counted, rows_per_s):
            return False
        return not latency_grows([one.end_s for one in counted], behind_s)


def _falls_behind(flow: Dataflow, windows: Sequence[Window], rows_per_s: float) -> bool:
    """Whether it takes less than comes, so that rows stay longer by 1 - m/r each second.

    Batches that last as long as a few windows make a sawtooth of what waits, in which a slope is not to be seen.
    """
    taken = [sustained(flow, window, before) for before, window in pairwise(windows)]
    known = [one for one in taken if one is not None]
    return bool(known) and 1.0 - fmean(known) / rows_per_s >= _LESS


def _behind_s(window: Window, rows_per_s: float) -> float:
    """How long a row that is appended now will stay, at least: all that waits before it, at the rate that is tried."""
    waiting = sum(one.backlog_rows or 0 for one in window.pipelines)
    return waiting / rows_per_s
