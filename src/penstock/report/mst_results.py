"""Results of MST models and elastic schedules as values with a JSON form."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.curve_selection import Choose
from penstock.models.mst.fitted_curve import check_vm_counts, fit_curve
from penstock.models.mst.prediction import MstModel, fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.models.mst.training_subset import TrainingSubset
from penstock.models.mst.validation_counts import first_divergences
from penstock.planning.elastic_comparison import ElasticComparison
from penstock.planning.elastic_schedule import ElasticOutcome
from penstock.study.mst.design import PACED


class ThroughputPrediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new sample on `vms` VMs is between `low` and `high` with probability `level`."""

    vms: int
    throughput: float
    low: float
    high: float
    level: float


class MstFit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model of one application.

    `errors` are relative RMSEs on the VM counts `validated`. If there are none, `choose` says which errors they are:
    "mean" those of the larger counts predicted from the smaller ones, by which the models are weighted; "training"
    those at the trained counts; "leave-one-out" those at each count predicted from all others.
    """

    app: str
    model: str  # the one with the largest share
    shares: dict[str, float]  # by model; models without a share are left out
    weights: list[float | None]  # of `model`; null: infinite
    step_vms: float
    errors: dict[str, float]
    trained: list[int]
    validated: list[int]
    choose: Choose
    measure_next: list[int]
    predictions: list[ThroughputPrediction]


class MstFits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The models of all applications in a samples file."""

    apps: list[MstFit]


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one trial. `converged` is False if the samples did not converge; `reason` says why."""

    study: str
    executors: int
    repeat: int
    rows_per_s: float
    bytes_per_s: float | None
    converged: bool
    reason: str | None
    replicas_by: str

    @property
    def paced(self) -> bool:
        return self.study == PACED


class MstMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of a study and the model fitted to them; `fit` is None if only one executor count was measured."""

    app: str
    directory: str
    measured: tuple[int, ...]  # executor counts
    fit: MstFit | None
    trials: tuple[TrialResult, ...]


class VmCountChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The VM counts from which the models predict the other counts best."""

    vms: list[int]
    rmse: float
    tried: int
    subsets: int
    exhaustive: bool


class ElasticPolicyResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of one policy. `violations` and `behind` are shares of the evaluated time."""

    policy: str
    cost_per_h: float
    violations: float
    behind: float
    worst_lag_s: float
    mean_vms: float
    peak_vms: int


class ElasticResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The comparison of policies on a trace.

    `vms` is the schedule of the last policy, one number per interval. `as_good` is the least over-provisioning that has
    no more violations than the last policy; null if even 100 % has more.
    """

    app: str
    model: str
    paper_model: str
    over_provisioning_percent: int
    confidence: float | None
    judged_from: int
    intervals: int
    policies: list[ElasticPolicyResult]
    as_good: ElasticPolicyResult | None
    vms: list[int]


def default_validation(samples: ThroughputSamples) -> tuple[int, ...]:
    """Return the largest VM count if three others remain for training: the models differ most at large counts."""
    return samples.vms[-1:] if len(samples.vms) >= 4 else ()


def fit_app(
    samples: ThroughputSamples,
    *,
    predict: Sequence[int],
    validation: Sequence[int],
    step: float,
    level: float,
    seed: int,
    families: Sequence[CurveFamily] = CURVE_FAMILIES,
    choose: Choose = "mean",
) -> tuple[MstModel, MstFit]:
    """Fit and select a model.

    `predict` defaults to the measured VM counts. Without `validation` counts `choose` selects the model. Its default
    is a mean of all models. `step` is the number of VMs that give each parallel unit another thread; 0
    disables steps.
    """
    counts = check_vm_counts(predict or samples.vms)
    max_vms = max(*counts, *samples.vms)
    steps = (0.0,) if step == 0 else (0.0, step)
    model = fit_mst(
        samples, max_vms=max_vms, validation=validation, steps=steps, families=families, choose=choose, seed=seed
    )
    return model, mst_fit(model, samples, predict=counts, level=level)


def mst_fit(model: MstModel, samples: ThroughputSamples, *, predict: Sequence[int], level: float) -> MstFit:
    """Return the result of a model fitted to these samples; `predict` defaults to the measured VM counts."""
    chosen = model.selection.chosen
    all_curves = [fit_curve(curve.family, samples, step=chosen.step) for curve in model.selection.curves]
    return MstFit(
        app=samples.app,
        model=chosen.name,
        shares={
            curve.name: share
            for curve, share in zip(model.selection.curves, model.selection.shares, strict=True)
            if share > 0
        },
        weights=[weight if np.isfinite(weight) else None for weight in chosen.weights],
        step_vms=chosen.step,
        errors=model.selection.errors,
        trained=list(model.selection.trained),
        validated=list(model.selection.validated),
        choose=model.selection.choose,
        measure_next=first_divergences(all_curves, trained=samples.vms, max_vms=model.max_vms)
        if len(all_curves) > 1
        else [],
        predictions=[
            ThroughputPrediction(vms=p.vms, throughput=p.throughput, low=p.low, high=p.high, level=p.level)
            for p in model.predict(predict or samples.vms, level=level)
        ],
    )


def vm_count_choice(best: TrainingSubset) -> VmCountChoice:
    return VmCountChoice(
        vms=list(best.vms), rmse=best.rmse, tried=best.tried, subsets=best.subsets, exhaustive=best.exhaustive
    )


def elastic_result(comparison: ElasticComparison) -> ElasticResult:
    ours = comparison.schedules[-1]
    return ElasticResult(
        app=comparison.app,
        model=comparison.model.selection.chosen.name,
        paper_model=comparison.paper_model,
        over_provisioning_percent=comparison.percent,
        confidence=comparison.careful.confidence,
        judged_from=comparison.judged_from,
        intervals=len(ours.vms),
        policies=[_policy_result(outcome) for outcome in comparison.outcomes],
        as_good=None if comparison.as_good is None else _policy_result(comparison.as_good),
        vms=[int(count) for count in ours.vms],
    )


def _policy_result(outcome: ElasticOutcome) -> ElasticPolicyResult:
    return ElasticPolicyResult(
        policy=outcome.policy,
        cost_per_h=outcome.cost_per_h,
        violations=outcome.violations,
        behind=outcome.behind,
        worst_lag_s=outcome.worst_lag_s,
        mean_vms=outcome.mean_vms,
        peak_vms=outcome.peak_vms,
    )
