"""Trials on an engine: the features of an application at a small load, and a configuration under a full load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.control.loop import Clock
from penstock.control.visit_ratios import operator_visits
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.plan import Plan
from penstock.store import ProfiledOperator, ProfiledRegion
from penstock.study.mst.throughput import mix
from penstock.study.mst.trial_engine import recovered, started
from penstock.study.stepwise.features import minimal_latency_s, relative_stream_sizes
from penstock.study.stepwise.load_control import LoadControl
from penstock.study.stepwise.operator_types import Flow, OperatorType, operator_type
from penstock.study.stepwise.region_graph import RegionFeatures
from penstock.study.stepwise.sequential_test import TrialLimits, Verdict, is_precise, verdict_after, warm_up_windows
from penstock.study.stepwise.trial_sums import TrialSums

FreshEngine = Callable[[Plan], tuple[RunnableEngine, Clock]]  # an engine that is not started, and the clock of its time

_ROWS = 250  # rows of a slice of the data
_UTILISATION = 0.05  # highest utilisation at the lower of the two small loads
_FASTER = 3.0  # the second small load, relative to the first one
_PROBE_ROWS_PER_S = 1.0
_PROBES = 30
_INTERVALS = 4  # corrections of the load within the latency target


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    latency_target_s: float
    window_s: float
    slices: int = 20  # number of slices of the data for the features
    limits: TrialLimits = field(default_factory=TrialLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTrial:
    rows_per_s: tuple[float, ...]  # one value per window, without the warm-up
    latency_s: float
    verdict: Verdict | None
    regions: Mapping[str, ProfiledRegion]
    stationary: bool
    saved_s: float


def measure_features(
    fresh: FreshEngine, plan: Plan, settings: TrialSettings, declared: Mapping[str, OperatorType]
) -> tuple[ProfiledOperator, ...]:
    """Measure each operator at two loads at which nothing queues. Both read the same data from its beginning."""
    probe = _slices(fresh, plan, _PROBE_ROWS_PER_S, 1.0, _PROBES)
    sums = TrialSums(probe[0])
    for window in probe[1]:
        sums.add(window)
    sources = mix(sums.flow)
    external = sum(sums.rows_in[name] for name in sources)
    if not external or not any(sums.busy_s.values()):
        raise PenstockError(
            f"No operator of '{sums.flow.name}' took time for {external:g} rows; there is nothing to distribute."
        )
    slowest_s = max(
        sum(sums.busy_s[name] for name in region.operators) / plan.replicas[region.name] / external
        for region in regions(sums.flow)
        if region.kind is not Kind.SOURCE
    )
    rate = _UTILISATION / slowest_s
    slow = _slices(fresh, plan, rate, _ROWS / rate, settings.slices)[1]
    fast = _slices(fresh, plan, _FASTER * rate, _ROWS / (_FASTER * rate), settings.slices)[1]
    return _features(sums.flow, slow, fast, declared)


def _slices(fresh: FreshEngine, plan: Plan, rate: float, window_s: float, count: int) -> tuple[Dataflow, list[Window]]:
    engine, clock = fresh(plan)
    windows = []
    with started(engine):
        for name, part in mix(engine.flow).items():
            engine.set_rate(name, rate * part)
        for _ in range(count):
            clock.sleep(window_s)
            recovered(engine, "while its features were measured")
            windows.append(engine.observe())
    return engine.flow, windows


def _features(
    flow: Dataflow, slow: list[Window], fast: list[Window], declared: Mapping[str, OperatorType]
) -> tuple[ProfiledOperator, ...]:
    visits = _visits(flow, fast[-1])
    streams = {
        (seen.operator, consumer.name): visits[seen.operator]
        * (_selectivity(seen) or 0.0)
        * seen.share_for(consumer.name)
        for seen in fast[-1].operators
        for consumer in flow.consumers(seen.operator)
    }
    shares = relative_stream_sizes(streams).rows
    return tuple(
        ProfiledOperator(
            operator=operator.name,
            type=operator_type(
                _flows(slow, operator.name), _flows(fast, operator.name), declared=declared.get(operator.name)
            ).value,
            min_latency_s=_minimal_latency_s((*slow, *fast), operator.name),
            rows_in=visits[operator.name],
            streams={consumer.name: shares[operator.name, consumer.name] for consumer in flow.consumers(operator.name)},
        )
        for operator in flow.operators
    )


def _visits(flow: Dataflow, window: Window) -> dict[str, float]:
    """Return the rows that reach each operator per external row. The window contains all rows since the start."""
    read = {name: float(window.operator(name).rows_in_total or 0) for name in mix(flow)}
    visits = operator_visits(flow, window, read)
    if visits is None:
        raise PenstockError(
            f"Rows of '{flow.name}' have not reached all operators at a small load; profile with a dataflow whose rows "
            "do."
        )
    return visits | {name: rows / sum(read.values()) for name, rows in read.items()}


def _selectivity(seen: OperatorWindow) -> float | None:
    return seen.rows_out_total / seen.rows_in_total if seen.rows_in_total and seen.rows_out_total is not None else None


def _flows(windows: list[Window], name: str) -> list[Flow]:
    result = []
    for number, window in enumerate(windows):
        seconds, seen = window.end_s - window.start_s, window.operator(name)
        result.append(
            Flow(
                data_slice=number,
                input_rows_per_s=(seen.rows_in or 0) / seconds,
                output_rows_per_s=(seen.rows_out or 0) / seconds,
            )
        )
    return result


def _minimal_latency_s(windows: tuple[Window, ...], name: str) -> float:
    seconds = [window.operator(name).seconds_per_row for window in windows]
    known = [value for value in seconds if value is not None]
    return minimal_latency_s(known) if known else 0.0


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
        self._windows: list[list[Window]] = []  # observations of each window with a result
        self.rates: list[float] = []
        self.latencies: list[float] = []
        self.seconds = 0.0

    def next_window(self) -> None:
        """Measure until a window has a throughput and a latency. A query may need longer than a window for a batch."""
        settings = self._settings
        intervals = max(1, round(settings.window_s / settings.latency_target_s * _INTERVALS))
        observed: list[Window] = []
        for _ in range(settings.limits.max_windows):
            for _ in range(intervals):
                self._clock.sleep(settings.window_s / intervals)
                recovered(self._engine, "during a trial")
                observed.append(self._engine.observe())
                self._load.update(observed[-1])
            self.seconds += settings.window_s
            sums = self._sum(observed)
            rate, latency_s = sums.rows_per_s(self._features.visits, self._ignored), sums.latency_s
            if rate is not None and latency_s is not None:
                self._windows.append(observed)
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
        sums = TrialSums(self._engine.flow)
        for window in windows:
            sums.add(window)
        return sums
