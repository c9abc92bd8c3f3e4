"""The study: make the trials that the decisions of the three steps ask for, and store each result."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import msgspec

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.models.core_sharing import SharedCores
from penstock.plan import Plan, default_plan
from penstock.store import ProfiledOperator, ProfileTrial, Store, Trial
from penstock.study.stepwise.configuration import (
    Configuration,
    Decision,
    Finished,
    NextTrial,
    OperatorMeasurement,
    Round,
    TrialChange,
    best_round,
)
from penstock.study.stepwise.feature_trial import MeasureFeatures, measure_features
from penstock.study.stepwise.features import with_sizes_in_bytes
from penstock.study.stepwise.operator_capacity import CapacitySettings, next_capacity_trial
from penstock.study.stepwise.operator_types import OperatorType
from penstock.study.stepwise.platform_capability import PlatformSettings, next_platform_trial
from penstock.study.stepwise.profile import Profile, ProfileProgress, ProfileRound
from penstock.study.stepwise.region_graph import (
    RegionFeatures,
    equal_within_queries,
    grown,
    region_features,
    region_inputs,
    regions_by_query,
    separating_cuts,
)
from penstock.study.stepwise.rounds_left import rounds_left
from penstock.study.stepwise.sequential_test import TrialLimits, Verdict, trial_interval
from penstock.study.stepwise.slot_filling import Fill, SlotFilling, TurnFilling
from penstock.study.stepwise.task_ratios import TaskRatios, task_ratios, whole_ratios
from penstock.study.stepwise.trial import FreshEngine, TrialSettings, measure_trial

STUDY = "profile"
OnProgress = Callable[[ProfileProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseSettings:
    """Defaults of the paper (Table 2), except for the limits of a trial."""

    slots: int
    latency_target_s: float = 0.5
    slice_: float = 0.3
    k: float = 2.0
    alpha: float = 0.9
    max_rounds: int = 40
    window_s: float | None = None  # None: four times the latency target, and at least 1 s
    limits: TrialLimits = field(default_factory=TrialLimits)
    stages_take_turns: bool = False  # whether the stages of a query run one after another
    # Whether trials test the tasks that are predicted to use the slots best, and non-scalable operators have one task
    # each. The paper has neither.
    fills_slots: bool = True
    rounds_to_slots: int | None = None  # rounds in which tasks grow to the slots; None: each adds the ratio
    # Whether the latency that `k` limits includes the time that rows wait for an operator. The paper's does not, so its
    # third step ends earlier, also if the throughput could still grow.
    latency_includes_waiting: bool = True
    tie: float = 0.02  # relative difference of operator capacities that does not matter
    headroom: float = 0.9  # a source task fills this share of the latency target on slots that are fully used
    types: Mapping[str, OperatorType] = field(default_factory=dict)  # declared types by operator

    def trial_settings(self) -> TrialSettings:
        window_s = max(1.0, 4.0 * self.latency_target_s) if self.window_s is None else self.window_s
        return TrialSettings(latency_target_s=self.latency_target_s, window_s=window_s, limits=self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseStudy:
    flow: Dataflow
    fresh: FreshEngine
    store: Store
    settings: StepwiseSettings
    time: Callable[[], float]  # time of the record
    program: str | None = None  # fingerprint of the program
    conditions: Mapping[str, str] = field(default_factory=dict)  # everything else that makes trials comparable
    executors: int = 1
    measure_features: MeasureFeatures = measure_features
    row_bytes: Callable[[], Mapping[str, float]] = dict  # sizes of rows by producer, after the features were measured
    known_features: tuple[ProfiledOperator, ...] = ()  # measured on another platform; empty: measure them

    def run(self, on: OnProgress | None = None) -> Profile:
        """Return the best plan. Trials that the store contains are not made again."""
        report = on or (lambda progress: None)
        self.check_earlier_trials()
        report(ProfileProgress(step="features", rounds=0, max_rounds=self.settings.max_rounds))
        operators = self._features()
        features = region_features(self.flow, operators)
        ratios = self._with_few_tasks(task_ratios(features.loads, features.non_scalable), features.non_scalable)
        added = whole_ratios(ratios.ratios, self.settings.slice_) if ratios.ratios else {}
        if added and self.settings.stages_take_turns:
            added = equal_within_queries(self.flow, added)
        if added and self.settings.rounds_to_slots is not None:
            queries = [frozenset({name}) for name in added]
            if self.settings.stages_take_turns:
                queries = regions_by_query(self.flow, self.plan_for(added | ratios.tasks))
            added = grown(added, queries, self.settings.slots, self.settings.rounds_to_slots)
        search = _Search(self, features, report)
        platform = PlatformSettings(
            latency_target_s=self.settings.latency_target_s,
            ratio=added,
            alpha=self.settings.alpha,
            filling=self._filling(features, ratios.tasks),
            rows_per_source_task=search.rows_per_source_task,
        )
        first = NextTrial(
            configuration=Configuration(tasks=added | ratios.tasks),
            change=TrialChange.FIRST,
            reference=0,
            reason="ratio of the task loads",
        )
        search.make("platform", first)
        start, reason = 0, "no operator can have more tasks"
        if added:
            start, reason = search.follow("platform", 0, lambda rounds: next_platform_trial(rounds, platform))
        capacity = CapacitySettings(
            latency_target_s=self.settings.latency_target_s,
            min_latency_s={name: load.min_latency_s for name, load in features.loads.items()},
            fixed=[name for name in features.loads if name not in ratios.ratios],
            k=self.settings.k,
            includes_waiting=self.settings.latency_includes_waiting,
            tie=self.settings.tie,
            queries=self._queries if self.settings.stages_take_turns else None,
            cuts=self._cuts() if self.settings.stages_take_turns else {},
        )
        best, last_reason = search.follow("capacity", start, lambda rounds: next_capacity_trial(rounds, capacity))
        return search.profile(best, operators, f"{reason}; {last_reason}")

    def check_earlier_trials(self) -> None:
        """Raise PenstockError if the store contains trials of another program or under other conditions."""
        for trial in self._stored():
            assert trial.profile is not None
            if trial.program not in (None, self.program):
                raise PenstockError(
                    f"'{self.store.path.parent}' has trials of an earlier version of '{self.flow.name}': its code or "
                    "that of an imported module has changed. Use another directory to profile the new version."
                )
            before, now = trial.profile.conditions, dict(self.conditions)
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            if changed:
                given = ", ".join(f"{name} {before.get(name)} instead of {now.get(name)}" for name in changed)
                raise PenstockError(
                    f"'{self.store.path.parent}' has trials with {given}; use the same settings or another directory."
                )

    def _stored(self) -> list[Trial]:
        return [trial for trial in self.store.trials() if trial.study == STUDY and trial.profile is not None]

    def stored_rounds(self) -> list[Trial]:
        return [trial for trial in self._stored() if trial.profile is not None and trial.profile.step != "features"]

    def _features(self) -> tuple[ProfiledOperator, ...]:
        for trial in self._stored():
            if trial.profile is not None and trial.profile.step == "features":
                return trial.profile.operators
        began_s, plan = self.time(), self.plan_for({})
        if not self.settings.stages_take_turns:  # no task shares its slot, so that nothing but its work takes time
            plan = plan.replace(slots=max(plan.slots, len(plan.replicas)))
        operators = self.known_features
        if not operators:
            operators = self.measure_features(self.fresh, plan, self.settings.types)
            operators = with_sizes_in_bytes(operators, self.row_bytes())
        self.store.add_trial(
            Trial(
                study=STUDY,
                executors=self.executors,
                repeat=0,
                plan=plan,
                began_s=began_s,
                ended_s=self.time(),
                rows_per_s=None,
                converged=True,
                reason="features at a small load",
                replicas_by="stepwise",
                program=self.program,
                profile=ProfileTrial(step="features", conditions=dict(self.conditions), operators=operators),
            )
        )
        return operators

    def _with_few_tasks(self, ratios: TaskRatios, non_scalable: Collection[str]) -> TaskRatios:
        """Return the ratios with as many tasks for each non-scalable region as it can need.

        One task was enough at the small load of the features, and their input does not grow. Algorithm 1 gives them
        tasks relative to the smallest load of all operators, which may be far too many. Where stages take turns, other
        tasks than those of the rest of a query may need a cut, so only those beyond the slots are left out.
        """
        if not self.settings.fills_slots:
            return ratios
        most = self.settings.slots if self.settings.stages_take_turns else 1
        return replace(
            ratios, tasks={name: min(n, most) if name in non_scalable else n for name, n in ratios.tasks.items()}
        )

    def _filling(self, features: RegionFeatures, fixed: Mapping[str, int]) -> Fill | None:
        if not self.settings.fills_slots:
            return None
        if self.settings.stages_take_turns:
            return TurnFilling(slots=self.settings.slots, free=[name for name in features.loads if name not in fixed])
        seconds = {name: seconds for name, seconds in features.seconds_per_external_row.items() if seconds > 0}
        cores = SharedCores(
            seconds=seconds,
            rows={name: features.visits[name] for name in features.loads},
            inputs=region_inputs(self.flow),
            core_shares=dict.fromkeys(seconds, 1.0),
            slots=self.settings.slots,
            constant=features.non_scalable,
        )
        return SlotFilling(cores=cores, latency_s=self.settings.latency_target_s, fixed=fixed)

    def plan_for(self, tasks: Mapping[str, int], cuts: frozenset[str] = frozenset()) -> Plan:
        """Return the plan with these replicas and cuts, and the required cuts; other regions have one replica."""
        own = {region.name: 1 for region in regions(self.flow) if region.kind is not Kind.SOURCE}
        plan = default_plan(self.flow, slots=self.settings.slots, replicas=own | dict(tasks))
        return plan.replace(cuts=plan.cuts | cuts)

    def _queries(self, configuration: Configuration) -> list[frozenset[str]]:
        return regions_by_query(self.flow, self.plan_for(configuration.tasks, configuration.cuts))

    def _cuts(self) -> dict[str, frozenset[str]]:
        own = [region.name for region in regions(self.flow) if region.kind is not Kind.SOURCE]
        return {name: cuts for name in own if (cuts := separating_cuts(self.flow, name)) is not None}


class _Search:
    """The rounds of a study in their order. Stored rounds are read, all others are made and stored."""

    def __init__(self, study: StepwiseStudy, features: RegionFeatures, report: OnProgress) -> None:
        self._study, self._features, self._report = study, features, report
        self._stored = study.stored_rounds()
        self._trials: list[Trial] = []
        self._results: list[ProfileRound] = []
        settings, times = study.settings, features.seconds_per_external_row
        growing = [seconds for name, seconds in times.items() if name not in features.non_scalable]
        seconds = sum(growing) or sum(times.values())
        # Little's law: the rows that are in flight if all slots are busy and the latency is the target.
        self.rows_per_source_task = settings.headroom * settings.latency_target_s * settings.slots / seconds

    @property
    def rounds(self) -> list[Round]:
        return [_round(trial) for trial in self._trials]

    def follow(self, step: str, start: int, decide: Callable[[Sequence[Round]], Decision]) -> tuple[int, str]:
        """Make trials from the round `start` until the step is finished. Return its best round and why it ended."""
        settings, numbers = self._study.settings, [start]
        while True:
            rounds = [self.rounds[number] for number in numbers]
            decision = decide(rounds)
            if isinstance(decision, Finished):
                return numbers[decision.round], decision.reason
            if len(self._trials) >= settings.max_rounds:
                best = best_round(rounds, settings.latency_target_s)
                return numbers[best], f"the limit of {settings.max_rounds} rounds was reached"
            self.make(step, decision, reference=numbers[decision.reference])
            numbers.append(len(self._trials) - 1)

    def make(self, step: str, planned: NextTrial, reference: int | None = None) -> None:
        number = len(self._trials)
        trial = self._stored[number] if number < len(self._stored) else self._measure(step, planned, reference)
        self._trials.append(trial)
        assert trial.profile is not None
        durations = [made.ended_s - made.began_s for made in self._trials]
        self._results.append(self._result(number))
        left = rounds_left(self._results, max_rounds=self._study.settings.max_rounds)
        self._report(
            ProfileProgress(
                step=trial.profile.step,
                rounds=len(self._trials),
                max_rounds=self._study.settings.max_rounds,
                round=self._results[-1],
                remaining_s=left * fmean(durations),
            )
        )

    def _measure(self, step: str, planned: NextTrial, reference: int | None) -> Trial:
        study, configuration = self._study, planned.configuration
        plan, began_s = study.plan_for(configuration.tasks, configuration.cuts), study.time()
        measured = measure_trial(
            study.fresh,
            plan,
            self._features,
            study.settings.trial_settings(),
            unfinished_rows=self._unfinished_rows(configuration),
            reference=None if reference is None else self._trials[reference].samples,
            ends_when_missed=planned.ends_when_missed,
        )
        trial = Trial(
            study=STUDY,
            executors=study.executors,
            repeat=len(self._trials) + 1,
            plan=plan,
            began_s=began_s,
            ended_s=study.time(),
            rows_per_s=fmean(measured.rows_per_s),
            converged=measured.stationary,
            samples=measured.rows_per_s,
            reason=None if measured.stationary else "the throughput did not become stationary",
            replicas_by="stepwise",
            program=study.program,
            profile=ProfileTrial(
                step="capacity" if step == "capacity" else "platform",
                conditions=dict(study.conditions),
                change=planned.change.value,
                reason=planned.reason,
                source_tasks=configuration.source_tasks,
                throttle=configuration.throttle,
                reference=reference,
                verdict=None if measured.verdict is None else measured.verdict.value,
                latency_s=measured.latency_s,
                regions=dict(measured.regions),
                saved_s=measured.saved_s,
            ),
        )
        study.store.add_trial(trial)
        return trial

    def _unfinished_rows(self, configuration: Configuration) -> int:
        rows = configuration.source_tasks * configuration.throttle * self.rows_per_source_task
        return max(1, math.ceil(rows))

    def _result(self, number: int) -> ProfileRound:
        trial = self._trials[number]
        profile = trial.profile
        assert profile is not None and profile.latency_s is not None and trial.rows_per_s is not None
        low, high = trial_interval(trial.samples)
        before = None if profile.reference is None else self._trials[profile.reference].rows_per_s
        return ProfileRound(
            number=number + 1,
            step="capacity" if profile.step == "capacity" else "platform",
            change=profile.change,
            reason=profile.reason,
            plan=trial.plan,
            source_tasks=profile.source_tasks,
            throttle=profile.throttle,
            rows_per_s=trial.rows_per_s,
            low_rows_per_s=low,
            high_rows_per_s=high,
            latency_s=profile.latency_s,
            verdict=profile.verdict,
            compared_with=None if profile.reference is None else profile.reference + 1,
            gain=None if before is None else trial.rows_per_s / before - 1.0,
            kept=_is_kept(profile),
            seconds=trial.ended_s - trial.began_s,
            saved_s=profile.saved_s,
        )

    def profile(self, best: int, operators: tuple[ProfiledOperator, ...], reason: str) -> Profile:
        target_s = self._study.settings.latency_target_s
        round_ = self.rounds[best]
        return Profile(
            dataflow=self._study.flow.name,
            plan=self._trials[best].plan,
            best=best + 1,
            rows_per_s=round_.mean_rows_per_s,
            latency_s=round_.latency_s,
            latency_target_s=target_s,
            meets_target=round_.meets(target_s),
            unfinished_rows=self._unfinished_rows(round_.configuration),
            source_tasks=round_.configuration.source_tasks,
            throttle=round_.configuration.throttle,
            reason=reason,
            operators=operators,
            rounds=tuple(
                msgspec.structs.replace(
                    result, kept=result.kept or number == best
                )  # such as a throttle that costs throughput
                for number, result in enumerate(self._results)
            ),
            seconds=sum(trial.ended_s - trial.began_s for trial in self._trials),
            saved_s=sum(trial.profile.saved_s for trial in self._trials if trial.profile is not None),
        )


def _is_kept(profile: ProfileTrial) -> bool:
    """Return whether the search continued from this configuration. Only a throttle is kept without an improvement."""
    if profile.verdict in (None, Verdict.BETTER.value):
        return True
    return profile.change == TrialChange.THROTTLE.value and profile.verdict == Verdict.NO_DIFFERENCE.value


def _round(trial: Trial) -> Round:
    profile = trial.profile
    assert profile is not None and profile.latency_s is not None
    return Round(
        configuration=Configuration(
            source_tasks=profile.source_tasks,
            tasks=trial.plan.replicas,
            throttle=profile.throttle,
            cuts=trial.plan.cuts,
        ),
        change=TrialChange(profile.change),
        rows_per_s=trial.samples,
        latency_s=profile.latency_s,
        verdict=None if profile.verdict is None else Verdict(profile.verdict),
        operators={
            name: OperatorMeasurement(
                latency_s=region.latency_s, capacity=region.capacity, processing_s=region.processing_s
            )
            for name, region in profile.regions.items()
        },
    )
