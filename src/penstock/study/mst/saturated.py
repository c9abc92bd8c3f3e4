"""The first definition: what a pipeline takes from a source that always has more."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.control.loop import Clock
from penstock.engines.ports import RunnableEngine
from penstock.measure.smoothing import merged
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.study.mst.replica_search import ReplicaPolicy, ReplicaSearch
from penstock.study.mst.samples import Measured, Samples, Saturation
from penstock.study.mst.sources import FIRST_RATE, Sources
from penstock.study.mst.throughput import sustained, waiting
from penstock.study.mst.trial_engine import mended, on_trial

Fresh = Callable[[Plan | None], RunnableEngine]  # with its own plan, or that one
_IN_VAIN = 2  # readings: the first may just have found out how large a batch may be
_PARTS = 5  # of a window
_LONG = 0.5  # windows
_WRITTEN = 2.0  # batches


def measure_saturated(fresh: Fresh, how: Saturation, clock: Clock, by: ReplicaPolicy | None = None) -> Measured:
    """Of engines that were never started: of one, or where its source runs dry of one after another.

    The rate of sources is raised until rows always wait. What was preloaded has no rate, and is read again from its
    beginning when it has ended: it has to last for a few batches, not for the whole measurement.
    """
    found, rate = Samples(how), FIRST_RATE
    plan: Plan | None = None  # the policy's
    to_arrange = 0 if by is None else by.max_windows  # windows
    in_vain = 0  # readings, one after another, that brought no sample and could have
    while in_vain < _IN_VAIN:
        cold, arranging = found.cold, to_arrange > 0
        with on_trial(fresh(plan)) as engine:
            slots = engine.plan.slots
            reading = _Reading(engine, found, clock, rate)
            if by is not None and to_arrange > 0:
                to_arrange, plan = reading.arrange(by, to_arrange), engine.plan
            if to_arrange == 0:
                reading.measure()
            rate = reading.rate
            if engine.plan.slots < slots:  # executors were lost: it was not measured what was asked for
                found.forget()
        if found.over:
            return found.measured()
        in_vain = 0 if found.read_some or cold or arranging else in_vain + 1
        found.read()
    return found.ran_dry()


class _Reading:
    """Of the sources by an engine that has just been started, until one of them ends or all has been found."""

    def __init__(self, engine: RunnableEngine, found: Samples, clock: Clock, rate: float) -> None:
        self._engine, self._found, self._clock = engine, found, clock
        self._sources = Sources(engine, rate)
        self._batch_s = 0.0  # the longest that was seen
        self._last: Window | None = None
        self._since: Window | None = None  # behind which the mix of the sources counts

    @property
    def rate(self) -> float:
        return self._sources.rate

    def arrange(self, by: ReplicaPolicy, most: int) -> int:
        """How many of so many windows are left to go on with, if a source ended before the policy was done."""

        def look() -> tuple[Window, Window | None] | None:
            window, before = self._look(self._found.how.every_s)
            return None if self._ended(window) else (window, before)

        return ReplicaSearch(self._engine, self._clock, look, most).run(by)

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
            if ended:
                if not found.read_some and len(window.pipelines) == 1 and not self._sources.rated:
                    self._measure_the_rest(step_s)
                return

    def _measure_the_rest(self, step_s: float) -> None:
        """All that was preloaded went into one batch: if that took long, more rows would hardly have been faster.

        Of several queries the others would stand still meanwhile, of several sources those that have ended, and where
        somebody still writes to one it is as many rows as came.
        """
        found, before = self._found, self._last
        while not found.over and not found.read_some:
            window, _ = self._look(step_s)
            if window.external_rows_per_s:
                return
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
        """Sources at which nothing waits, or no more than somebody who still writes to them does during a batch."""
        self._batch_s = max([self._batch_s, *(one.batch_s or 0.0 for one in window.pipelines)])
        coming = 0.0 if self._sources.rated else _WRITTEN * self._batch_s * (window.external_rows_per_s or 0.0)
        limits = {name for name, rows in waiting(self._engine.flow, window).items() if rows <= coming}
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
    if last is None or window.external_rows_per_s:  # somebody still writes: it is as full as rows came
        return False
    # One batch, begun with rows left over: these have ended with the batch that was begun after it.
    left = all(one.backlog_rows for one in last.operators if one.operator in ended)
    return left and max((one.batches for one in window.pipelines), default=0) == 1
