"""The policies that decide how many VMs carry a load: the paper's, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.fitted_curve import running_maximum
from penstock.models.mst.prediction import MstModel
from penstock.models.mst.samples import Floats
from penstock.planning.elastic_schedule import (
    Counts,
    ElasticError,
    ElasticOutcome,
    ElasticSchedule,
    RentalTerms,
    needed_vms,
    reactive,
    simulate,
)
from penstock.planning.forecast import upper_forecasts
from penstock.planning.trace import Trace

CONFIDENCES = (None, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99)
SPARE_PERCENTS = (0, 1, 5)
REHEARSALS = 6
PLATEAU = 0.99  # of the highest capacity: VMs that add less than the rest buy nothing


def static(policy: str, trace: Trace, truth: Floats, rate: float) -> ElasticSchedule:
    """The VMs that carry `rate`, all the time."""
    vms = needed_vms(truth, np.array([rate]))
    return reactive(policy, np.repeat(vms, len(trace.rates)))


def with_ground_truth(trace: Trace, truth: Floats) -> ElasticSchedule:
    """The true MST and no delay: what no scheduler can do, and what all are measured against."""
    vms = needed_vms(truth, trace.array())
    return ElasticSchedule(policy="ground truth", vms=vms, ready=vms, instant=True)


def over_provisioned(trace: Trace, capacity: Floats, percent: float, *, policy: str | None = None) -> ElasticSchedule:
    """ceil((1 + x/100) m) VMs, where the model asks for m."""
    vms = _more(needed_vms(capacity, trace.array()), percent, len(capacity))
    return reactive(policy or f"elastic +{percent:g}%", vms)


def _more(vms: Counts, percent: float, max_vms: int) -> Counts:
    # 1e-9: 1.1 * 10 is a little more than 11 in binary, and must not be 12.
    more: Counts = np.minimum(np.ceil((1 + percent / 100) * vms - 1e-9).astype(np.int64), max_vms)
    return more


def least_over_provisioning(
    traces: Sequence[Trace], capacity: Floats, truth: Floats, terms: RentalTerms, *, violations: float = 0.01
) -> int:
    """The smallest whole x whose mean violations over the traces are below `violations`; 100 at most."""
    for percent in range(101):
        outcomes = [simulate(trace, over_provisioned(trace, capacity, percent), truth, terms) for trace in traces]
        if np.mean([outcome.violations for outcome in outcomes]) < violations:
            return percent
    return 100


def over_provisioned_to(
    trace: Trace, capacity: Floats, truth: Floats, terms: RentalTerms, *, first: int, violations: float
) -> ElasticOutcome | None:
    """The outcome from interval `first` on of the smallest whole x that, in hindsight, has at most `violations` there.

    None where twice the VMs that the model asks for are still too few: then no x is as good.
    """
    for percent in range(101):
        schedule = over_provisioned(trace, capacity, percent)
        outcome = judged(trace, schedule, truth, terms, first)
        if outcome.violations <= violations:
            return outcome
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarefulPolicy:
    """Ours. Capacity is what the interval says the MST exceeds with probability `confidence` (None: the predicted
    MST itself); VMs for the next interval's load, foreseen with `quantile`, are ordered a delay ahead, and corrected
    when the load is seen.

    Where no number of VMs is that sure to carry the load it takes the fewest that reach the plateau of the predicted
    curve, which may be far fewer than all there are. `planned_peak` bounds what is foreseen; `spare_percent` more
    VMs, one at least if it is not 0, are for what no interval knows.
    """

    confidence: float | None
    planned_peak: float
    spare_percent: int = 0
    quantile: float = 0.95
    season_s: float = 86_400.0

    @property
    def name(self) -> str:
        level = ", as predicted" if self.confidence is None else f" {self.confidence:g}"
        return f"careful{level}" + (f" +{self.spare_percent}%" if self.spare_percent else "")

    def foresee(self, trace: Trace) -> Floats:
        season = max(1, round(self.season_s / trace.interval_s))
        upper = upper_forecasts(trace.array(), season=season, quantile=self.quantile)
        return np.minimum(upper, self.planned_peak)

    def schedule(self, trace: Trace, model: MstModel, *, foreseen: Floats | None = None) -> ElasticSchedule:
        """`foreseen`, where the caller has it already, is what `foresee(trace)` gives."""
        predicted = running_maximum(model.curve)
        capacity = predicted if self.confidence is None else model.capacity(confidence=self.confidence)
        plateau = int(np.argmax(predicted >= PLATEAU * predicted[-1])) + 1
        vms = self._vms(capacity, plateau, trace.array())
        ahead = self._vms(capacity, plateau, self.foresee(trace) if foreseen is None else foreseen)
        # VMs in use are kept until the load is seen: what is foreseen may be wrong.
        ready = np.maximum(np.concatenate([vms[:1], vms[:-1]]), np.concatenate([vms[:1], ahead[1:]]))
        return ElasticSchedule(policy=self.name, vms=vms, ready=ready)

    def _vms(self, capacity: Floats, plateau: int, rates: Floats) -> Counts:
        needed = _more(needed_vms(capacity, rates), self.spare_percent, len(capacity))
        beyond = np.maximum(plateau, needed_vms(capacity, PLATEAU * capacity[-1:]))  # more load never gets fewer VMs
        return np.where(rates > capacity[-1], beyond, needed).astype(np.int64)


def rehearsals(trace: Trace, planned_peak: float) -> list[Trace]:
    """The trace as it was, and scaled up in steps to the planned peak: a quiet past must not choose for busy days."""
    top = max(trace.rates)
    if top <= 0:
        raise ElasticError("the part of the trace that parameters are chosen on has no load; choose on a longer part")
    if planned_peak <= top:
        return [trace]
    return [trace.scaled_to(float(peak)) for peak in np.geomspace(top, planned_peak, REHEARSALS)]


def choose_careful(
    traces: Sequence[Trace],
    model: MstModel,
    truth: Floats,
    terms: RentalTerms,
    *,
    planned_peak: float,
    violations: float,
    confidences: Sequence[float | None] = CONFIDENCES,
) -> CarefulPolicy:
    """The cheapest pair of confidence and spare VMs whose mean violations over the traces are at most `violations`.

    Where none is, the last pair: the most confident, with the most to spare.
    """
    policies = [
        CarefulPolicy(confidence=confidence, planned_peak=planned_peak, spare_percent=percent)
        for confidence in confidences
        for percent in SPARE_PERCENTS
    ]
    foreseen = [policies[0].foresee(trace) for trace in traces]
    best, best_cost = policies[-1], np.inf
    for policy in policies:
        outcomes = [
            simulate(trace, policy.schedule(trace, model, foreseen=ahead), truth, terms)
            for trace, ahead in zip(traces, foreseen, strict=True)
        ]
        cost = float(np.mean([outcome.cost_per_h for outcome in outcomes]))
        if cost < best_cost and np.mean([outcome.violations for outcome in outcomes]) <= violations:
            best, best_cost = policy, cost
    return best


def judged(trace: Trace, schedule: ElasticSchedule, truth: Floats, terms: RentalTerms, first: int) -> ElasticOutcome:
    """The outcome from interval `first` on."""
    rest = Trace(rates=trace.rates[first:], interval_s=trace.interval_s)
    return simulate(rest, schedule.part(first, len(trace.rates)), truth, terms)
