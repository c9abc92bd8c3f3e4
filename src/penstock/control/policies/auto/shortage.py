"""Changes for a load that the current plan does not process in time, or soon will not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.control.forecast import Forecast
from penstock.control.policies.auto.allocations import Allocations
from penstock.control.policies.auto.choices import (
    NOTICED_S,
    STAY_LATE,
    Choice,
    Chooser,
    View,
    change_cost_s,
    steady_rate,
)
from penstock.control.policies.auto.decisions import Decisions
from penstock.control.policies.auto.learned import Learned
from penstock.control.policies.auto.learning import present_counts
from penstock.control.policies.auto.network import QueueNetwork
from penstock.control.policies.auto.replay import ReplayedPlan
from penstock.control.policies.auto.sentences import limit_text
from penstock.control.policy import Decision, Reason

# A plan for a rising load is to last for a time between these, and for at most this share of the time for which the
# load has been rising.
_LEAST_LASTS_S, _MOST_LASTS_S, _EXTRAPOLATED = 240.0, 900.0, 0.5
_AGAIN, _AGAIN_S = 1.5, 120.0  # slots relative to those of a change that was too small, and the time until it shows
_LONGER = 1.2  # a batch in a minute or two under a rising load, relative to the present one
_RECOVERY_S = 30.0  # time in which the rows of the pause of a change are to be processed


@dataclass(frozen=True, slots=True)
class Shortage:
    """Finds a plan that suffices, or the best one within the limit."""

    chooser: Chooser
    decisions: Decisions

    def decide(self, view: View, staying: ReplayedPlan, *, failed: bool) -> Decision:
        """Change to the cheapest plan that meets the target, or to the best one within the limit."""
        situation = view.situation
        # If the model finds the current plan sufficient and measurements do not, it takes more than the current slots.
        fewest = math.ceil(1.08 * situation.slots) if failed and situation.slots <= situation.max_slots else 0
        more = min(situation.max_slots, math.ceil(_AGAIN * situation.slots)) if self._is_again(view) else fewest
        for at_least in dict.fromkeys((max(fewest, more), fewest)):
            decision, _ = self._sufficient(view, staying, fewest=at_least)
            if decision is not None:
                return decision
        known = list(zip(view.networks, view.paths(steady_rate(view.now)), strict=True))
        return self._beyond_limit(view, staying, known)

    def _sufficient(self, view: View, staying: ReplayedPlan, *, fewest: int) -> tuple[Decision | None, Choice | None]:
        """Return the change to the cheapest plan that meets the target, and this plan; None without one."""
        situation = view.situation
        wanted = self.chooser.planning_rate(view) * (1.0 + self.chooser.pause_s(situation) / _RECOVERY_S)
        # Without the backlog if that is too much for the limit, and without the growth of the next minutes.
        attempts = ((wanted, view.later), (steady_rate(view.later), view.later),
                    (steady_rate(view.loads), view.loads), (steady_rate(view.now), view.now))  # fmt: skip
        for rate, load in attempts:
            choices = [
                (choice, path)
                for network, path in zip(view.networks, view.paths(rate), strict=True)
                if (choice := self.chooser.cheapest(view, network, path, [load], fewest=fewest)) is not None
            ]
            if choices:
                cheapest, path = min(choices, key=lambda pair: pair[0].slots)
                best = self.chooser.settling_sooner(
                    view,
                    path,
                    cheapest,
                    most=situation.max_slots,
                    grows=True,
                    load=view.now if load is view.now else None,
                )
                reason_code = Reason.SHORTAGE if best.slots > self.chooser.paid(situation) else Reason.REALLOCATION
                return self.decisions.change(view, staying, best, reason_code, ""), best
        return None, None

    def early(self, view: View, staying: ReplayedPlan) -> Decision | None:
        """Return a change that is needed in some minutes, if this is the last time without late windows; else None.

        In micro-batches, the rows of the batch in progress wait for the change too, and batches become longer with the
        load.
        """
        if not view.situation.micro_batch or view.expected.slope_per_s2 <= 0.0 or self.chooser.target is None:
            return None
        changes = view.situation.changes
        if changes and view.situation.now_s - changes[-1].at_s < _LEAST_LASTS_S:
            return None  # its plan was chosen for this time
        counts = present_counts(view.present, view.situation.plan)
        if self.chooser.replayed(view, view.present, counts, view.later).late <= STAY_LATE:
            return None
        decision, choice = self._sufficient(view, staying, fewest=view.situation.slots + 1)
        if decision is None or choice is None:
            return None
        batch_s = view.learned.batch_s
        now_s, soon_s = (self.chooser.interruption_s(view, choice, batch_s=known * batch_s) for known in (1.0, _LONGER))
        return decision if now_s == 0.0 < soon_s else None

    def _is_again(self, view: View) -> bool:
        """Return whether slots have just been added, and were too few: more changes by a few slots cost more."""
        situation = view.situation
        if not situation.changes or situation.now_s - situation.changes[-1].at_s > _AGAIN_S:
            return False
        old = situation.topology.slots(situation.changes[-1].old, micro_batch=situation.micro_batch)
        return old < situation.slots < situation.max_slots

    def _beyond_limit(
        self, view: View, staying: ReplayedPlan, known: list[tuple[QueueNetwork, Allocations]]
    ) -> Decision:
        """Use the best plan within the limit, and report what limits it and what would meet the target."""
        situation = view.situation
        fallback: Choice | None = None
        for network, path in known:
            within = self.chooser.best_within(view, network, path)
            if within is not None and (fallback is None or within.result.late < fallback.result.late - 0.01):
                fallback = within
        unstable = [path.unstable for _, path in known]
        limiting = unstable[0] if None not in unstable else None
        needed = [self.chooser.needed_slots(view, network) for network, _ in known]
        needs = min((slots for slots in needed if slots is not None), default=None)
        reachable_s = None if fallback is None else self.chooser.reachable_s(view, fallback)
        limit = limit_text(view, needs, limiting, reachable_s)
        gain = fallback is not None and (
            fallback.result.late < staying.late - 0.02
            or fallback.result.latency_s < 0.9 * staying.latency_s
            or situation.slots > situation.max_slots
        )
        if fallback is None or not gain:
            return self.decisions.hold(view, staying, Reason.AT_LIMIT, limit, needs=needs, binding=limiting)
        return self.decisions.change(view, staying, fallback, Reason.SHORTAGE, limit, needs=needs, binding=limiting)


def lasts_s(expected: Forecast, learned: Learned) -> float:
    """Return the time for which a plan is to suffice if the load rises.

    Slots that are not needed yet cost slope T^2 / 2 until T, and a change costs K: T = sqrt(2 K / slope) is the best.
    """
    if expected.slope_per_s2 <= 0.0:
        return _LEAST_LASTS_S
    change_s = change_cost_s(NOTICED_S, recent_late_s=learned.late_s)
    best_s = math.sqrt(2.0 * change_s * expected.present_per_s / expected.slope_per_s2)
    return max(_LEAST_LASTS_S, min(best_s, _MOST_LASTS_S, _EXTRAPOLATED * expected.trend_s))
