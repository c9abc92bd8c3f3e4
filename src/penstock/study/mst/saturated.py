"""The first definition: what a pipeline takes from a source that always has more."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from penstock.control.loop import Clock
from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Engine
from penstock.measure.convergence import settled
from penstock.measure.window import Window
from penstock.study.mst.arranged import ByPolicy, arrange
from penstock.study.mst.on_trial import mended
from penstock.study.mst.throughput import mix, sustained, waiting

_AHEAD_WINDOWS = 3.0  # of work that has to wait, or the source is about to be the limit
_FASTER = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    every_s: float = 5.0  # a window
    warm_up: int = 3  # windows that do not count: workers start, code is compiled
    most: int = 40  # windows that do, at most
    n: int = 5
    k: int = 4
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    rows_per_s: float | None
    settled: bool
    samples: tuple[float, ...]
    why: str | None = None


def measure_saturated(engine: Engine, how: Saturation, clock: Clock, by: ByPolicy | None = None) -> Measured:
    """Of an engine that has just been started. The rate of its sources is raised until rows always wait."""
    sources = _Sources(engine)
    samples: list[float] = []
    dry = False
    before: Window | None = None
    since: Window | None = None  # behind which the mix of the sources counts

    def look() -> tuple[Window, Window | None]:
        nonlocal before
        clock.sleep(how.every_s)
        if mended(engine, "while it was measured"):
            samples.clear()  # what stood still in between says nothing
        window, earlier = engine.observe(), before
        before = window
        sources.stay_ahead(sustained(engine.flow, window, earlier, since), window, how.every_s)
        return window, earlier

    if by is not None:
        arrange(engine, by, look, clock)
    for number in range(how.warm_up + how.most):
        window, earlier = look()
        rate = sustained(engine.flow, window, earlier, since)
        dry = min(waiting(engine.flow, window).values(), default=0) == 0
        if number < how.warm_up or dry:
            samples.clear()  # the source was the limit: what was seen says nothing of the pipeline
            since = window
            if dry and engine.idle():  # nothing more will come, however long it is waited for
                break
            continue
        if rate is None:
            continue
        samples.append(rate)
        if settled(samples, n=how.n, k=how.k, tolerance=how.tolerance):
            # The median: the rule lets one step pass, and what was before it must not count.
            return Measured(rows_per_s=median(samples[-how.n :]), settled=True, samples=tuple(samples))
    if not samples:
        why = "the source ran dry: preload more rows, or give it a rate" if dry else "no batch was committed"
        return Measured(rows_per_s=None, settled=False, samples=(), why=why)
    why = f"{how.k} of {how.n} windows were not within {how.tolerance:.0%} of the one before them in {how.most} windows"
    return Measured(rows_per_s=median(samples[-how.n :]), settled=False, samples=tuple(samples), why=why)


class _Sources:
    """The rates of all sources that have one; a preloaded backlog has none and needs none."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts = mix(engine.flow)
        self._rate = 100.0  # of all
        self._set()

    def stay_ahead(self, taken_per_s: float | None, window: Window, every_s: float) -> None:
        taken_per_s = 0.0 if taken_per_s is None else taken_per_s
        waits = waiting(self._engine.flow, window)
        if any(waits[name] <= _AHEAD_WINDOWS * every_s * taken_per_s * part for name, part in self._parts.items()):
            self._rate = max(self._rate, taken_per_s) * _FASTER
            self._set()

    def _set(self) -> None:
        for name, part in list(self._parts.items()):
            try:
                self._engine.set_rate(name, self._rate * part)
            except PenstockError:
                del self._parts[name]
