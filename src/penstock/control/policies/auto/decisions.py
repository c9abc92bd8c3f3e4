"""Decisions of policy auto as values: the observation, the action, and the expected effect."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.policies.auto.choices import Choice, Chooser, View
from penstock.control.policies.auto.replay import ReplayedPlan
from penstock.control.policies.auto.sentences import bottleneck, interval, observed
from penstock.control.policy import Change, Decision, Hold, Reason
from penstock.plan.counts import slots_text
from penstock.planning.plan_outcome import Alternative, PlanOutcome


@dataclass(frozen=True, slots=True)
class Decisions:
    """Makes decisions with their reasons."""

    chooser: Chooser

    def change(
        self,
        view: View,
        staying: ReplayedPlan,
        choice: Choice,
        reason_code: Reason,
        more: str,
        *,
        needs: int | None = None,
        binding: str | None = None,
    ) -> Decision:
        situation = view.situation
        plan = self.chooser.plan_of(view, choice.network, choice.counts)
        if plan == situation.plan:
            return self.hold(view, staying, Reason.BEST, more or "no better plan is known", needs=needs)
        expected = self.outcome(choice.slots, choice.result)
        paid = self.chooser.paid(situation)
        text = (
            f"{observed(view, self.chooser.target, paid)}; {slots_text(choice.slots)} instead of {paid} should give "
            f"{interval(choice.result)}."
        )
        return Change(
            plan=plan,
            reason_code=reason_code,
            reason=f"{text} {more}." if more else text,
            staying=self.outcome(self.chooser.paid(situation), staying),
            expected=expected,
            inputs=view.inputs,
            binding=binding or bottleneck(view),
            alternatives=(
                Alternative(
                    replicas=situation.plan.replicas,
                    expected=self.outcome(situation.slots, staying),
                    reason=f"The current plan would be late in {staying.late:.1%} of the windows.",
                ),
            ),
            needs_slots=needs,
        )

    def hold(
        self,
        view: View,
        staying: ReplayedPlan,
        reason_code: Reason,
        why: str,
        *,
        needs: int | None = None,
        binding: str | None = None,
    ) -> Hold:
        seen = observed(view, self.chooser.target, self.chooser.paid(view.situation))
        return Hold(
            reason_code=reason_code,
            reason=f"{seen}; {why}. Expected: {interval(staying)}.",
            inputs=view.inputs,
            binding=binding or bottleneck(view),
            needs_slots=needs,
        )

    def outcome(self, slots: int, result: ReplayedPlan) -> PlanOutcome:
        target = self.chooser.target
        low_s, high_s = result.interval_s
        return PlanOutcome(
            slots=slots,
            latency_s=result.latency_s,
            low_s=low_s,
            high_s=high_s,
            quantile=None if target is None else target.quantile,
            at_most_s=None if target is None else target.seconds,
        )
