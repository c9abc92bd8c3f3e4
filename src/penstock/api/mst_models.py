"""`penstock.fit_mst`, `choose_vm_counts` and `compare_elastic`: throughput models and elastic schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.api.input_files import read_text
from penstock.api.policy_options import OptionError

if TYPE_CHECKING:
    from penstock.models.mst.curve_selection import Choose
    from penstock.models.mst.samples import ThroughputSamples
    from penstock.report.mst_results import ElasticResult, MstFits, VmCountChoice


def fit_mst(
    samples: str | Path,
    *,
    predict: Sequence[int] = (),
    app: str | None = None,
    validate: Sequence[int] = (),
    step: float = 0.0,
    level: float = 0.9,
    seed: int = 0,
    models: Sequence[str] = (),
    choose: Choose = "mean",
    plot: str | Path | None = None,
) -> MstFits:
    """Fit a model of the maximum sustainable throughput to each application of a CSV file (app,vms,throughput).

    Args:
        samples: CSV file, or the directory of a study by `measure_mst`.
        predict: VM counts to predict. The default is the measured counts.
        app: Application to fit. The default is all of them.
        validate: VM counts that select the model. Without them, `choose` decides.
        step: Number of VMs that give each parallel unit another thread.
        level: Share of new samples inside the prediction intervals.
        seed: Seed of the bootstrap of the intervals.
        models: Names of the candidate models. The default is all but the competitors "linear" and "mean".
        choose: Criterion if there are no VM counts for validation. "mean": the prediction is a mean of all models,
            weighted by how well they predict the largest counts from the smaller ones. "training": the model with the
            smallest training error, as in the paper. "leave-one-out": the model that predicts each count best from all
            others.
        plot: HTML file to write the curves to.

    Raises:
        OptionError: There is no such way to choose a model.
        SamplesError: The samples, or a name of a model, are invalid.
    """
    from penstock.models.mst.curve_families import families_named
    from penstock.models.mst.samples import samples_of_app
    from penstock.report.mst_results import MstFits, fit_app

    families = families_named(models)
    check_choose(choose)
    by_app = _samples(samples)
    chosen = [samples_of_app(by_app, app)] if app else list(by_app.values())
    fitted = [
        fit_app(
            item,
            predict=predict,
            validation=validate,
            step=step,
            level=level,
            seed=seed,
            families=families,
            choose=choose,
        )
        for item in chosen
    ]
    if plot is not None:
        from penstock.report.mst_curve import sample_curve
        from penstock.report.page import mst_page, write_page

        curves = [sample_curve(item, model, level=level) for item, (model, _) in zip(chosen, fitted, strict=True)]
        write_page(Path(plot), mst_page(curves))
    return MstFits(apps=[fit for _, fit in fitted])


def choose_vm_counts(
    samples: str | Path | Sequence[str | Path],
    *,
    max_vms: int,
    sizes: Sequence[int] = (3, 4, 5),
    seed: int = 0,
) -> VmCountChoice:
    """Choose the VM counts to measure: the subset from which the models predict the other counts best.

    Args:
        samples: CSV files (app,vms,throughput), or directories of studies by `measure_mst`.
        max_vms: Largest VM count to measure.
        sizes: Sizes of the subsets to consider.
        seed: Seed of the sample of subsets that is considered if there are more than a million.
    """
    from penstock.models.mst.training_subset import best_training_subset
    from penstock.report.mst_results import vm_count_choice

    paths = [samples] if isinstance(samples, str | Path) else samples
    by_app = {app: measured for path in paths for app, measured in _samples(path).items()}
    return vm_count_choice(best_training_subset(list(by_app.values()), max_vms=max_vms, sizes=tuple(sizes), seed=seed))


def compare_elastic(
    trace: str | Path,
    *,
    samples: str | Path,
    app: str | None = None,
    train: Sequence[int] | None = None,
    validate: Sequence[int] | None = None,
    step: float = 0.0,
    price_per_h: float = 0.10,
    delay_s: float = 60.0,
    max_vms: int | None = None,
    peak: float | None = None,
    choose_share: float = 0.5,
    plot: str | Path | None = None,
) -> ElasticResult:
    """Compare policies that rent VMs for a changing load: their cost, and how often the capacity is too low.

    Args:
        trace: CSV file (time_s,rate).
        samples: CSV file (app,vms,throughput), or the directory of a study by `measure_mst`.
        app: Application in `samples`. The default is the only one.
        train: VM counts that fit the models. The default is all counts that do not validate.
        validate: VM counts that select the model. The default is the largest one.
        step: Number of VMs that give each parallel unit another thread.
        price_per_h: Price of a VM per hour.
        delay_s: Time from ordering a VM to its use.
        max_vms: Largest number of VMs. The default is the largest measured count.
        peak: Scale the trace so that its highest rate is this many rows/s.
        choose_share: Share of the trace that selects the parameters of the policies. The result refers to the rest.
        plot: HTML file to write the schedules to.
    """
    from penstock.models.mst.samples import samples_of_app
    from penstock.planning.elastic_comparison import ModelInputs, compare
    from penstock.planning.elastic_schedule import RentalTerms
    from penstock.planning.trace import parse_trace
    from penstock.report.mst_results import default_validation, elastic_result

    load = parse_trace(read_text(Path(trace)), source=str(trace))
    load = load if peak is None else load.scaled_to(peak)
    measured = samples_of_app(_samples(samples), app)
    validation = default_validation(measured) if validate is None else tuple(validate)
    comparison = compare(
        load,
        measured,
        terms=RentalTerms(
            price_per_h=price_per_h, delay_s=delay_s, max_vms=max(measured.vms) if max_vms is None else max_vms
        ),
        inputs=ModelInputs(
            train=measured.without(validation).vms if train is None else tuple(train),
            validation=validation,
            steps=(0.0,) if step == 0 else (0.0, step),
        ),
        choose_share=choose_share,
    )
    if plot is not None:
        from penstock.report.page import elastic_page, write_page

        write_page(Path(plot), elastic_page(load, comparison))
    return elastic_result(comparison)


def check_choose(choose: str) -> None:
    """Raise OptionError if there is no such way to choose a model."""
    from penstock.models.mst.curve_selection import CHOOSE_METHODS

    if choose not in CHOOSE_METHODS:
        raise OptionError(f"A model cannot be chosen by '{choose}'; the methods are {', '.join(CHOOSE_METHODS)}.")


def _samples(path: str | Path) -> dict[str, ThroughputSamples]:
    from penstock.models.mst.samples import parse_samples

    if Path(path).is_dir():
        from penstock.study.mst.model import samples_in

        measured = samples_in(Path(path))
        return {measured.app: measured}
    return parse_samples(read_text(Path(path)), source=str(path))
