"""Measure MST by the first definition: the throughput of a pipeline whose sources always have more rows."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.control.loop import Clock
from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import RunnableEngine
from penstock.measure.smoothing import merged
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.study.mst.replica_search import ReplicaPolicy, ReplicaSearch
from penstock.study.mst.samples import Measured, Samples, Saturation
from penstock.study.mst.throughput import mix, sustained, waiting
from penstock.study.mst.trial_engine import recovered, started

Fresh = Callable[[Plan | None], RunnableEngine]  # makes an engine with its own plan, or with the given one
_MAX_EMPTY_READINGS = 2  # consecutive readings without a sample; the first may only find the batch size
_PARTS = 5  # parts of a window if a source ends
_LONG = 0.5  # share of a window from which a single batch is long
_WRITTEN = 2.0  # batches' worth of rows that another program may append meanwhile
_FIRST_RATE = 100.0  # rows/s
_AHEAD_WINDOWS = 3.0  # windows of work that must wait; otherwise the source may become the bottleneck
_FASTER = 3.0


def measure_saturated(
    fresh: Fresh, settings: Saturation, clock: Clock, policy: ReplicaPolicy | None = None
) -> Measured:
    """Measure an engine that was not started yet, or several of them one after another if the sources end.

    The rate of paced sources is raised until rows always wait. A preloaded source has no rate; a new engine reads it
    again from the beginning when it has ended. It must last for a few batches, not for the whole measurement.
    """
    samples, rate = Samples(settings), _FIRST_RATE
    plan: Plan | None = None  # chosen by the policy
    windows_left = 0 if policy is None else policy.max_windows  # windows left for the policy
    empty_readings = 0  # consecutive readings without a sample
    while empty_readings < _MAX_EMPTY_READINGS:
        cold, arranging = samples.cold, windows_left > 0
        with started(fresh(plan)) as engine:
            slots = engine.plan.slots
            reading = _Reading(engine, samples, clock, rate)
            if policy is not None and windows_left > 0:
                windows_left, plan = reading.choose_replicas(policy, windows_left), engine.plan
            if windows_left == 0:
                reading.measure()
            rate = reading.rate
            if engine.plan.slots < slots:  # executors were lost: the samples belong to another plan
                samples.discard_reading()
        if samples.over:
            return samples.measured()
        empty_readings = 0 if samples.has_samples or cold or arranging else empty_readings + 1
        samples.end_reading()
    return samples.out_of_rows()


class _Reading:
    """One engine that reads the sources, until one of them ends or the measurement is complete."""

    def __init__(self, engine: RunnableEngine, samples: Samples, clock: Clock, rate: float) -> None:
        self._engine, self._samples, self._clock = engine, samples, clock
        self._sources = _Sources(engine, rate)
        self._batch_s = 0.0  # longest batch so far
        self._last: Window | None = None
        self._since: Window | None = None  # the proportion of the sources is measured from here

    @property
    def rate(self) -> float:
        return self._sources.rate

    def choose_replicas(self, policy: ReplicaPolicy, max_windows: int) -> int:
        """Let the policy choose replicas; return the windows left if a source ended before the policy was done."""

        def next_window() -> tuple[Window, Window | None] | None:
            window, before = self._next_window(self._samples.settings.window_s)
            return None if self._ended(window) else (window, before)

        return ReplicaSearch(self._engine, self._clock, next_window, max_windows).run(policy)

    def measure(self) -> None:
        """Collect samples in windows, or in parts of windows if a source can end: its last batch may not be full."""
        samples, parts, before = self._samples, list[Window](), self._last
        whole = _PARTS if self._sources.ending else 1
        step_s = samples.settings.window_s / whole
        while not samples.over:
            window, last = self._next_window(step_s)
            limits = self._limits(window)
            if not samples.advance(step_s, self._throughput_per_s(window, last)) or limits - self._sources.ending:
                samples.discard_reading()  # a source was the bottleneck, not the pipeline
                parts, before, self._since = [], window, window
            elif _full(window, last, limits):
                parts.append(window)
            ended = self._ended(window)
            if len(parts) >= whole or (parts and ended):
                rate = self._throughput_per_s(merged(parts, [1.0] * len(parts)), before)
                if rate is not None:
                    samples.add(rate)
                    parts, before = [], window
            if ended:
                if not samples.has_samples and len(window.pipelines) == 1 and not self._sources.rated:
                    self._measure_single_batch(step_s)
                return

    def _measure_single_batch(self, step_s: float) -> None:
        """Measure the single batch that contains all preloaded rows, because a long batch is representative.

        It is not representative if there are several queries or sources, or if another program still appends rows.
        """
        samples, before = self._samples, self._last
        while not samples.over and not samples.has_samples:
            window, _ = self._next_window(step_s)
            if window.external_rows_per_s:
                return
            rate = self._throughput_per_s(window, before)
            samples.advance(step_s, rate)
            longest_s = max((pipeline.batch_s or 0.0 for pipeline in window.pipelines if pipeline.rows_in), default=0.0)
            if rate is not None and longest_s > _LONG * samples.settings.window_s:
                samples.add(rate)
            if self._engine.idle() or not self._limits(window):
                return

    def _next_window(self, seconds: float) -> tuple[Window, Window | None]:
        self._clock.sleep(seconds)
        if recovered(self._engine, "while it was measured"):
            self._samples.discard_reading()  # the query did not run meanwhile
        window, last = self._engine.observe(), self._last
        self._last = window
        self._sources.stay_ahead(self._throughput_per_s(window, last), window, self._samples.settings.window_s)
        return window, last

    def _throughput_per_s(self, window: Window, before: Window | None) -> float | None:
        return sustained(self._engine.flow, window, before, self._since)

    def _limits(self, window: Window) -> set[str]:
        """Return the sources without a backlog, except for rows that another program appends during a batch."""
        self._batch_s = max([self._batch_s, *(pipeline.batch_s or 0.0 for pipeline in window.pipelines)])
        coming = 0.0 if self._sources.rated else _WRITTEN * self._batch_s * (window.external_rows_per_s or 0.0)
        limits = {name for name, rows in waiting(self._engine.flow, window).items() if rows <= coming}
        self._samples.lacks_rows = bool(limits)
        return limits

    def _ended(self, window: Window) -> bool:
        limits = self._limits(window)
        # An idle engine receives no more rows.
        return bool(limits & self._sources.ending) or (bool(limits) and self._engine.idle())


class _Sources:
    """Keep the sources ahead of the pipeline: raise the rate of paced sources until rows always wait."""

    def __init__(self, engine: RunnableEngine, rate: float) -> None:
        self._engine = engine
        self._parts = mix(engine.flow)
        self.rate = rate  # total of all paced sources
        names = set(self._parts)
        self._set()
        self.rated = set(self._parts)
        self.ending = names - self.rated  # preloaded sources, which have no rate

    def stay_ahead(self, taken_per_s: float | None, window: Window, window_s: float) -> None:
        taken_per_s = 0.0 if taken_per_s is None else taken_per_s
        waits = waiting(self._engine.flow, window)
        if any(waits[name] <= _AHEAD_WINDOWS * window_s * taken_per_s * part for name, part in self._parts.items()):
            self.rate = max(self.rate, taken_per_s) * _FASTER
            self._set()

    def _set(self) -> None:
        for name, part in list(self._parts.items()):
            try:
                self._engine.set_rate(name, self.rate * part)
            except PenstockError:
                del self._parts[name]


def _full(window: Window, last: Window | None, ended: Collection[str]) -> bool:
    """Return whether the batches of a window were full, as far as is known, when some sources have ended."""
    if any(pipeline.batches and not pipeline.rows_in for pipeline in window.pipelines):  # before the first row
        return False
    if not ended:
        return True
    if last is None or window.external_rows_per_s:  # another program still appends: the batch contains what arrived
        return False
    # Exactly one batch, which began with rows left over: the source ended in the batch after it.
    left = all(operator.backlog_rows for operator in last.operators if operator.operator in ended)
    return left and max((pipeline.batches for pipeline in window.pipelines), default=0) == 1
