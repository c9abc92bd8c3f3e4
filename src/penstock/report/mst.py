"""What `penstock mst` and `penstock elastic` say, as values with a JSON form."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.models.mst.curve_families import CURVE_FAMILIES
from penstock.models.mst.fitted_curve import check_vm_counts, fit_curve
from penstock.models.mst.prediction import MstModel, fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.models.mst.training_subset import TrainingSubset
from penstock.models.mst.validation_counts import first_divergences
from penstock.planning.elastic_comparison import ElasticComparison
from penstock.planning.elastic_schedule import ElasticOutcome


class PredictionReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new sample on `vms` VMs is within low..high with probability `level`."""

    vms: int
    throughput: float
    low: float
    high: float
    level: float


class AppReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model of one application. `errors` are relative RMSEs on `validated` VMs, or leaving out a count."""

    app: str
    model: str
    weights: list[float | None]  # null: no roof in sight (infinite)
    step_vms: float
    errors: dict[str, float]
    trained: list[int]
    validated: list[int]
    measure_next: list[int]
    predictions: list[PredictionReport]


class MstReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of `penstock mst fit`."""

    apps: list[AppReport]


class SubsetReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of `penstock mst subset`."""

    vms: list[int]
    rmse: float
    tried: int
    subsets: int
    exhaustive: bool


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares are of the time judged."""

    policy: str
    cost_per_h: float
    violations: float
    behind: float
    worst_lag_s: float
    mean_vms: float
    peak_vms: int


class ElasticReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of `penstock elastic`. `vms` is our schedule over the whole trace, interval by interval. `as_good` is
    the least over-provisioning that, in hindsight, has no more violations than ours; null where none up to 100% has."""

    app: str
    model: str
    paper_model: str
    over_provisioning_percent: int
    confidence: float | None
    judged_from: int
    intervals: int
    policies: list[PolicyReport]
    as_good: PolicyReport | None
    vms: list[int]


def default_validation(samples: ThroughputSamples) -> tuple[int, ...]:
    """The largest VM count, where three others are left to train on: only a far sample tells the candidates apart."""
    return samples.vms[-1:] if len(samples.vms) >= 4 else ()


def fit_app(
    samples: ThroughputSamples,
    *,
    predict: Sequence[int],
    validation: Sequence[int] | None,
    step: float,
    level: float,
    seed: int,
) -> tuple[MstModel, AppReport]:
    """`validation` None: the default; `predict` empty: the counts measured."""
    counts = check_vm_counts(predict or samples.vms)
    max_vms = max(*counts, *samples.vms)
    held = default_validation(samples) if validation is None else tuple(validation)
    steps = (0.0,) if step == 0 else (0.0, step)
    model = fit_mst(samples, max_vms=max_vms, validation=held, steps=steps, seed=seed)
    return model, app_report(model, samples, predict=counts, level=level)


def app_report(model: MstModel, samples: ThroughputSamples, *, predict: Sequence[int], level: float) -> AppReport:
    """Of a model fitted to these samples; `predict` empty: the counts measured."""
    chosen = model.selection.chosen
    everyone = [fit_curve(candidate, samples, step=chosen.step) for candidate in CURVE_FAMILIES]
    return AppReport(
        app=samples.app,
        model=chosen.name,
        weights=[weight if np.isfinite(weight) else None for weight in chosen.weights],
        step_vms=chosen.step,
        errors=model.selection.errors,
        trained=list(model.selection.trained),
        validated=list(model.selection.validated),
        measure_next=first_divergences(everyone, trained=samples.vms, max_vms=model.max_vms),
        predictions=[
            PredictionReport(vms=p.vms, throughput=p.throughput, low=p.low, high=p.high, level=p.level)
            for p in model.predict(predict or samples.vms, level=level)
        ],
    )


def subset_report(best: TrainingSubset) -> SubsetReport:
    return SubsetReport(
        vms=list(best.vms), rmse=best.rmse, tried=best.tried, subsets=best.subsets, exhaustive=best.exhaustive
    )


def elastic_report(comparison: ElasticComparison) -> ElasticReport:
    ours = comparison.schedules[-1]
    return ElasticReport(
        app=comparison.app,
        model=comparison.model.selection.chosen.name,
        paper_model=comparison.paper_model,
        over_provisioning_percent=comparison.percent,
        confidence=comparison.careful.confidence,
        judged_from=comparison.judged_from,
        intervals=len(ours.vms),
        policies=[_policy_report(outcome) for outcome in comparison.outcomes],
        as_good=None if comparison.as_good is None else _policy_report(comparison.as_good),
        vms=[int(count) for count in ours.vms],
    )


def _policy_report(outcome: ElasticOutcome) -> PolicyReport:
    return PolicyReport(
        policy=outcome.policy,
        cost_per_h=outcome.cost_per_h,
        violations=outcome.violations,
        behind=outcome.behind,
        worst_lag_s=outcome.worst_lag_s,
        mean_vms=outcome.mean_vms,
        peak_vms=outcome.peak_vms,
    )
