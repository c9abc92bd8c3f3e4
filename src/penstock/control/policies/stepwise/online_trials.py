"""Make the trials of a recalibration on the running pipeline: propose a plan, measure it, keep or revoke it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.control.policies.stepwise.drift import exceeded, remembered
from penstock.control.policies.stepwise.memory import Notes
from penstock.control.policies.stepwise.observation import capacity_per_s, costs_s, live_operators, region_measurements
from penstock.control.policies.stepwise.recalibration import (
    LIMITS,
    Cause,
    Recalibration,
    StepRules,
    next_trial,
    without_idlest,
)
from penstock.control.policies.stepwise.turn import Turn
from penstock.control.policy import Change, Decision, Hold, Reason
from penstock.plan import Plan
from penstock.study.stepwise.configuration import Configuration, Finished, NextTrial, Round, TrialChange
from penstock.study.stepwise.features import minimal_latency_s
from penstock.study.stepwise.region_graph import RegionFeatures, equal_within_queries, region_features
from penstock.study.stepwise.sequential_test import Verdict
from penstock.study.stepwise.task_ratios import task_ratios, whole_ratios

_GAIN = 1.02  # relative increase of the throughput below which a trial is not worth its pause


class OnlineTrials:
    """The part of a recalibration that one turn decides."""

    def __init__(self, turn: Turn) -> None:
        self._turn, self._situation, self._demand = turn, turn.situation, turn.demand

    def begin(self, notes: Notes, cause: Cause) -> tuple[Decision, Notes]:
        """Measure the plan in force as the first round, then begin with the trials."""
        turn = self._turn
        if turn.has_test_load():
            if cause is not Cause.DRIFT:  # the windows of a drift are remembered already
                notes = remembered(self._situation, notes, turn.throughput_per_s)
            if len(notes.samples) < LIMITS.min_windows:
                measured = f"{len(notes.samples)} of {LIMITS.min_windows} windows of the plan in force are measured"
                reason = f"{turn.cause_text(cause)}; {measured} with the backlog as the load."
                return turn.hold(Reason.MEASURING, reason), notes
        elif cause is not Cause.DRIFT and not turn.is_late():
            reason = f"{turn.cause_text(cause)}; the plan in force keeps up, and no backlog exists to test another one."
            return turn.hold(Reason.WITHIN_TARGET, reason), replace(notes, samples=(), costs={})
        features = self.features(notes, cause)
        ratios = task_ratios(features.loads, features.non_scalable)
        ratio = whole_ratios(ratios.ratios, turn.profile.slice_) if ratios.ratios else {}
        if ratio and self._situation.micro_batch:
            ratio = equal_within_queries(self._situation.topology.flow, ratio)
        samples = notes.samples or ((turn.throughput_per_s or turn.load_per_s),)
        state = Recalibration(
            cause=cause,
            slots=turn.slots,
            limit=max(turn.slots, self._situation.slots),
            ratio=ratio,
            fixed=ratios.tasks,
            min_latency_s={name: load.min_latency_s for name, load in features.loads.items()},
            rounds=(self._round(self._situation.plan.replicas, TrialChange.FIRST, samples, None),),
        )
        return self.continue_(replace(notes, over_s=None, samples=(), costs={}), state)

    def continue_(self, notes: Notes, state: Recalibration) -> tuple[Decision, Notes]:
        """Return the decision on the trial that is being made, or on the next one."""
        turn, changes = self._turn, len(self._situation.changes)
        while True:
            state, planned = next_trial(state, self._rules(), self._first_configuration, self._fitted)
            if isinstance(planned, Finished):
                return self._finish(notes, state, planned)
            plan = self._rescaled(planned.configuration)
            if self._situation.plan == plan:
                state, verdict = self._measured(state, planned)
                if verdict is None:
                    return self._measuring(state), replace(notes, recalibration=state)
            elif state.changes is None or state.changes == changes:
                if state.cause is Cause.DRIFT and not state.has_trial and not self._is_exceeded(state):
                    reason = "Backlog and latency are below their thresholds again; the plan is not recalibrated."
                    return turn.hold(Reason.WITHIN_TARGET, reason), replace(notes, recalibration=None)
                state = replace(state, changes=changes)
                return self._trial(state, planned, plan), replace(notes, recalibration=state)
            else:  # the controller has rolled the trial back
                verdict = Verdict.WORSE
            samples = state.samples or state.rounds[planned.reference].rows_per_s
            state = replace(state, has_trial=True).ended(
                self._round(planned.configuration.tasks, planned.change, samples, verdict)
            )

    def features(self, notes: Notes, cause: Cause) -> RegionFeatures:
        """Return the features of the profile for a resized platform, else those of live windows."""
        turn, operators = self._turn, self._turn.profile.operators
        if cause is not Cause.PLATFORM:
            costs = notes.costs or {name: (cost,) for name, cost in costs_s(turn.window).items()}
            minimal_s = {name: minimal_latency_s(values) for name, values in costs.items()}
            # Also after a change of the program: most operators stay as they were, and a type cannot be seen live.
            types = {features.operator: features.type for features in turn.profile.operators}
            operators = live_operators(self._situation, self._demand, minimal_s, types)
        return region_features(self._situation.topology.flow, operators)

    def _measured(self, state: Recalibration, planned: NextTrial) -> tuple[Recalibration, Verdict | None]:
        """Measure the trial that is in force. Without a backlog there is nothing left to test: the plan suffices."""
        turn, reference = self._turn, state.rounds[planned.reference]
        state = replace(state, has_trial=True)
        if not turn.has_test_load() and not turn.is_late():
            return replace(state, samples=(max(turn.load_per_s, reference.mean_rows_per_s),)), Verdict.BETTER
        if turn.throughput_per_s is None:
            return state, None
        return state.measured(planned, turn.throughput_per_s)

    def _finish(self, notes: Notes, state: Recalibration, finished: Finished) -> tuple[Decision, Notes]:
        """Return to the best plan if another one is in force. Its throughput is the sustained one from now on."""
        turn, cause = self._turn, self._turn.cause_text(state.cause)
        best = state.rounds[finished.round]
        plan, rate = self._rescaled(best.configuration), best.mean_rows_per_s
        settled = replace(notes, recalibration=None, sustained=rate)
        if plan != self._situation.plan and state.has_trial:
            reason = f"{cause}; the last trial is revoked, because {finished.reason}."
            # A guard may delay the change. A worse plan is revoked later; a plan of the same throughput may stay.
            is_worse = any(
                round_.verdict is Verdict.WORSE and self._rescaled(round_.configuration) == self._situation.plan
                for round_ in state.rounds
            )
            return turn.change(plan, rate, reason), replace(notes, recalibration=state) if is_worse else settled
        if turn.load_per_s > rate:
            reason = f"{cause}; no better plan exists for {turn.slots} slots: {finished.reason}."
            return turn.hold(Reason.AT_LIMIT, reason, needs_slots=turn.needed_slots(rate)), settled
        return turn.hold(Reason.BEST, f"{cause}; the plan in force is kept, because {finished.reason}."), settled

    def _first_configuration(self, state: Recalibration) -> Configuration:
        """Return the multiple of the ratio that has the highest capacity at the measured costs within the limit."""
        current = dict(self._situation.plan.replicas)
        candidates = []
        for multiple in range(1, state.limit + 1):
            tasks = current | dict(state.fixed) | {name: multiple * count for name, count in state.ratio.items()}
            plan = self._rescaled(Configuration(tasks=tasks))
            if self._turn.tasks(plan) > state.limit:
                break
            candidates.append((self._capacity_per_s(plan), -multiple, tasks))
        if not candidates:
            return Configuration(tasks=dict.fromkeys(current, 1))
        return Configuration(tasks=max(candidates, key=lambda candidate: candidate[:2])[2])

    def _fitted(self, state: Recalibration, planned: NextTrial) -> NextTrial | None:
        """Return a trial that fits into the platform and has a higher capacity at the measured costs, or None.

        A trial that was proposed already had a higher capacity then.
        """
        reference = state.rounds[planned.reference]

        def fits(configuration: Configuration) -> bool:
            return self._turn.tasks(self._rescaled(configuration)) <= state.limit

        if planned.change is TrialChange.OPERATOR:
            moved = without_idlest(planned, reference, state.ratio, fits)
            if moved is None:
                return None
            planned = moved
        elif not fits(planned.configuration):
            return None
        if state.changes is not None:
            return planned
        before = self._capacity_per_s(self._rescaled(reference.configuration))
        return planned if self._capacity_per_s(self._rescaled(planned.configuration)) > _GAIN * before else None

    def _capacity_per_s(self, plan: Plan) -> float:
        return capacity_per_s(self._situation, self._demand, plan)

    def _rescaled(self, configuration: Configuration) -> Plan:
        return self._situation.topology.rescaled(self._situation.plan, dict(configuration.tasks))

    def _rules(self) -> StepRules:
        profile, situation = self._turn.profile, self._situation
        queries = None
        if situation.micro_batch:
            queries = [frozenset(query) for query in situation.topology.queries(situation.plan.cuts)]
        return StepRules(latency_target_s=profile.latency_target_s, alpha=profile.alpha, k=profile.k, queries=queries)

    def _round(
        self, tasks: Mapping[str, int], change: TrialChange, samples: tuple[float, ...], verdict: Verdict | None
    ) -> Round:
        latency = self._turn.latest.latency
        return Round(
            configuration=Configuration(tasks=dict(tasks)),
            change=change,
            rows_per_s=samples,
            # The latency is that of the backlog. Without a row that has come out, it is above the target.
            latency_s=2.0 * self._turn.profile.latency_target_s if latency is None else latency.mean_s,
            verdict=verdict,
            operators=region_measurements(self._situation, self._demand),
        )

    def _is_exceeded(self, state: Recalibration) -> bool:
        profiled = self._turn.profiled_plan()
        rate = state.rounds[0].mean_rows_per_s if profiled is None else profiled.rows_per_s
        return exceeded(self._situation, self._turn.thresholds(rate)) is not None

    def _trial(self, state: Recalibration, planned: NextTrial, plan: Plan) -> Change:
        reference = state.rounds[planned.reference]
        factor = self._capacity_per_s(plan) / self._capacity_per_s(self._rescaled(reference.configuration))
        reason = (
            f"{self._turn.cause_text(state.cause)}; step {state.step.value} tries another plan, because "
            f"{planned.reason}: the measured costs predict {factor - 1.0:.0%} more rows/s."
        )
        return self._turn.change(plan, reference.mean_rows_per_s * factor, reason)

    def _measuring(self, state: Recalibration) -> Hold:
        measured = f"{len(state.samples)} windows of the trial are measured"
        needed = f"its test needs {LIMITS.min_windows} to {LIMITS.max_windows}"
        return self._turn.hold(Reason.MEASURING, f"{self._turn.cause_text(state.cause)}; {measured}, and {needed}.")
