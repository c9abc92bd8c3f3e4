"""PayBack: what a change costs against what it gains, within a horizon.

While a change is carried out for p seconds, rows pile up and then drain. With lambda rows/s arriving and the share rho
of the new plan busy, the rows that are delayed wait together

    cost = lambda p^2 / (2 (1 - rho))      row-seconds (the area under the backlog, growing for p and then draining)
    gain = lambda (T_staying - T_expected) row-seconds a second

and a release, which costs latency to gain slots, is counted in slots: p seconds of all of them against those released.
A change is worth it where cost / gain is at most the horizon. p is what changes of this run took so far (the median),
or `pause_s` before there are any, plus the state of the regions that change, moved at `bytes_per_s`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

from penstock.control.decisions import Change, Decision, Reason
from penstock.control.situation import Memory, Policy, Situation
from penstock.plan.plan import diff


@dataclass(frozen=True, slots=True)
class PayBack:
    policy: Policy
    within_s: float = field(kw_only=True)
    pause_s: float = field(default=3.0, kw_only=True)
    bytes_per_s: float = field(default=20e6, kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if isinstance(decision, Change):
            paid_s = self.paid_back_s(situation, decision)
            if paid_s is not None and paid_s > self.within_s:
                why = f"it would pay for its pause in {paid_s:.0f} s, and {self.within_s:g} s are allowed"
                return decision.held(Reason.NOT_PAID_BACK, why), memory
        return decision, memory

    def paid_back_s(self, situation: Situation, change: Change) -> float | None:
        """None where nobody knows: then it is not for this guard to refuse."""
        pause_s, staying, expected = self._pause_s(situation, change), change.staying, change.expected
        if expected.slots < staying.slots:
            return pause_s * staying.slots / (staying.slots - expected.slots)
        if staying.latency_s is None or expected.latency_s is None:
            return None
        gained_s = staying.latency_s - expected.latency_s
        if gained_s <= 0:
            return math.inf
        return pause_s**2 / (2.0 * (1.0 - _busiest(situation, change))) / gained_s

    def _pause_s(self, situation: Situation, change: Change) -> float:
        took = [one.pause_s for one in situation.changes if one.pause_s is not None]
        moved = _state_bytes(situation, change) / self.bytes_per_s if not took else 0.0
        return (median(took) if took else self.pause_s) + moved


def _state_bytes(situation: Situation, change: Change) -> float:
    changed = diff(situation.plan, change.plan).replicas
    inside = {name for region in situation.shape.regions if region.name in changed for name in region.operators}
    window = situation.window
    return sum(one.state_bytes or 0 for one in window.operators if one.operator in inside) if window else 0.0


def _busiest(situation: Situation, change: Change) -> float:
    """rho of the busiest operator under the new plan, from what it does now; below 1, as backlogs are to drain."""
    window = situation.window
    home = {name: region.name for region in situation.shape.regions for name in region.operators}
    shares = [
        one.utilisation * situation.plan.replicas[home[one.operator]] / change.plan.replicas[home[one.operator]]
        for one in (window.operators if window else ())
        if one.utilisation is not None and one.operator in home
    ]
    return min(0.99, max(shares, default=0.5))
