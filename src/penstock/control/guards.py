"""Guards: wrappers around a policy that may turn a Change into a Hold, and do nothing else.

They compose: `Cooldown(Bounded(PayBack(Hysteresis(policy), within_s=600), max_slots=64), seconds=300)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from penstock.control.policy import Change, Decision, Memory, Policy, Reason, Situation
from penstock.control.quiet_hours import Quiet
from penstock.plan.counts import slots_text
from penstock.plan.plan import Plan, diff
from penstock.planning.plan_outcome import PlanOutcome

_FASTER = 0.02  # relative increase of the throughput from which it counts as higher
WANTED, AFTER = "hysteresis.wanted", "hysteresis.after"


@dataclass(frozen=True, slots=True)
class Bounded:
    """Limit the slots in total and the replicas by region.

    The policy sees the slot limit and plans within it. A plan that exceeds a limit nevertheless is vetoed.
    """

    policy: Policy
    max_slots: int | None = field(default=None, kw_only=True)
    max_replicas: Mapping[str, int] = field(default_factory=dict, kw_only=True)  # by region

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation.with_max_slots(self._limit(situation)), memory)
        if isinstance(decision, Change) and (reason := self.forbids(decision.plan, situation)) is not None:
            return decision.vetoed(Reason.OUT_OF_BOUNDS, reason), memory
        return decision, memory

    def forbids(self, plan: Plan, situation: Situation) -> str | None:
        """Return why the plan exceeds a limit. A plan above a limit may be replaced by a smaller one above it."""
        limit = self._limit(situation)
        # Replicas beyond the slots of the executors share them.
        slots = min(plan.slots, situation.topology.slots(plan, micro_batch=situation.micro_batch))
        if slots > max(limit, situation.slots):
            return f"The plan uses {slots_text(slots)}, but only {limit} are allowed."
        if plan.slots > max(situation.max_slots, situation.plan.slots):
            return (
                f"The plan needs executors with {slots_text(plan.slots)}, but only {situation.max_slots} are available."
            )
        for region, count in plan.replicas.items():
            if count > max(self.max_replicas.get(region, count), situation.plan.replicas[region]):
                return f"The plan has {count} replicas of '{region}', but only {self.max_replicas[region]} are allowed."
        return None

    def _limit(self, situation: Situation) -> int:
        return situation.max_slots if self.max_slots is None else min(self.max_slots, situation.max_slots)


def evaluates_changes(policy: Policy) -> bool:
    """Return whether the policy inside the guards evaluates its own changes."""
    inner: object = policy
    while (wrapped := getattr(inner, "policy", None)) is not None:
        inner = wrapped
    return bool(getattr(inner, "evaluates_changes", False))


def forbidden(policy: Policy, plan: Plan, situation: Situation) -> tuple[Reason, str] | None:
    """Return why a guard around the policy, or the available slots, forbid a plan that the policy did not propose."""
    guard: object = Bounded(policy)
    while guard is not None:
        if isinstance(guard, Bounded) and (reason := guard.forbids(plan, situation)) is not None:
            return Reason.OUT_OF_BOUNDS, reason
        if isinstance(guard, Quiet) and (reason := guard.forbids(plan, situation)) is not None:
            return Reason.QUIET_HOURS, reason
        guard = getattr(guard, "policy", None)  # the wrapped policy, if this is a guard
    return None


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Require a minimum time between two changes, and between the start of the run and the first one (T_ra of DRS).

    The time counts from the end of the last change, including changes by users, or from the later start. It does not
    apply to the reason codes in `urgent`.
    """

    policy: Policy
    seconds: float = field(kw_only=True)
    urgent: frozenset[str] = field(default=frozenset(), kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if isinstance(decision, Change) and decision.reason_code not in self.urgent:
            events = [("last change", change.at_s) for change in situation.changes[-1:]]
            if situation.started_s is not None:
                events.append(("start", situation.started_s))
            for event, at_s in events:
                since_s = situation.now_s - at_s
                if since_s < self.seconds:
                    reason = f"The {event} was {since_s:.0f} s ago; the cooldown is {self.seconds:g} s."
                    return decision.vetoed(Reason.COOLDOWN, reason), memory
        return decision, memory


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """Require a minimum gain, and a proposed change in `turns` consecutive turns since the last change.

    The gain is 1 - expected / staying, in latency, or in slots for a release. An unknown gain counts as sufficient: the
    current plan does not keep up, or the policy has no latency model.
    """

    policy: Policy
    gain: float = field(default=0.05, kw_only=True)
    turns: int = field(default=1, kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if not isinstance(decision, Change):
            return decision, {**memory, WANTED: 0}
        gain = relative_gain(decision.staying, decision.expected)
        if gain is not None and gain < self.gain:
            reason = f"The change would gain {gain:.1%}; the minimum is {self.gain:.0%}."
            return decision.vetoed(Reason.TOO_LITTLE_GAIN, reason), {**memory, WANTED: 0}
        changes = len(situation.changes)
        wanted = 1 + (memory.get(WANTED, 0) if memory.get(AFTER) == changes else 0)
        memory = {**memory, WANTED: wanted, AFTER: changes}
        if wanted < self.turns:
            reason = f"The policy has wanted a change for {wanted:g} turns; {self.turns} are required."
            return decision.vetoed(Reason.NOT_YET, reason), memory
        return decision, memory


def relative_gain(staying: PlanOutcome, expected: PlanOutcome) -> float | None:
    """Return the gain of a change as a share, in slots for a release and in latency otherwise.

    >>> relative_gain(PlanOutcome(slots=4, latency_s=2.0), PlanOutcome(slots=6, latency_s=1.5))
    0.25
    >>> relative_gain(PlanOutcome(slots=8, latency_s=0.5), PlanOutcome(slots=6, latency_s=0.7))
    0.25
    """
    if _is_release(staying, expected):
        return 1.0 - expected.slots / staying.slots
    if staying.latency_s is None or expected.latency_s is None:
        return None
    return 1.0 - expected.latency_s / staying.latency_s


def _is_release(staying: PlanOutcome, expected: PlanOutcome) -> bool:
    """Return whether a change saves slots. Fewer slots that process more rows are a better distribution instead.

    >>> _is_release(PlanOutcome(slots=16, rows_per_s=60.0), PlanOutcome(slots=15, rows_per_s=70.0))
    False
    """
    old, new = staying.rows_per_s, expected.rows_per_s
    is_faster = old is not None and new is not None and new > old * (1.0 + _FASTER)
    return expected.slots < staying.slots and not is_faster


@dataclass(frozen=True, slots=True)
class PayBack:
    """Require that a change pays for its pause within `within_s`.

    Rows pile up during a pause of p seconds and drain afterwards. At lambda rows/s and utilisation rho of the new plan:

        cost = lambda p^2 / (2 (1 - rho))      row-seconds: the area under the backlog, which grows for p and drains
        gain = lambda (T_staying - T_expected) row-seconds per second

    The pay-back time is cost / gain. A release trades latency for slots, so it counts slots: p seconds of all slots
    against the released ones. p is the median pause of this run's changes. Before the first change it is `pause_s` plus
    the time to move the state of the changed regions at `bytes_per_s`.
    """

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
            pay_back_s = self.pay_back_s(situation, decision)
            if pay_back_s is not None and pay_back_s > self.within_s:
                reason = (
                    f"The change would pay for its pause in {pay_back_s:.0f} s; the maximum is {self.within_s:g} s."
                )
                return decision.vetoed(Reason.NOT_PAID_BACK, reason), memory
        return decision, memory

    def pay_back_s(self, situation: Situation, change: Change) -> float | None:
        """Return the pay-back time, or None if it is unknown; an unknown time is no reason for a veto."""
        pause_s, staying, expected = self._expected_pause_s(situation, change), change.staying, change.expected
        if _is_release(staying, expected):
            return pause_s * staying.slots / (staying.slots - expected.slots)
        if staying.latency_s is None or expected.latency_s is None:
            return None
        gained_s = staying.latency_s - expected.latency_s
        if gained_s <= 0:
            return math.inf
        return pause_s**2 / (2.0 * (1.0 - _utilisation_after(situation, change))) / gained_s

    def _expected_pause_s(self, situation: Situation, change: Change) -> float:
        pauses_s = [past.pause_s for past in situation.changes if past.pause_s is not None]
        if pauses_s:
            return median(pauses_s)
        return self.pause_s + _moved_bytes(situation, change) / self.bytes_per_s


def _moved_bytes(situation: Situation, change: Change) -> float:
    changed = diff(situation.plan, change.plan).replicas
    moved = {name for region in situation.topology.regions if region.name in changed for name in region.operators}
    window = situation.window
    return (
        sum(operator.state_bytes or 0 for operator in window.operators if operator.operator in moved) if window else 0.0
    )


def _utilisation_after(situation: Situation, change: Change) -> float:
    """Return rho of the busiest operator under the new plan; at most 0.99, because the backlog must drain."""
    window = situation.window
    region_of = {name: region.name for region in situation.topology.regions for name in region.operators}
    utilisations = [
        operator.utilisation
        * situation.plan.replicas[region_of[operator.operator]]
        / change.plan.replicas[region_of[operator.operator]]
        for operator in (window.operators if window else ())
        if operator.utilisation is not None and operator.operator in region_of
    ]
    return min(0.99, max(utilisations, default=0.5))
