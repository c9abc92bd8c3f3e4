"""Compare all elastic policies on one trace: choose parameters on its first part, evaluate on the rest."""

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
    least_over_provisioning,
    outcome_from,
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
    intervals_ahead,
    simulate,
)
from penstock.planning.trace import Trace

OVER_PROVISIONING = (0, 5, 10, 20)  # percent
VIOLATIONS = 0.01  # limit of the paper's last policy, and upper limit of `CarefulPolicy`


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInputs:
    """The samples that the MST models may use.

    The models are fitted to the VM counts `train` and selected on the VM counts `validation`. `steps` are candidate
    capacity steps in VMs (0: none). `paper_family` fixes the family of the paper's model; None selects it.
    """

    train: Sequence[int]
    validation: Sequence[int]
    steps: Sequence[float] = (0.0,)
    paper_family: CurveFamily | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticComparison:
    """The outcomes of all policies. `outcomes[i]` belongs to `schedules[i]`, evaluated from interval `judged_from` on.

    The last two are the paper's policy with the fewest VMs below 1% violations (`percent` more VMs than its model
    requires) and `careful`. The two seldom have equal violations. `as_good` is the outcome of the paper's policy at the
    smallest percentage, known in hindsight only, with at most the violations of `careful`; None if no percentage up to
    100 achieves that.
    """

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
    inputs: ModelInputs,
    choose_share: float = 0.5,
) -> ElasticComparison:
    """Compare the policies on a trace. The ground truth uses all samples, the models only those of `inputs`.

    Parameters are chosen on the first `choose_share` of the trace. The paper's policies use Model 1 or 2, fitted as in
    the paper. The paper's last policy and `CarefulPolicy` choose their parameters on the same rehearsals.
    """
    first = _first_judged(trace, choose_share)
    peak = max(trace.rates)
    truth = ground_truth(samples, terms.max_vms)
    known = samples.only([*inputs.train, *inputs.validation])
    model = fit_mst(known, max_vms=terms.max_vms, validation=inputs.validation, steps=inputs.steps)
    paper_curve = _paper_curve(known, inputs)
    paper_capacity = paper_curve.predict(range(1, terms.max_vms + 1))

    past = rehearsals(Trace(rates=trace.rates[:first], interval_s=trace.interval_s), peak)
    percent = least_over_provisioning(past, paper_capacity, truth, terms, violations=VIOLATIONS)
    ahead = intervals_ahead(trace, terms)
    paper_past = [
        simulate(part, over_provisioned(part, paper_capacity, percent, ahead=ahead), truth, terms) for part in past
    ]
    violations = sum(outcome.violations for outcome in paper_past) / len(past)
    careful = choose_careful(
        past,
        model,
        truth,
        terms,
        planned_peak=peak,
        violations=min(VIOLATIONS, violations),
        paper=(paper_capacity, percent),
    )

    schedules = (
        static("static peak", trace, truth, peak),
        static("static average", trace, truth, sum(trace.rates) / len(trace.rates)),
        with_ground_truth(trace, truth),
        *(over_provisioned(trace, paper_capacity, x, ahead=ahead) for x in OVER_PROVISIONING),
        over_provisioned(trace, paper_capacity, percent, policy=f"elastic <1% (+{percent}%)", ahead=ahead),
        careful.schedule(trace, model),
    )
    outcomes = tuple(outcome_from(trace, schedule, truth, terms, first) for schedule in schedules)
    return ElasticComparison(
        app=samples.app,
        truth=truth,
        model=model,
        paper_model=paper_curve.name,
        percent=percent,
        careful=careful,
        judged_from=first,
        schedules=schedules,
        outcomes=outcomes,
        as_good=over_provisioned_to(
            trace, paper_capacity, truth, terms, first=first, violations=outcomes[-1].violations
        ),
    )


def _first_judged(trace: Trace, choose_share: float) -> int:
    first = math.floor(len(trace.rates) * choose_share) if 0 < choose_share < 1 else 0
    if first < 1:
        raise ElasticError(
            f"A share of {choose_share:g} of {len(trace.rates)} intervals leaves no interval to choose parameters "
            "on or none to evaluate. Give a share between 0 and 1, or a longer trace."
        )
    return first


def _paper_curve(known: ThroughputSamples, inputs: ModelInputs) -> FittedCurve:
    if inputs.paper_family is not None:
        return fit_curve(inputs.paper_family, known.only(inputs.train), weighting=Weighting.ABSOLUTE)
    return select_curve(
        known, validation=inputs.validation, families=PAPER_FAMILIES, weighting=Weighting.ABSOLUTE, refit=False
    ).chosen
