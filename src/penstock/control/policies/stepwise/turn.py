"""One decision: the situation as this policy sees it, and the texts and numbers of its decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.control.demand import Demand
from penstock.control.evaluation import normal_backlog_rows
from penstock.control.policies.stepwise.drift import Thresholds
from penstock.control.policies.stepwise.observation import throughput_per_s
from penstock.control.policies.stepwise.recalibration import Cause
from penstock.control.policy import Change, Hold, Inputs, Reason, Situation
from penstock.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.study.stepwise.region_graph import region_features
from penstock.study.stepwise.stored_profile import ProfiledPlan, StoredProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalibrationSettings:
    profile: StoredProfile
    program_changed: bool = False  # whether the program is another one than the profiled one
    drift_s: float = 60.0  # time for which backlog or latency must be above their threshold


class Turn:
    """The measured situation, compared with the profile."""

    def __init__(self, settings: RecalibrationSettings, situation: Situation, demand: Demand) -> None:
        assert situation.latest is not None and situation.window is not None
        self.profile, self.situation, self.demand = settings.profile, situation, demand
        self.latest, self.window = situation.latest, situation.window
        self.slots = situation.max_slots  # size of the platform
        self.is_changed = settings.program_changed or not _fits(self.profile, situation)
        self.load_per_s = demand.external_per_s
        self.throughput_per_s = throughput_per_s(situation, self._not_scalable())
        self._drift_s = settings.drift_s
        self._inputs: Inputs = {
            **demand.inputs(situation.latest),
            "backlog_rows": situation.backlog_rows(situation.latest),
            "throughput_rows_per_s": self.throughput_per_s,
            "platform_slots": self.slots,
        }

    def _not_scalable(self) -> frozenset[str]:
        if self.is_changed:
            return frozenset()
        return region_features(self.situation.topology.flow, self.profile.operators).non_scalable

    # ---- the profile

    def profiled_plan(self) -> ProfiledPlan | None:
        """Return the plan for this size of the platform. Its tasks may exceed the slots only if it has all of them."""
        profiled = None if self.is_changed else self.profile.plan_for(self.slots)
        if profiled is None or self.situation.plan.slots <= self.slots:
            return profiled
        return profiled if self.tasks(profiled.plan) <= self.slots else None

    def tasks(self, plan: Plan) -> int:
        return self.situation.topology.slots(plan, micro_batch=self.situation.micro_batch)

    def thresholds(self, sustained_per_s: float) -> Thresholds:
        profiled_s = max((profiled.latency_s for profiled in self.profile.plans), default=0.0)
        latency_s = max(self.profile.latency_target_s, profiled_s)
        return Thresholds(sustained_per_s=sustained_per_s, latency_s=latency_s, lasting_s=self._drift_s)

    def needed_slots(self, sustained_per_s: float) -> int:
        """Return the slots for the current load: a profiled size, else in proportion to the rate."""
        profiled = None if self.is_changed else self.profile.slots_for(self.load_per_s)
        proportional = math.ceil(self.slots * self.load_per_s / sustained_per_s) if sustained_per_s > 0 else None
        return max(self.slots + 1, profiled or proportional or 0)

    # ---- the load

    def has_test_load(self) -> bool:
        """Return whether so many rows wait that every task always has input."""
        return self.situation.backlog_rows(self.latest) > normal_backlog_rows(self.situation, self.latest)

    def is_late(self) -> bool:
        latency = self.latest.latency
        return latency is not None and latency.mean_s > self.thresholds(0.0).latency_s

    # ---- decisions

    def change(self, plan: Plan, rows_per_s: float, reason: str, code: Reason = Reason.RECALIBRATION) -> Change:
        """Return the change to a plan that can process so many rows/s."""
        return Change(
            plan=plan,
            reason_code=code,
            reason=reason,
            staying=PlanOutcome(slots=self.situation.slots, rows_per_s=self.throughput_per_s),
            expected=PlanOutcome(
                slots=self.tasks(plan),
                rows_per_s=rows_per_s if self.has_test_load() else min(self.load_per_s, rows_per_s),
                at_most_s=self.profile.latency_target_s,
            ),
            inputs=self._inputs,
            binding=self._busiest(),
        )

    def hold(self, code: Reason, reason: str, needs_slots: int | None = None) -> Hold:
        return Hold(
            reason_code=code, reason=reason, inputs=self._inputs, binding=self._busiest(), needs_slots=needs_slots
        )

    def cause_text(self, cause: Cause) -> str:
        if cause is Cause.PLATFORM:
            sizes = ", ".join(str(profiled.plan.slots) for profiled in self.profile.plans)
            return f"The platform has {self.slots} slots, and the profile has plans for {sizes}"
        if cause is Cause.PROGRAM:
            return "The program has changed since it was profiled"
        return "The data has changed: the plan no longer sustains the rate that it sustained before"

    def _busiest(self) -> str:
        return max(self.demand.loads.values(), key=lambda load: load.utilisation).region


def _fits(profile: StoredProfile, situation: Situation) -> bool:
    """Return whether the profiled plans and features are for these operators."""
    topology = situation.topology
    regions = {region.name for region in topology.regions}
    return {operator.operator for operator in profile.operators} == set(topology.operators) and all(
        profiled.plan.replicas.keys() == regions and profiled.plan.dataflow == situation.plan.dataflow
        for profiled in profile.plans
    )
