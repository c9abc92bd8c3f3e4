"""The first definition: what a pipeline takes from a source that always has more."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import median

from penstock.control.loop import Clock
from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Engine
from penstock.measure.convergence import settled
from penstock.measure.smoothing import merged
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.study.mst.arranged import ByPolicy, arrange
from penstock.study.mst.on_trial import mended, on_trial
from penstock.study.mst.throughput import mix, sustained, waiting

Fresh = Callable[[Plan | None], Engine]  # with its own plan, or that one
_IN_VAIN = 2  # readings: the first may just have found out how large a batch may be
_PARTS = 5  # of a window
_LONG = 0.5  # windows
_LASTS_S = 30.0
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


def measure_saturated(fresh: Fresh, how: Saturation, clock: Clock, by: ByPolicy | None = None) -> Measured:
    """Of engines that were never started: of one, or where its source runs dry of one after another.

    The rate of sources is raised until rows always wait. What was preloaded has no rate, and is read again from its
    beginning when it has ended: it has to last for a few batches, not for the whole measurement.
    """
    found = _Found(how)
    plan: Plan | None = None
    in_vain = 0  # readings, one after another, that brought no sample
    while in_vain < _IN_VAIN:
        with on_trial(fresh(plan)) as engine:
            reading = _Reading(engine, found, clock)
            if by is None or reading.arrange(by):
                by = None
                reading.measure()
            plan = engine.plan
        if found.over:
            return found.measured()
        in_vain = 0 if found.read_some else in_vain + 1
        found.read()
    return found.ran_dry()


class _Found:
    """The samples of all readings."""

    def __init__(self, how: Saturation) -> None:
        self.how = how
        self.cold_s = how.warm_up * how.every_s  # that are left before anything counts
        self.dry = False
        self._left_s = how.most * how.every_s
        self._fastest = 0.0  # rows/s that were seen, in samples or not
        self._before: list[float] = []  # of earlier readings
        self._now: list[float] = []

    def passed(self, seconds: float, rows_per_s: float | None) -> bool:
        """Whether this counts: workers had started, and code was compiled."""
        self._fastest = max(self._fastest, rows_per_s or 0.0)
        self.cold_s -= seconds
        if self.cold_s >= 0:
            return False
        self._left_s -= seconds
        return True

    def add(self, rows_per_s: float) -> None:
        self._now.append(rows_per_s)

    def forget(self) -> None:
        self._before, self._now = [], []

    @property
    def read_some(self) -> bool:
        """Whether this reading has brought a sample."""
        return bool(self._now)

    def read(self) -> None:
        """A reading has ended."""
        self._before, self._now = self.samples, []

    @property
    def samples(self) -> list[float]:
        """The first of a reading has its start in it, and counts where there is no other."""
        return self._before + (self._now[1:] if self._before and len(self._now) > 1 else self._now)

    @property
    def settled(self) -> bool:
        return settled(self.samples, n=self.how.n, k=self.how.k, tolerance=self.how.tolerance)

    @property
    def over(self) -> bool:
        return self.settled or self._left_s <= 0

    def measured(self) -> Measured:
        how, samples = self.how, tuple(self.samples)
        if not samples:
            return self.ran_dry() if self.dry else _without("no batch was committed")
        # The median: the rule lets one step pass, and what was before it must not count.
        rows_per_s = median(samples[-how.n :])
        if self.settled:
            return Measured(rows_per_s=rows_per_s, settled=True, samples=samples)
        why = f"of {len(samples)} samples no {how.k} of {how.n} were within {how.tolerance:.0%} of the one before them"
        return Measured(rows_per_s=rows_per_s, settled=False, samples=samples, why=why)

    def ran_dry(self) -> Measured:
        enough = float(f"{self._fastest * _LASTS_S:.1g}")
        such = f", such as {enough:,.0f}" if enough else ""
        return _without(f"the source ran dry: preload more rows{such}, or give it a rate")


def _without(why: str) -> Measured:
    return Measured(rows_per_s=None, settled=False, samples=(), why=why)


class _Reading:
    """Of the sources by an engine that has just been started, until one of them ends or all has been found."""

    def __init__(self, engine: Engine, found: _Found, clock: Clock) -> None:
        self._engine, self._found, self._clock = engine, found, clock
        self._sources = _Sources(engine)
        self._last: Window | None = None
        self._since: Window | None = None  # behind which the mix of the sources counts

    def arrange(self, by: ByPolicy) -> bool:
        """Whether the policy came to its end before a source did."""

        def look() -> tuple[Window, Window | None] | None:
            window, before = self._look(self._found.how.every_s)
            return None if self._ended(window) else (window, before)

        return arrange(self._engine, by, look, self._clock)

    def measure(self) -> None:
        """In windows, or parts of them where a source ends: of its last batch nobody knows what would have fitted."""
        found, parts, before = self._found, list[Window](), self._last
        whole = _PARTS if self._sources.ending else 1
        step_s = found.how.every_s / whole
        while not found.over:
            window, last = self._look(step_s)
            limits = self._limits(window)
            if not found.passed(step_s, self._taken(window, last)) or limits - self._sources.ending:
                found.forget()  # a source was the limit: what was seen says nothing of the pipeline
                parts, before, self._since = [], window, window
            elif _full(window, last, limits):
                parts.append(window)
            ended = self._ended(window)
            if len(parts) >= whole or (parts and ended):
                rate = self._taken(merged(parts, [1.0] * len(parts)), before)
                if rate is not None:
                    found.add(rate)
                    parts, before = [], window
            if ended and not found.read_some:
                self._measure_the_rest(step_s)
            if ended:
                return

    def _measure_the_rest(self, step_s: float) -> None:
        """All that was preloaded went into one batch: if that took long, more rows would hardly have been faster."""
        found, before = self._found, self._last
        while not found.over:
            window, _ = self._look(step_s)
            rate = self._taken(window, before)
            found.passed(step_s, rate)
            longest_s = max((one.batch_s or 0.0 for one in window.pipelines if one.rows_in), default=0.0)
            if rate is not None and longest_s > _LONG * found.how.every_s:
                found.add(rate)
            if self._engine.idle() or not self._limits(window):
                return

    def _look(self, seconds: float) -> tuple[Window, Window | None]:
        self._clock.sleep(seconds)
        if mended(self._engine, "while it was measured"):
            self._found.forget()  # what stood still in between says nothing
        window, last = self._engine.observe(), self._last
        self._last = window
        self._sources.stay_ahead(self._taken(window, last), window, self._found.how.every_s)
        return window, last

    def _taken(self, window: Window, before: Window | None) -> float | None:
        return sustained(self._engine.flow, window, before, self._since)

    def _limits(self, window: Window) -> set[str]:
        """Sources at which nothing waits."""
        limits = {name for name, rows in waiting(self._engine.flow, window).items() if rows == 0}
        self._found.dry = bool(limits)
        return limits

    def _ended(self, window: Window) -> bool:
        limits = self._limits(window)
        # Nothing more will come, however long it is waited for.
        return bool(limits & self._sources.ending) or (bool(limits) and self._engine.idle())


def _full(window: Window, last: Window | None, ended: Collection[str]) -> bool:
    """Whether its batches had all the rows that fitted, for all that is known, when some sources have ended."""
    if any(one.batches and not one.rows_in for one in window.pipelines):  # before the first row
        return False
    if not ended:
        return True
    # One batch, begun with rows left over: these have ended with the batch that was begun after it.
    left = last is not None and all(one.backlog_rows for one in last.operators if one.operator in ended)
    return left and max((one.batches for one in window.pipelines), default=0) == 1


class _Sources:
    """The rates of all sources that have one; a preloaded backlog has none and needs none."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts = mix(engine.flow)
        self._rate = 100.0  # of all
        names = set(self._parts)
        self._set()
        self.ending = names - set(self._parts)  # those without a rate: there is no more than was preloaded

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
