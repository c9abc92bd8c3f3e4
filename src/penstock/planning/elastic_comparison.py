"""All policies on one trace: parameters chosen on its first part, outcomes judged on the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.models.mst.curve_families import PAPER_FAMILIES, CurveFamily
from penstock.models.mst.curve_selection import select_curve
from penstock.models.mst.fitted_curve import FittedCurve, fit_curve
from penstock.models.mst.least_squares import Weighting
from penstock.models.mst.prediction import MstModel, fit_mst
from penstock.models.mst.samples import Floats, ThroughputSamples
from penstock.planning.elastic_policies import (
    CarefulPolicy,
    choose_careful,
    judged,
    least_over_provisioning,
    over_provisioned,
    over_provisioned_to,
    rehearsals,
    static,
    with_ground_truth,
)
from penstock.planning.elastic_schedule import (
    ElasticError,
    ElasticOutcome,
    ElasticSchedule,
    RentalTerms,
    ground_truth,
    simulate,
)
from penstock.planning.trace import Trace

OVER_PROVISIONING = (0, 5, 10, 20)
VIOLATIONS = 0.01  # what the paper's last policy stays under, and the most that ours may reach


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticComparison:
    """`outcomes[i]` is of `schedules[i]`, judged from interval `judged_from` on; the last two are the paper's policy
    with the fewest VMs under 1% violations (`percent` more than its model asks for) and ours (`careful`).

    The two seldom have the same violations. `as_good` is what the paper's policy costs with as few as ours had: at the
    smallest over-provisioning that turns out to do, known to it in hindsight only; None where none up to 100% does."""

    app: str
    truth: Floats
    model: MstModel
    paper_model: str
    percent: int
    careful: CarefulPolicy
    judged_from: int
    schedules: tuple[ElasticSchedule, ...]
    outcomes: tuple[ElasticOutcome, ...]
    as_good: ElasticOutcome | None


def compare(
    trace: Trace,
    samples: ThroughputSamples,
    *,
    terms: RentalTerms,
    train: Sequence[int],
    validation: Sequence[int],
    steps: Sequence[float] = (0.0,),
    paper_model: CurveFamily | None = None,
    planned_peak: float | None = None,
    choose_share: float = 0.5,
    seed: int = 0,
) -> ElasticComparison:
    """`train` and `validation` are the VM counts the models see; all the samples make the ground truth.

    The paper's policies use Model 1 or 2, fitted as the paper fits them and selected on `validation` unless
    `paper_model` names one. Its last policy and ours choose their one parameter on the same rehearsals of the trace's
    first part.
    """
    first = math.floor(len(trace.rates) * choose_share) if 0 < choose_share < 1 else 0
    if first < 1:
        raise ElasticError(
            f"{choose_share:g} of {len(trace.rates)} intervals leaves none to choose on or none to judge; "
            "give a share between 0 and 1, or a longer trace"
        )
    peak = max(trace.rates) if planned_peak is None else planned_peak
    truth = ground_truth(samples, terms.max_vms)
    known = samples.only([*train, *validation])
    model = fit_mst(known, max_vms=terms.max_vms, validation=validation, steps=steps, seed=seed)
    theirs = _paper(known, train, validation, paper_model)
    capacity = theirs.predict(range(1, terms.max_vms + 1))

    past = rehearsals(Trace(rates=trace.rates[:first], interval_s=trace.interval_s), peak)
    percent = least_over_provisioning(past, capacity, truth, terms, violations=VIOLATIONS)

    theirs_past = [simulate(part, over_provisioned(part, capacity, percent), truth, terms) for part in past]
    violations = sum(outcome.violations for outcome in theirs_past) / len(past)
    careful = choose_careful(past, model, truth, terms, planned_peak=peak, violations=min(VIOLATIONS, violations))
    mean = sum(trace.rates) / len(trace.rates)
    schedules = (
        static("static peak", trace, truth, peak),
        static("static average", trace, truth, mean),
        with_ground_truth(trace, truth),
        *(over_provisioned(trace, capacity, x) for x in OVER_PROVISIONING),
        over_provisioned(trace, capacity, percent, policy=f"elastic <1% (+{percent}%)"),
        careful.schedule(trace, model),
    )
    outcomes = tuple(judged(trace, schedule, truth, terms, first) for schedule in schedules)
    return ElasticComparison(
        app=samples.app,
        truth=truth,
        model=model,
        paper_model=theirs.name,
        percent=percent,
        careful=careful,
        judged_from=first,
        schedules=schedules,
        outcomes=outcomes,
        as_good=over_provisioned_to(trace, capacity, truth, terms, first=first, violations=outcomes[-1].violations),
    )


def _paper(
    known: ThroughputSamples, train: Sequence[int], validation: Sequence[int], candidate: CurveFamily | None
) -> FittedCurve:
    if candidate is not None:
        return fit_curve(candidate, known.only(train), weighting=Weighting.ABSOLUTE)
    return select_curve(
        known, validation=validation, candidates=PAPER_FAMILIES, weighting=Weighting.ABSOLUTE, refit=False
    ).chosen
