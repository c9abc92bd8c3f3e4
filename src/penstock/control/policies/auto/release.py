"""Changes to cheaper plans that would also have held over the recorded load.

A smaller plan must have held for long enough to pay for the change. If it would not have held over the whole record,
the change back is to be paid for too, by the time for which it would have held on average between such loads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.control.forecast import forecast
from penstock.control.policies.auto.allocations import Allocations, allocations
from penstock.control.policies.auto.choices import NOTICED_S, Choice, Chooser, View, change_cost_s
from penstock.control.policies.auto.decisions import Decisions
from penstock.control.policies.auto.replay import Loads, ReplayedPlan
from penstock.control.policy import Decision, Reason
from penstock.control.recorded_load import rates_of

_WIDER = 1.25  # deviations of a load from its mean, relative to the recorded ones: the next hour may have larger ones
_RECORDED = 1.3  # a plan may be said to have held for this multiple of the record
_HORIZONS_S = (300.0, 420.0, 600.0, 900.0, 1350.0, 1800.0, 2700.0, 3600.0)
_SETTLED_S = 600.0  # longest time without a change that a release requires
_SHORT_RECORD_S = 240.0
_LEAST_SAVING = 0.04


@dataclass(frozen=True, slots=True)
class Release:
    """Finds a cheaper plan that has held for long enough."""

    chooser: Chooser
    decisions: Decisions

    def decide(self, view: View, staying: ReplayedPlan) -> Decision:
        """Release slots if a cheaper plan would have held over the recorded load."""
        situation = view.situation
        paid = self.chooser.paid(situation)
        since_s = situation.changes[-1].at_s if situation.changes else -math.inf
        recorded_s = situation.recorded[-1].end_s - situation.recorded[0].start_s
        if recorded_s < _SHORT_RECORD_S:
            return self.decisions.hold(view, staying, Reason.WITHIN_TARGET, "the record is too short to release slots")
        smallest = 0
        for horizon_s in _HORIZONS_S:
            start_s = situation.now_s - horizon_s
            if situation.now_s - since_s < min(horizon_s, _SETTLED_S) or horizon_s > _RECORDED * recorded_s:
                break
            past = self._recorded(view, since_s=start_s)
            loads = [view.later, past]
            if view.expected.slope_per_s2 > 0:  # the smaller plan is to last as long as it would have held
                loads.append(self._rising(view, horizon_s))
            planning = max(
                self.chooser.planning_rate(view), *(float(np.quantile(load.rates_per_s, 0.97)) for load in loads[1:])
            )
            best: Choice | None = None
            best_path: Allocations | None = None
            for network in view.networks:
                path = allocations(network.cautious(), planning, most_slots=max(0, paid))
                choice = self.chooser.cheapest(view, network, path, loads, fewest=smallest)
                is_current = network.cuts == situation.plan.cuts
                if choice is not None and (best is None or choice.slots < best.slots - (0 if is_current else 1)):
                    best, best_path = choice, path
            if best is None or best_path is None:
                break
            smallest = best.slots
            best = self.chooser.settling_sooner(view, best_path, best, most=paid - 1, grows=False)
            saving = 1.0 - best.slots / paid
            if saving < _LEAST_SAVING:
                break
            late_s = self.chooser.interruption_s(view, best)
            change_s = change_cost_s(late_s, recent_late_s=view.learned.late_s)
            return_s = change_cost_s(late_s) + change_cost_s(late_s + NOTICED_S)
            lasting_s = self.chooser.lasting_s(view, best, self._recorded(view, since_s=-math.inf), apart_s=horizon_s)
            if saving * horizon_s >= change_s and saving * lasting_s >= return_s:
                held = f"It would also have held for the last {min(horizon_s, recorded_s) / 60:.0f} minutes"
                return self.decisions.change(view, staying, best, Reason.RELEASE, held)
        why = "no cheaper plan would have held long enough to pay for the interruption"
        return self.decisions.hold(view, staying, Reason.WITHIN_TARGET, why)

    def _recorded(self, view: View, *, since_s: float) -> Loads:
        """Return the recorded load with its deviations from the mean at their unfavourable end."""
        rates, step_s = rates_of(view.situation.recorded, since_s=since_s)
        mean = float(rates.mean())
        wider = np.maximum(0.0, mean + _WIDER * (rates - mean))
        return Loads(rates_per_s=wider, step_s=step_s, window_s=view.loads.window_s)

    def _rising(self, view: View, horizon_s: float) -> Loads:
        """Return the load at the end of the horizon if it continues to rise."""
        lead_s = self.chooser.lead_s(view.situation) + horizon_s
        rates = forecast(view.situation.recorded, lead_s=lead_s).rates_per_s
        return replace(view.later, rates_per_s=np.resize(rates, max(24, len(rates))))
