"""The capacity model of a study, fitted to its trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.curve_selection import Choose
from penstock.models.mst.prediction import MstModel, fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.store import StoreReader, Trial
from penstock.study.mst.design import samples_of, steps_of, validation_counts

REACH = 2  # the model reaches to this multiple of the largest measured count


def samples_in(study: Path) -> ThroughputSamples:
    with StoreReader(study) as store:
        run, trials = store.last_run(), store.trials()
    samples = samples_of("" if run is None else run.dataflow, trials)
    if samples is None:
        without = f" (the last of {len(trials)}: {trials[-1].reason})" if trials else ""
        raise PenstockError(
            f"'{study}' contains no trial with a result{without}; run 'penstock mst measure FILE --at {study}'."
        )
    return samples


def model_of(
    samples: ThroughputSamples,
    trials: Sequence[Trial],
    max_executors: int,
    *,
    choose: Choose = "mean",
    families: Sequence[CurveFamily] = CURVE_FAMILIES,
) -> MstModel:
    """Fit the model of a study. All commands use this function, so that their predictions agree.

    The counts that were measured for validation select the model; without them `choose` decides (see `select_curve`).

    The random draws behind the intervals depend on the reach of the model. It is therefore the same for all requests
    up to `REACH` times the largest measured count.
    """
    return fit_mst(
        samples,
        max_vms=max(max_executors, REACH * max(samples.vms)),
        validation=validation_counts(trials),
        steps=steps_of(trials),
        families=families,
        choose=choose,
    )


def model_in(study: Path, max_executors: int, *, dataflow: str, slots_per_executor: int) -> MstModel:
    """Return the model of a stored study, for up to `max_executors` executors.

    Raises PenstockError if the study measured another dataflow or executors of another size.
    """
    samples = samples_in(study)
    with StoreReader(study) as store:
        run, trials = store.last_run(), store.trials()
    if run is not None and run.dataflow != dataflow:
        raise PenstockError(
            f"'{study}' is a study of dataflow '{run.dataflow}'; give a study of dataflow '{dataflow}'."
        )
    measured = {trial.plan.slots // trial.executors for trial in trials if trial.rows_per_s is not None}
    if measured - {slots_per_executor}:
        raise PenstockError(
            f"'{study}' was measured with {', '.join(map(str, sorted(measured)))} slots per executor, but this run has "
            f"{slots_per_executor}; measure again with {slots_per_executor} cores per executor."
        )
    return model_of(samples, trials, max_executors)
