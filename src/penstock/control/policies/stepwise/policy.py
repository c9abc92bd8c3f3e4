"""The decisions of the policy: apply the profiled plan of the platform, and recalibrate it for one of three causes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.control.demand import Demand, demand_of
from penstock.control.evaluation import normal_backlog_rows
from penstock.control.policies.stepwise.drift import Condition, Thresholds, exceeded, remembered, watched
from penstock.control.policies.stepwise.memory import Notes
from penstock.control.policies.stepwise.observation import (
    capacity_per_s,
    costs_s,
    live_operators,
    region_measurements,
    throughput_per_s,
)
from penstock.control.policies.stepwise.recalibration import (
    LIMITS,
    Cause,
    Recalibration,
    StepRules,
    next_trial,
    without_idlest,
)
from penstock.control.policy import Change, Decision, Hold, Inputs, Memory, Reason, Situation
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.study.stepwise.configuration import Change as TrialChange
from penstock.study.stepwise.configuration import Configuration, Finished, NextTrial, Round
from penstock.study.stepwise.features import minimal_latency_s
from penstock.study.stepwise.region_graph import equal_within_queries, region_features
from penstock.study.stepwise.sequential_test import Verdict, confidence_interval
from penstock.study.stepwise.stored_profile import ProfiledPlan, StoredProfile
from penstock.study.stepwise.task_ratios import task_ratios, whole_ratios

_GAIN = 1.02  # relative increase of the throughput below which a trial is not worth its pause


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseSettings:
    profile: StoredProfile
    program_changed: bool = False  # whether the program is another one than the profiled one
    drift_s: float = 60.0  # time for which backlog or latency must be above their threshold


@dataclass(frozen=True, slots=True)
class Stepwise:
    settings: StepwiseSettings
    name: str = field(default="stepwise", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        if isinstance(demand, Hold):
            return demand, memory
        decision, notes = _Turn(self.settings, situation, demand).decide(Notes.of(memory))
        return decision, notes.to_memory(memory)


class _Turn:
    """One decision in one situation."""

    def __init__(self, settings: StepwiseSettings, situation: Situation, demand: Demand) -> None:
        self._settings, self._profile = settings, settings.profile
        self._situation, self._demand = situation, demand
        self._slots = situation.max_slots
        self._changed = settings.program_changed or not _fits(self._profile, situation)
        assert situation.latest is not None
        self._latest = situation.latest
        self._throughput_per_s = throughput_per_s(situation, self._not_scalable())
        self._inputs: Inputs = {
            **demand.inputs(situation.latest),
            "backlog_rows": situation.backlog_rows(situation.latest),
            "throughput_rows_per_s": self._throughput_per_s,
            "platform_slots": self._slots,
        }

    def decide(self, notes: Notes) -> tuple[Decision, Notes]:
        resized = notes.slots not in (None, self._slots)
        if resized or notes.changed != self._changed:
            notes = Notes(slots=notes.slots, changed=self._changed)
        before, notes = notes.slots, replace(notes, slots=self._slots)
        if notes.recalibration is not None:
            return self._recalibrate(notes, notes.recalibration)
        if notes.sustained is not None:
            return self._watch(notes, notes.sustained)
        profiled = None if self._changed else self._profiled_plan()
        if profiled is None:
            return self._begin(notes, Cause.PROGRAM if self._changed else Cause.PLATFORM)
        if self._plan_of(profiled.plan) == self._situation.plan:
            return self._watch(notes, profiled.rows_per_s)
        size = f"{self._slots} slots" + (f" instead of {before}" if resized else "")
        reason = f"The platform has {size}; the profiled plan for it sustained {profiled.rows_per_s:.4g} rows/s"
        if resized:  # until the plan is in force: a guard may delay it
            notes = replace(notes, slots=before)
        return self._change(self._plan_of(profiled.plan), profiled.rows_per_s, f"{reason}.", Reason.PROFILED), notes

    # ---- the profile

    def _profiled_plan(self) -> ProfiledPlan | None:
        """Return the plan for this size of the platform. Its tasks may exceed the slots only if it has all of them."""
        profiled = self._profile.plan_for(self._slots)
        if profiled is None or self._situation.plan.slots <= self._slots:
            return profiled
        return profiled if self._tasks(profiled.plan) <= self._slots else None

    def _plan_of(self, plan: Plan) -> Plan:
        return plan.replace(slots=self._situation.plan.slots)

    def _tasks(self, plan: Plan) -> int:
        return self._situation.topology.slots(plan, micro_batch=self._situation.micro_batch)

    def _not_scalable(self) -> frozenset[str]:
        if self._changed:
            return frozenset()
        return region_features(self._situation.topology.flow, self._profile.operators).non_scalable

    # ---- data drift

    def _watch(self, notes: Notes, sustained_per_s: float) -> tuple[Decision, Notes]:
        thresholds = self._thresholds(sustained_per_s)
        condition, notes = watched(self._situation, notes, thresholds, self._throughput_per_s)
        if notes.sustained is not None and len(notes.samples) >= LIMITS.min_windows:  # the plan may sustain more
            notes = replace(notes, sustained=max(notes.sustained, confidence_interval(notes.samples)[0]))
        if condition is Condition.DRIFT:
            return self._begin(notes, Cause.DRIFT)
        load, what = self._demand.external_per_s, exceeded(self._situation, thresholds)
        if load > sustained_per_s or condition is Condition.HIGH_LOAD:
            reason = (
                f"The load of {load:.4g} rows/s is not below the {sustained_per_s:.4g} rows/s that the plan sustained; "
                "this is not data drift."
            )
            if load <= sustained_per_s:
                reason = f"{_capital(what)}, but the throughput is not clearly below the {sustained_per_s:.4g} rows/s "
                reason += "that the plan sustained; this is not data drift."
                return self._hold(Reason.CATCHING_UP, reason), notes
            return self._hold(Reason.AT_LIMIT, reason, needs_slots=self._needed_slots(sustained_per_s)), notes
        if condition is Condition.SUSPECTED:
            assert notes.over_s is not None
            reason = f"{_capital(what)} since {self._latest.end_s - notes.over_s:.0f} s"
            reason += f"; drift requires {thresholds.lasting_s:g} s and two measured windows."
            return self._hold(Reason.NOT_YET, reason), notes
        reason = f"The load of {load:.4g} rows/s is below the {sustained_per_s:.4g} rows/s that the plan sustained."
        return self._hold(Reason.WITHIN_TARGET, reason), notes

    def _thresholds(self, sustained_per_s: float) -> Thresholds:
        profiled_s = max((one.latency_s for one in self._profile.plans), default=0.0)
        latency_s = max(self._profile.latency_target_s, profiled_s)
        return Thresholds(sustained_per_s=sustained_per_s, latency_s=latency_s, lasting_s=self._settings.drift_s)

    def _needed_slots(self, sustained_per_s: float) -> int:
        """Return the slots for the current load: a profiled size, else in proportion to the rate."""
        load = self._demand.external_per_s
        profiled = None if self._changed else self._profile.slots_for(load)
        proportional = math.ceil(self._slots * load / sustained_per_s) if sustained_per_s > 0 else None
        return max(self._slots + 1, profiled or proportional or 0)

    # ---- recalibration

    def _begin(self, notes: Notes, cause: Cause) -> tuple[Decision, Notes]:
        """Measure the plan in force as the first round, then begin with the trials."""
        if self._has_test_load():
            if cause is not Cause.DRIFT:  # the windows of a drift are remembered already
                notes = remembered(self._situation, notes, self._throughput_per_s)
            if len(notes.samples) < LIMITS.min_windows:
                reason = f"{self._cause(cause)}; {len(notes.samples)} of {LIMITS.min_windows} windows of the plan in "
                return self._hold(Reason.MEASURING, reason + "force are measured with the backlog as the load."), notes
        elif cause is not Cause.DRIFT and not self._is_late():
            reason = f"{self._cause(cause)}; the plan in force keeps up, and no backlog exists to test another one."
            return self._hold(Reason.WITHIN_TARGET, reason), replace(notes, samples=(), costs={})
        samples = notes.samples or ((self._throughput_per_s or self._demand.external_per_s),)
        costs = notes.costs or {name: (cost,) for name, cost in costs_s(self._window()).items()}
        minimal_s = {name: minimal_latency_s(values) for name, values in costs.items()}
        operators = self._profile.operators
        if cause is not Cause.PLATFORM:  # a resized platform changes neither the program nor its data
            types = {} if self._changed else {one.operator: one.type for one in self._profile.operators}
            operators = live_operators(self._situation, self._demand, minimal_s, types)
        features = region_features(self._situation.topology.flow, operators)
        ratios = task_ratios(features.loads, features.non_scalable)
        ratio = whole_ratios(ratios.ratios, self._profile.slice_) if ratios.ratios else {}
        if ratio and self._situation.micro_batch:
            ratio = equal_within_queries(self._situation.topology.flow, ratio)
        state = Recalibration(
            cause=cause,
            slots=self._slots,
            limit=max(self._slots, self._situation.slots),
            ratio=ratio,
            fixed=ratios.tasks,
            min_latency_s={name: load.min_latency_s for name, load in features.loads.items()},
            rounds=(self._round(self._situation.plan.replicas, TrialChange.FIRST, samples, None),),
        )
        return self._recalibrate(replace(notes, over_s=None, samples=(), costs={}), state)

    def _recalibrate(self, notes: Notes, state: Recalibration) -> tuple[Decision, Notes]:
        while True:
            state, planned = next_trial(state, self._rules(), self._first_configuration, self._fitted)
            if isinstance(planned, Finished):
                return self._finish(notes, state, planned)
            plan = self._rescaled(planned.configuration)
            if self._situation.plan == plan:
                state, verdict = self._measured(state, planned)
                if verdict is None:
                    return self._measuring(state), replace(notes, recalibration=state)
            elif state.changes is None or state.changes == len(self._situation.changes):
                if state.cause is Cause.DRIFT and not state.has_trial and not self._is_exceeded(state):
                    reason = "Backlog and latency are below their thresholds again; the plan is not recalibrated."
                    return self._hold(Reason.WITHIN_TARGET, reason), replace(notes, recalibration=None)
                state = replace(state, changes=len(self._situation.changes))
                return self._trial(state, planned, plan), replace(notes, recalibration=state)
            else:  # the controller has rolled the trial back
                verdict = Verdict.WORSE
            samples = state.samples or state.rounds[planned.reference].rows_per_s
            state = replace(state, has_trial=True).ended(
                self._round(planned.configuration.tasks, planned.change, samples, verdict)
            )

    def _measured(self, state: Recalibration, planned: NextTrial) -> tuple[Recalibration, Verdict | None]:
        """Measure the trial that is in force. Without a backlog there is nothing left to test: the plan suffices."""
        state, reference = replace(state, has_trial=True), state.rounds[planned.reference]
        if not self._has_test_load() and not self._is_late():
            load = max(self._demand.external_per_s, reference.mean_rows_per_s)
            return replace(state, samples=(load,)), Verdict.BETTER
        if self._throughput_per_s is None:
            return state, None
        return state.measured(planned, self._throughput_per_s)

    def _finish(self, notes: Notes, state: Recalibration, finished: Finished) -> tuple[Decision, Notes]:
        best = state.rounds[finished.round]
        plan, rate = self._rescaled(best.configuration), best.mean_rows_per_s
        if plan != self._situation.plan and state.has_trial:
            reason = f"{self._cause(state.cause)}; the last trial is revoked, because {finished.reason}."
            return self._change(plan, rate, reason), replace(notes, recalibration=state)
        notes = replace(notes, recalibration=None, sustained=rate)
        reason = f"{self._cause(state.cause)}; the plan in force is kept, because {finished.reason}."
        if self._demand.external_per_s > rate:
            needs = self._needed_slots(rate)
            reason = f"{self._cause(state.cause)}; no better plan exists for {self._slots} slots: {finished.reason}."
            return self._hold(Reason.AT_LIMIT, reason, needs_slots=needs), notes
        return self._hold(Reason.BEST, reason), notes

    def _first_configuration(self, state: Recalibration) -> Configuration:
        """Return the multiple of the ratio that has the highest capacity at the measured costs within the limit."""
        current = dict(self._situation.plan.replicas)
        candidates = []
        for multiple in range(1, state.limit + 1):
            tasks = current | dict(state.fixed) | {name: multiple * count for name, count in state.ratio.items()}
            plan = self._rescaled(Configuration(tasks=tasks))
            if self._tasks(plan) > state.limit:
                break
            candidates.append((capacity_per_s(self._situation, self._demand, plan), -multiple, tasks))
        if not candidates:
            return Configuration(tasks=dict.fromkeys(current, 1))
        return Configuration(tasks=max(candidates, key=lambda candidate: candidate[:2])[2])

    def _fitted(self, state: Recalibration, planned: NextTrial) -> NextTrial | None:
        """Return a trial that fits into the platform and has a higher capacity at the measured costs, or None.

        A trial that was proposed already had a higher capacity then.
        """
        reference = state.rounds[planned.reference]

        def fits(configuration: Configuration) -> bool:
            return self._tasks(self._rescaled(configuration)) <= state.limit

        if planned.change is TrialChange.OPERATOR:
            moved = without_idlest(planned, reference, state.ratio, fits)
            if moved is None:
                return None
            planned = moved
        elif not fits(planned.configuration):
            return None
        if state.changes is not None:
            return planned
        before = capacity_per_s(self._situation, self._demand, self._rescaled(reference.configuration))
        after = capacity_per_s(self._situation, self._demand, self._rescaled(planned.configuration))
        return planned if after > _GAIN * before else None

    def _rescaled(self, configuration: Configuration) -> Plan:
        return self._situation.topology.rescaled(self._situation.plan, dict(configuration.tasks))

    def _rules(self) -> StepRules:
        profile = self._profile
        queries = None
        if self._situation.micro_batch:
            queries = [frozenset(query) for query in self._situation.topology.queries(self._situation.plan.cuts)]
        return StepRules(latency_target_s=profile.latency_target_s, alpha=profile.alpha, k=profile.k, queries=queries)

    def _round(
        self, tasks: Mapping[str, int], change: TrialChange, samples: tuple[float, ...], verdict: Verdict | None
    ) -> Round:
        latency = self._latest.latency
        return Round(
            configuration=Configuration(tasks=dict(tasks)),
            change=change,
            rows_per_s=samples,
            # The latency is that of the backlog. Without a row that has come out, it is above the target.
            latency_s=2.0 * self._profile.latency_target_s if latency is None else latency.mean_s,
            verdict=verdict,
            operators=region_measurements(self._situation, self._demand),
        )

    def _has_test_load(self) -> bool:
        """Return whether so many rows wait that every task always has input."""
        return self._situation.backlog_rows(self._latest) > normal_backlog_rows(self._situation, self._latest)

    def _is_late(self) -> bool:
        latency = self._latest.latency
        return latency is not None and latency.mean_s > self._thresholds(0.0).latency_s

    def _is_exceeded(self, state: Recalibration) -> bool:
        profiled = self._profiled_plan()
        rate = state.rounds[0].mean_rows_per_s if profiled is None else profiled.rows_per_s
        return exceeded(self._situation, self._thresholds(rate)) is not None

    def _window(self) -> Window:
        assert self._situation.window is not None
        return self._situation.window

    # ---- decisions

    def _trial(self, state: Recalibration, planned: NextTrial, plan: Plan) -> Change:
        reference = state.rounds[planned.reference]
        now = capacity_per_s(self._situation, self._demand, self._rescaled(reference.configuration))
        factor = capacity_per_s(self._situation, self._demand, plan) / now
        expected = reference.mean_rows_per_s * factor
        reason = (
            f"{self._cause(state.cause)}; step {state.step.value} tries another plan, because {planned.reason}: the "
            f"measured costs predict {factor - 1.0:.0%} more rows/s."
        )
        return self._change(plan, expected, reason)

    def _change(self, plan: Plan, rows_per_s: float, reason: str, code: Reason = Reason.RECALIBRATION) -> Change:
        load = self._demand.external_per_s
        return Change(
            plan=plan,
            reason_code=code,
            reason=reason,
            staying=PlanOutcome(slots=self._situation.slots, rows_per_s=self._throughput_per_s),
            expected=PlanOutcome(
                slots=self._tasks(plan),
                rows_per_s=rows_per_s if self._has_test_load() else min(load, rows_per_s),
                at_most_s=self._profile.latency_target_s,
            ),
            inputs=self._inputs,
            binding=self._busiest(),
        )

    def _hold(self, code: Reason, reason: str, needs_slots: int | None = None) -> Hold:
        return Hold(
            reason_code=code, reason=reason, inputs=self._inputs, binding=self._busiest(), needs_slots=needs_slots
        )

    def _measuring(self, state: Recalibration) -> Hold:
        reason = f"{self._cause(state.cause)}; {len(state.samples)} windows of the trial are measured, and its test "
        return self._hold(Reason.MEASURING, f"{reason}needs {LIMITS.min_windows} to {LIMITS.max_windows}.")

    def _cause(self, cause: Cause) -> str:
        if cause is Cause.PLATFORM:
            sizes = ", ".join(str(one.plan.slots) for one in self._profile.plans)
            return f"The platform has {self._slots} slots, and the profile has plans for {sizes}"
        if cause is Cause.PROGRAM:
            return "The program has changed since it was profiled"
        return "The data has changed: the plan no longer sustains the rate that it sustained before"

    def _busiest(self) -> str:
        return max(self._demand.loads.values(), key=lambda load: load.utilisation).region


def _fits(profile: StoredProfile, situation: Situation) -> bool:
    """Return whether the profiled plans and features are for these operators."""
    topology = situation.topology
    regions = {region.name for region in topology.regions}
    return {one.operator for one in profile.operators} == set(topology.operators) and all(
        one.plan.replicas.keys() == regions and one.plan.dataflow == situation.plan.dataflow for one in profile.plans
    )


def _capital(text: str | None) -> str:
    return "" if not text else text[0].upper() + text[1:]
