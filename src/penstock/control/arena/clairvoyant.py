"""The cheapest schedule of plans of a case in hindsight, with the pauses of its changes.

It knows the load and the true costs. The cheapest fixed plan meets the target at the peak, with some latency by the
model; at another load, the smallest plan with at most this latency is taken to meet the target too. A dynamic program
finds the schedules of these plans with the fewest slot-seconds, for several costs of a change. Each is simulated, and
the cheapest one with at most the allowed share of late windows counts. A schedule without a change is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from penstock.control.arena.cases import SETTLED_S, WINDOW_S, Case
from penstock.control.arena.fixed_plans import ALLOWED_LATE, FixedPlans, HindsightPlans, window_latency_s
from penstock.control.arena.loads import LENGTH_S, LOADS
from penstock.plan import Plan

_STEP_S = 30.0
_AHEAD, _BEHIND = 2, 2  # steps: a larger plan is in force before the load rises, and until the backlog is processed
_CHANGE_COSTS_S = (60.0, 600.0)  # slot-time of all slots, charged for each change
_MARGINS = (1.0, 0.8)  # latency of the plans by the model, relative to that of the cheapest fixed plan at the peak
_LEVELS = 24


class PlanSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of a case with their start times, and their result in simulation."""

    plans: tuple[tuple[float, Plan], ...]
    late: float
    slot_hours: float


@dataclass(frozen=True, kw_only=True)
class Clairvoyant:
    """Finds the cheapest schedule of a case."""

    case: Case
    reference: HindsightPlans

    def schedule(self) -> PlanSchedule:
        reference = self.reference
        hours = (LENGTH_S - SETTLED_S) / 3600.0
        fixed = PlanSchedule(
            plans=((0.0, reference.cheapest),),
            late=reference.cheapest_late,
            slot_hours=hours * reference.cheapest_slots,
        )
        if len(set(self._shares)) == 1:
            return fixed
        kinds = [self._planned(cost, margin) for cost in _CHANGE_COSTS_S for margin in _MARGINS]
        distinct = {repr(plans): plans for plans in kinds}
        simulated = [self._simulated(plans) for plans in distinct.values() if len(plans) > 1]
        return min(
            (known for known in [*simulated, fixed] if known.late <= max(ALLOWED_LATE, fixed.late)),
            key=lambda known: known.slot_hours,
        )

    @cached_property
    def _shares(self) -> tuple[float, ...]:
        """The load of each step, as a share of the peak."""
        rates = LOADS[self.case.cell.load](self.case.cell.seed)
        starts = np.array([at_s for at_s, _ in rates])
        steps = np.arange(0.0, LENGTH_S, _STEP_S)
        return tuple(rates[int(np.searchsorted(starts, at_s, side="right")) - 1][1] for at_s in steps)

    def _planned(self, change_s: float, margin: float) -> tuple[tuple[float, Plan], ...]:
        """Return the schedule with the fewest slot-seconds if each change costs so many seconds of all slots."""
        shares = np.array(self._shares)
        ahead = [shares[max(0, at - _BEHIND) : at + _AHEAD + 1].max() for at in range(len(shares))]
        levels = sorted(set(np.ceil(np.array(ahead) * _LEVELS) / _LEVELS))
        plans = [self._smallest(min(1.0, level), margin) for level in levels]
        slots = np.array([self._slots(plan) for plan in plans], float)
        needed = np.searchsorted(levels, np.array(ahead) - 1e-9)
        chosen = _cheapest_path(slots, needed, change_cost=change_s * self.case.slots)
        result: list[tuple[float, Plan]] = []
        for at, level in enumerate(chosen):
            if not result or result[-1][1] != plans[level]:
                result.append((at * _STEP_S, plans[level]))
        return tuple(result)

    def _slots(self, plan: Plan) -> int:
        return self.case.topology.slots(plan, micro_batch=self.case.micro_batch)

    def _smallest(self, share: float, margin: float) -> Plan:
        """Return the smallest plan with the cuts of the cheapest fixed one that meets the target at a load."""
        if share >= 1.0:
            return self.reference.cheapest
        plans, cuts = FixedPlans(self.case), self.reference.cheapest.cuts
        at_peak_s = plans.model_latency_s(self.reference.cheapest, share=1.0)
        for budget in range(len(self.case.topology.regions), self.reference.cheapest_slots + 1):
            plan = plans.planned(cuts, budget, share=share)
            if plans.model_latency_s(plan, share=share) <= margin * at_peak_s:
                return plan if self._slots(plan) < self.reference.cheapest_slots else self.reference.cheapest
        return self.reference.cheapest

    def _simulated(self, plans: Sequence[tuple[float, Plan]]) -> PlanSchedule:
        engine = self.case.engine(plans[0][1])
        engine.start()
        late = counted = 0
        slot_seconds = 0.0
        waiting = list(plans[1:])
        while engine.now_s < LENGTH_S - 1e-6:
            start_s = engine.now_s
            if waiting and waiting[0][0] <= start_s + 1e-6:
                engine.apply(waiting.pop(0)[1])
            engine.advance(max(0.0, start_s + WINDOW_S - engine.now_s))
            window = engine.observe()
            if start_s < SETTLED_S:
                continue
            counted += 1
            late += window_latency_s(window) > self.reference.target_s
            slot_seconds += (window.end_s - window.start_s) * self._slots(engine.plan)
        return PlanSchedule(plans=tuple(plans), late=late / counted, slot_hours=slot_seconds / 3600.0)


def _cheapest_path(slots: np.ndarray, needed: np.ndarray, *, change_cost: float) -> list[int]:
    """Return the level of each step, at least the needed one.

    >>> _cheapest_path(np.array([1.0, 5.0]), np.array([0, 1, 0, 0]), change_cost=0.0)
    [0, 1, 0, 0]
    >>> _cheapest_path(np.array([1.0, 5.0]), np.array([0, 1, 0, 0]), change_cost=1e9)
    [1, 1, 1, 1]
    """
    allowed = np.arange(len(slots))[None, :] >= needed[:, None]
    step_cost = np.where(allowed, slots * _STEP_S, np.inf)
    total = step_cost[0]
    before = []
    for cost in step_cost[1:]:
        best = int(np.argmin(total))
        stays = total <= total[best] + change_cost
        before.append(np.where(stays, np.arange(len(slots)), best))
        total = np.where(stays, total, total[best] + change_cost) + cost
    path = [int(np.argmin(total))]
    for origin in reversed(before):
        path.append(int(origin[path[-1]]))
    return path[::-1]
