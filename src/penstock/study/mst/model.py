"""The model that the trials of a study make."""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.prediction import MstModel, fit_mst
from penstock.models.mst.samples import Samples
from penstock.store import StoreReader
from penstock.study.mst.design import samples_of


def samples_in(study: Path) -> Samples:
    with StoreReader(study) as store:
        run, trials = store.last_run(), store.trials()
    samples = samples_of("" if run is None else run.dataflow, trials)
    if samples is None:
        raise PenstockError(
            f"'{study}' has no trial with a result; make some with 'penstock mst measure FILE --at {study}'"
        )
    return samples


def model_in(study: Path, most: int) -> MstModel:
    """For up to so many executors."""
    samples = samples_in(study)
    return fit_mst(samples, max_vms=max(most, *samples.vms))
