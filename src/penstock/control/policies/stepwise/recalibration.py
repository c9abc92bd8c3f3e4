"""Steps 2 and 3 of the profiler on a running pipeline (Liu et al. 2017, section 4.4), as a value and its transitions.

The existing backlog is the test load. It contains more rows than any number of source tasks reads, so another source
task is not tried: it counts as a trial without a difference. Sources are not throttled, because their rows have arrived
already. The first trial of step 2 is the multiple of the task ratio that uses the platform best, because a running
pipeline must not start again with few tasks. In step 3, the task for the operator with the highest capacity comes from
the operator with the lowest capacity if the platform is used up. A trial that the measured costs exclude is not made,
since every trial pauses the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from penstock.study.stepwise.configuration import Configuration, Finished, NextTrial, Round, TrialChange
from penstock.study.stepwise.operator_capacity import CapacitySettings, next_capacity_trial
from penstock.study.stepwise.platform_capability import PlatformSettings, next_platform_trial
from penstock.study.stepwise.sequential_test import TrialLimits, Verdict, confidence_interval, verdict_after

LIMITS = TrialLimits(min_windows=4, max_windows=12)  # length of an online trial, in windows of the run


class Cause(IntEnum):
    """Why a plan is recalibrated. The numbers are stored."""

    PLATFORM = 1  # the platform was resized and this size was not profiled
    PROGRAM = 2  # the program is not the profiled one
    DRIFT = 3  # the data has changed


class RecalibrationStep(IntEnum):
    PLATFORM = 2
    CAPACITY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    cause: Cause
    slots: int  # size of the platform
    limit: int  # tasks that a trial may use
    ratio: Mapping[str, int]  # tasks that step 2 adds
    fixed: Mapping[str, int]  # tasks of regions that cannot have more
    min_latency_s: Mapping[str, float]  # MinLp by region
    rounds: tuple[Round, ...]  # rounds of the current step; the first one is its start
    step: RecalibrationStep = RecalibrationStep.PLATFORM
    samples: tuple[float, ...] = ()  # rows/s in the windows of the running trial
    changes: int | None = None  # plan changes of the run when the trial was proposed; None: it was not proposed yet
    has_trial: bool = False  # whether a trial was applied

    def ended(self, round_: Round) -> Recalibration:
        """Return the state after a trial that was made or skipped."""
        return replace(self, rounds=(*self.rounds, round_), samples=(), changes=None)

    def not_made(self, planned: NextTrial) -> Recalibration:
        reference = self.rounds[planned.reference]
        return self.ended(
            replace(
                reference,
                configuration=planned.configuration,
                change=planned.change,
                verdict=Verdict.NO_DIFFERENCE,
            )
        )

    def measured(self, planned: NextTrial, rows_per_s: float) -> tuple[Recalibration, Verdict | None]:
        """Return the state with another sample of the running trial, and its verdict once the test has one."""
        state = replace(self, samples=(*self.samples, rows_per_s), has_trial=True)
        reference = self.rounds[planned.reference]
        if len(reference.rows_per_s) > 1:
            return state, verdict_after(reference.rows_per_s, state.samples, LIMITS)
        if len(state.samples) < LIMITS.min_windows:
            return state, None
        # The reference had no backlog, so its throughput was the load. The trial must at least sustain that.
        sustains = confidence_interval(state.samples)[1] >= reference.mean_rows_per_s
        return state, Verdict.BETTER if sustains else Verdict.WORSE


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRules:
    latency_target_s: float
    alpha: float
    k: float
    # Regions of each query, on an engine on which they take turns; None: all regions work at the same time.
    queries: Sequence[frozenset[str]] | None = None


def next_trial(
    state: Recalibration,
    rules: StepRules,
    first: Callable[[Recalibration], Configuration],
    fitted: Callable[[Recalibration, NextTrial], NextTrial | None],
) -> tuple[Recalibration, NextTrial | Finished]:
    """Return the next trial that is to be made, or the best round of the last step.

    Args:
        state: The rounds so far.
        rules: Stop rules of the steps.
        first: Returns the first configuration of step 2.
        fitted: Returns a trial so that it fits into the platform, or None if it cannot improve the throughput.
    """
    while True:
        decision = (
            _platform(state, rules, first) if state.step is RecalibrationStep.PLATFORM else _capacity(state, rules)
        )
        if isinstance(decision, Finished):
            if state.step is RecalibrationStep.CAPACITY:
                return state, decision
            start = replace(state.rounds[decision.round], verdict=None)
            state = replace(state, step=RecalibrationStep.CAPACITY, rounds=(start,), samples=(), changes=None)
        elif decision.change is not TrialChange.SOURCE and (trial := fitted(state, decision)) is not None:
            return state, trial
        else:
            state = state.not_made(decision)


def _platform(
    state: Recalibration, rules: StepRules, first: Callable[[Recalibration], Configuration]
) -> NextTrial | Finished:
    if not state.ratio:
        return Finished(round=0, reason="no operator can have more tasks")
    settings = PlatformSettings(latency_target_s=rules.latency_target_s, ratio=state.ratio, alpha=rules.alpha)
    decision = next_platform_trial(state.rounds, settings)
    if isinstance(decision, NextTrial) and decision.change is TrialChange.THROTTLE:
        return Finished(round=decision.reference, reason="the sources are not throttled online")
    if (
        isinstance(decision, NextTrial)
        and decision.change is TrialChange.SINKS
        and not any(round_.change is TrialChange.SINKS for round_ in state.rounds)
    ):
        return replace(decision, configuration=first(state), reason="the ratio of the task loads requires other tasks")
    return decision


def _capacity(state: Recalibration, rules: StepRules) -> NextTrial | Finished:
    known, queries = state.rounds[0].operators, rules.queries or ()
    settings = CapacitySettings(
        latency_target_s=rules.latency_target_s,
        min_latency_s={name: state.min_latency_s.get(name, 0.0) for name in known},
        fixed=[name for name in known if name not in state.ratio],
        k=rules.k,
        queries=None if rules.queries is None else lambda _: queries,
    )
    return next_capacity_trial(state.rounds, settings)


def without_idlest(
    planned: NextTrial, reference: Round, scalable: Collection[str], fits: Callable[[Configuration], bool]
) -> NextTrial | None:
    """Return the trial with fewer tasks for the operators with the lowest capacity, so that it fits; None: none does.

    The operators that the trial enhances keep their tasks.
    """
    before, configuration = reference.configuration.tasks, planned.configuration
    enhanced = {name for name, count in configuration.tasks.items() if count > before.get(name, 0)}
    donors = sorted(
        (name for name in reference.operators if name in scalable and name not in enhanced),
        key=lambda name: reference.operators[name].capacity,
    )
    while not fits(configuration):
        donor = next((name for name in donors if configuration.tasks[name] > 1), None)
        if donor is None:
            return None
        configuration = configuration.with_tasks({donor: -1})
    moved = sorted(name for name in donors if configuration.tasks[name] < before.get(name, 0))
    reason = f"{planned.reason}, and {', '.join(moved)} the lowest" if moved else planned.reason
    return replace(planned, configuration=configuration, reason=reason)
