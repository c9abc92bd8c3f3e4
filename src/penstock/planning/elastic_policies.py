"""Policies that choose the number of VMs for a load: the policies of Imai et al.

(2017), section 6, and `CarefulPolicy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

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
    delayed,
    intervals_ahead,
    needed_vms,
    reactive,
    rental,
    simulate,
)
from penstock.planning.forecast import upper_forecasts
from penstock.planning.trace import Trace

CONFIDENCES = (None, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99)
SPARE_PERCENTS = (0, 1, 5, 10, 15, 20, 30)
QUANTILES = (0.95, 0.8, 0.5, None)  # quantiles of the forecast
LESS_CAREFUL = 0.97  # share of the cost below which a lower quantile is preferred
REHEARSALS = 6
PLATEAU = 0.99  # share of the highest capacity that counts as its plateau


def static(policy: str, trace: Trace, truth: Floats, rate: float) -> ElasticSchedule:
    """Use the VMs that sustain `rate` at all times."""
    vms = needed_vms(truth, np.array([rate]))
    return reactive(policy, np.repeat(vms, len(trace.rates)))


def with_ground_truth(trace: Trace, truth: Floats) -> ElasticSchedule:
    """Use the true MST without delay. No real scheduler can do this; it is the reference for all others."""
    vms = needed_vms(truth, trace.array())
    return ElasticSchedule(policy="ground truth", vms=vms, ready=vms, instant=True)


def over_provisioned(
    trace: Trace, capacity: Floats, percent: float, *, policy: str | None = None, ahead: int = 1
) -> ElasticSchedule:
    """Use ceil((1 + percent/100) m) VMs when the model requires m."""
    vms = _increased(needed_vms(capacity, trace.array()), percent, len(capacity))
    return reactive(policy or f"elastic +{percent:g}%", vms, ahead)


def _increased(vms: Counts, percent: float, max_vms: int) -> Counts:
    # 1e-9: 1.1 * 10 is slightly above 11 in binary and must not become 12.
    increased: Counts = np.minimum(np.ceil((1 + percent / 100) * vms - 1e-9).astype(np.int64), max_vms)
    return increased


def least_over_provisioning(
    traces: Sequence[Trace], capacity: Floats, truth: Floats, terms: RentalTerms, *, violations: float = 0.01
) -> int:
    """Return the smallest whole percentage, up to 100, whose mean violations over the traces are below `violations`."""
    for percent in range(101):
        outcomes = [
            simulate(
                trace, over_provisioned(trace, capacity, percent, ahead=intervals_ahead(trace, terms)), truth, terms
            )
            for trace in traces
        ]
        if np.mean([outcome.violations for outcome in outcomes]) < violations:
            return percent
    return 100


def over_provisioned_to(
    trace: Trace, capacity: Floats, truth: Floats, terms: RentalTerms, *, first: int, violations: float
) -> ElasticOutcome | None:
    """Return the outcome, from interval `first` on, of the smallest percentage with at most `violations` there.

    The percentage is chosen in hindsight. None: not even 100% more VMs than the model requires are enough.
    """
    for percent in range(101):
        schedule = over_provisioned(trace, capacity, percent, ahead=intervals_ahead(trace, terms))
        outcome = outcome_from(trace, schedule, truth, terms, first)
        if outcome.violations <= violations:
            return outcome
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarefulPolicy:
    """Plan with a lower confidence bound of the MST and a forecast of the load (not in the paper).

    The capacity of m VMs is the MST that is exceeded with probability `confidence` (None: the predicted MST). VMs for
    the forecast load of the next interval are ordered one delay ahead, and corrected when the load is observed. If no
    number of VMs sustains the load with that confidence, the fewest VMs on the plateau of the predicted curve are used.

    `quantile` is the quantile of the forecast, `planned_peak` its upper bound. Without a quantile VMs are ordered when
    the load is observed: a forecast of a load that jumps costs more than it saves. `spare_percent` adds VMs for errors
    that the intervals do not cover: at least one VM unless it is 0.
    """

    confidence: float | None
    planned_peak: float
    spare_percent: int = 0
    quantile: float | None = 0.95
    season_s: float = 86_400.0
    ahead: int = 1  # intervals from an order to the first one that the VMs serve as a whole
    paper_capacity: tuple[float, ...] | None = None  # capacity of 1, 2, ... VMs by the paper's model

    @property
    def name(self) -> str:
        if self.paper_capacity is not None:
            return f"careful, as the paper +{self.spare_percent}%"
        level = ", as predicted" if self.confidence is None else f" {self.confidence:g}"
        spare = f" +{self.spare_percent}%" if self.spare_percent else ""
        return f"careful{level}{spare}" + (", no forecast" if self.quantile is None else "")

    def forecast(self, trace: Trace) -> Floats:
        """Return the upper forecast of each interval, from the earlier intervals; 0 without a quantile."""
        if self.quantile is None:
            return np.zeros(len(trace.rates))
        season = max(1, round(self.season_s / trace.interval_s))
        upper = upper_forecasts(trace.array(), season=season, quantile=self.quantile, ahead=self.ahead)
        return np.minimum(upper, self.planned_peak)

    def capacity(self, model: MstModel) -> Floats:
        """Return the throughput that the policy expects of 1, 2, ... VMs."""
        if self.paper_capacity is not None:
            return running_maximum(np.array(self.paper_capacity))
        return running_maximum(model.curve) if self.confidence is None else model.capacity(confidence=self.confidence)

    def schedule(
        self, trace: Trace, model: MstModel, *, forecast: Floats | None = None, capacity: Floats | None = None
    ) -> ElasticSchedule:
        """Return the schedule for a trace. `forecast` and `capacity` may pass known results to save time."""
        predicted = running_maximum(model.curve if self.paper_capacity is None else np.array(self.paper_capacity))
        capacity = self.capacity(model) if capacity is None else capacity
        plateau = int(np.argmax(predicted >= PLATEAU * predicted[-1])) + 1
        vms = self._vms(capacity, plateau, trace.array())
        ahead = self._vms(capacity, plateau, self.forecast(trace) if forecast is None else forecast)
        # VMs in use are kept until the load is observed, because the forecast may be wrong.
        ahead = np.concatenate([vms[:1], ahead[1:]])
        ready = np.maximum(delayed(vms, self.ahead), ahead)
        if self.ahead > 1:  # VMs for the observed load are ready after some intervals; until then the forecast counts
            vms = np.maximum(delayed(vms, self.ahead - 1), ahead)
        return ElasticSchedule(policy=self.name, vms=vms, ready=ready)

    def _vms(self, capacity: Floats, plateau: int, rates: Floats) -> Counts:
        needed = _increased(needed_vms(capacity, rates), self.spare_percent, len(capacity))
        beyond = np.maximum(
            plateau, needed_vms(capacity, PLATEAU * capacity[-1:])
        )  # a higher load never gets fewer VMs
        return np.where(rates > capacity[-1], beyond, needed).astype(np.int64)


def rehearsals(trace: Trace, planned_peak: float) -> list[Trace]:
    """Return the trace and copies scaled up to the planned peak, so that a quiet past does not decide for busy days."""
    top = max(trace.rates)
    if top <= 0:
        raise ElasticError("The part of the trace on which parameters are chosen has no load. Use a longer part.")
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
    paper: tuple[Floats, int] | None = None,
) -> CarefulPolicy:
    """Return the cheapest policy whose mean violations over the traces are at most `violations`.

    All combinations of `CONFIDENCES`, `SPARE_PERCENTS` and `QUANTILES` are tried. If none qualifies, the cheapest one
    of those with the fewest violations is returned. A lower quantile must save `1 - LESS_CAREFUL` of the cost, because
    violations on later days differ. Without a forecast and with the predicted MST, it is the rule of the paper with
    another model. `paper` is the capacity by the paper's model and a percentage of additional VMs; this rule is used
    unless another one saves `1 - LESS_CAREFUL` of its cost.
    """
    capacities = {
        confidence: CarefulPolicy(confidence=confidence, planned_peak=planned_peak).capacity(model)
        for confidence in CONFIDENCES
    }
    best: tuple[float, float, CarefulPolicy] | None = None  # violations above the limit, cost
    for quantile in QUANTILES:
        forecaster = CarefulPolicy(
            confidence=None,
            planned_peak=planned_peak,
            quantile=quantile,
            ahead=intervals_ahead(traces[0], terms),
        )
        forecasts = [forecaster.forecast(trace) for trace in traces]
        tried = []
        for confidence, percent in product(CONFIDENCES, SPARE_PERCENTS):
            policy = replace(forecaster, confidence=confidence, spare_percent=percent)
            rentals = [
                rental(
                    trace, policy.schedule(trace, model, forecast=upper, capacity=capacities[confidence]), truth, terms
                )
                for trace, upper in zip(traces, forecasts, strict=True)
            ]
            violated = max(violations, float(np.mean([each.violations for each in rentals])))
            tried.append((violated, float(np.mean([each.cost_per_h for each in rentals])), policy))
        selected = min(tried, key=lambda candidate: candidate[:2])
        if best is None or selected[0] < best[0] or (selected[0] == best[0] and selected[1] < LESS_CAREFUL * best[1]):
            best = selected
    assert best is not None
    if paper is not None:
        rule = CarefulPolicy(
            confidence=None,
            planned_peak=planned_peak,
            spare_percent=paper[1],
            quantile=None,
            ahead=intervals_ahead(traces[0], terms),
            paper_capacity=tuple(paper[0]),
        )
        rentals = [rental(trace, rule.schedule(trace, model), truth, terms) for trace in traces]
        violated = max(violations, float(np.mean([each.violations for each in rentals])))
        cost = float(np.mean([each.cost_per_h for each in rentals]))
        if (violated, LESS_CAREFUL * cost) < best[:2]:
            return rule
    return best[2]


def outcome_from(
    trace: Trace, schedule: ElasticSchedule, truth: Floats, terms: RentalTerms, first: int
) -> ElasticOutcome:
    """Evaluate the intervals of a schedule from `first` on."""
    rest = Trace(rates=trace.rates[first:], interval_s=trace.interval_s)
    return simulate(rest, schedule.part(first, len(trace.rates)), truth, terms)
