"""A trial on an engine: one configuration under a full load, until its question is answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.control.loop import Clock
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.store import ProfiledRegion
from penstock.study.mst.trial_engine import recovered, started
from penstock.study.stepwise.load_control import LoadControl
from penstock.study.stepwise.region_graph import RegionFeatures
from penstock.study.stepwise.sequential_test import TrialLimits, Verdict, is_precise, verdict_after, warm_up_windows
from penstock.study.stepwise.trial_sums import TrialSums

FreshEngine = Callable[[Plan], tuple[RunnableEngine, Clock]]  # an engine that is not started, and the clock of its time

_PATIENCE_S = 120.0  # a machine that is busy with other work may take this long for a batch
_INTERVALS = 4  # corrections of the load within the latency target


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    latency_target_s: float
    window_s: float
    limits: TrialLimits = field(default_factory=TrialLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTrial:
    rows_per_s: tuple[float, ...]  # one value per window, without the warm-up
    latency_s: float
    verdict: Verdict | None
    regions: Mapping[str, ProfiledRegion]
    stationary: bool
    saved_s: float


def measure_trial(
    fresh: FreshEngine,
    plan: Plan,
    features: RegionFeatures,
    settings: TrialSettings,
    *,
    unfinished_rows: float,
    reference: tuple[float, ...] | None,
    ends_when_missed: bool = False,
) -> MeasuredTrial:
    """Measure a plan with so many unfinished rows, until its question is answered.

    Args:
        fresh: Creates the engine.
        plan: The plan to measure.
        features: The result of `measure_features`, by region.
        settings: Windows, latency target and limits of the trial.
        unfinished_rows: Rows that the sources keep in flight.
        reference: Rows/s in the windows of the trial to compare with; None for the first trial.
        ends_when_missed: Whether the trial ends as soon as it misses the latency target.
    """
    engine, clock = fresh(plan)
    limits, target_s = settings.limits, settings.latency_target_s if ends_when_missed else None
    with started(engine):
        trial = _RunningTrial(engine, clock, features, settings, unfinished_rows)
        while (warm_up := warm_up_windows(trial.rates)) is None and len(trial.rates) < limits.max_warm_up:
            trial.next_window()
        discarded = len(trial.rates) // 2 if warm_up is None else warm_up
        while True:
            rates, latencies = trial.rates[discarded:], trial.latencies[discarded:]
            verdict = None
            if reference is not None:
                verdict = verdict_after(reference, rates, limits, latencies_s=latencies, latency_target_s=target_s)
            if verdict is not None or (reference is None and is_precise(rates, limits)):
                break
            trial.next_window()
    sums = trial.total(discarded)
    longest_s = (limits.max_warm_up + limits.max_windows) * settings.window_s
    return MeasuredTrial(
        rows_per_s=tuple(rates),
        latency_s=sum(latencies) / len(latencies),
        verdict=verdict,
        regions={
            region.name: sums.region(region, plan.replicas[region.name])
            for region in regions(engine.flow)
            if region.kind is not Kind.SOURCE
        },
        stationary=warm_up is not None,
        saved_s=max(0.0, longest_s - trial.seconds),
    )


class _RunningTrial:
    """Measures one window after another, and corrects the load within each of them."""

    def __init__(
        self,
        engine: RunnableEngine,
        clock: Clock,
        features: RegionFeatures,
        settings: TrialSettings,
        unfinished_rows: float,
    ) -> None:
        self._engine, self._clock, self._features, self._settings = engine, clock, features, settings
        first = unfinished_rows / settings.latency_target_s
        self._load = LoadControl(engine, features.visits, limit_rows=unfinished_rows, first=first)
        self._ignored = {
            name for region in regions(engine.flow) if region.name in features.non_scalable for name in region.operators
        }
        self._drops_all = not any(features.visits[op.name] > 0 for op in engine.flow.operators if op.kind is Kind.SINK)
        self._windows: list[list[Window]] = []  # observations of each window with a result
        self._ended_s: dict[str, float] = {}  # end of the last batch of each pipeline in the windows so far
        self.rates: list[float] = []
        self.latencies: list[float] = []
        self.seconds = 0.0

    def next_window(self) -> None:
        """Measure until a window has a throughput and a latency. A query may need longer than a window for a batch."""
        settings = self._settings
        intervals = max(1, round(settings.window_s / settings.latency_target_s * _INTERVALS))
        observed: list[Window] = []
        for _ in range(max(settings.limits.max_windows, math.ceil(_PATIENCE_S / settings.window_s))):
            for _ in range(intervals):
                self._clock.sleep(settings.window_s / intervals)
                recovered(self._engine, "during a trial")
                observed.append(self._engine.observe())
                self._load.update(observed[-1])
            self.seconds += settings.window_s
            sums = self._sum(observed)
            if sums.ended_s.keys() - self._ended_s.keys():  # the first batch of a pipeline: count rows from its end on
                self._ended_s, observed = self._ended_s | sums.ended_s, []
                continue
            rate, latency_s = sums.rows_per_s(self._features.visits, self._ignored), sums.latency_s
            if self._drops_all and rate is not None:  # no row shows its latency at a sink: Little's law
                latency_s = self._load.unfinished_rows / rate
            if rate is not None and latency_s is not None:
                self._windows.append(observed)
                self._ended_s |= sums.ended_s
                self.rates.append(rate)
                self.latencies.append(latency_s)
                return
        raise PenstockError(
            f"No row of '{self._engine.flow.name}' reached a sink within {self.seconds:g} s; use a longer window or a "
            "higher latency target."
        )

    def total(self, discarded: int) -> TrialSums:
        """Return the sums over all windows after the discarded ones."""
        return self._sum([window for observed in self._windows[discarded:] for window in observed])

    def _sum(self, windows: list[Window]) -> TrialSums:
        sums = TrialSums(self._engine.flow, ended_before_s=self._ended_s)
        for window in windows:
            sums.add(window)
        return sums
