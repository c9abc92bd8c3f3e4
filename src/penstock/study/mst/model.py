"""The model that the trials of a study make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.prediction import MstModel, fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.store import StoreReader, Trial
from penstock.study.mst.design import samples_of, steps_of

REACH = 2  # how far beyond the most executors that were measured, as a multiple of them


def samples_in(study: Path) -> ThroughputSamples:
    with StoreReader(study) as store:
        run, trials = store.last_run(), store.trials()
    samples = samples_of("" if run is None else run.dataflow, trials)
    if samples is None:
        without = f" (the last of {len(trials)}: {trials[-1].why})" if trials else ""
        raise PenstockError(
            f"'{study}' has no trial with a result{without}; make some with 'penstock mst measure FILE --at {study}'"
        )
    return samples


def model_of(samples: ThroughputSamples, trials: Sequence[Trial], most: int) -> MstModel:
    """Whoever says something of a study says it by this: each count in turn is predicted from the others.

    The draws behind its intervals depend on how far it reaches: so it reaches equally far, whatever is asked, but where
    more is asked for.
    """
    return fit_mst(samples, max_vms=max(most, REACH * max(samples.vms)), steps=steps_of(trials))


def model_in(study: Path, most: int, *, dataflow: str, slots_each: int) -> MstModel:
    """For up to so many executors; refused where it was measured of another dataflow, or on other executors."""
    samples = samples_in(study)
    with StoreReader(study) as store:
        run, trials = store.last_run(), store.trials()
    if run is not None and run.dataflow != dataflow:
        raise PenstockError(f"'{study}' is a study of '{run.dataflow}', not of '{dataflow}'; give that of this one")
    measured = {one.plan.slots // one.executors for one in trials if one.rows_per_s is not None}
    if measured - {slots_each}:
        raise PenstockError(
            f"'{study}' was measured with {', '.join(map(str, sorted(measured)))} slots an executor, and here one has "
            f"{slots_each}; measure it with --slots {slots_each}"
        )
    return model_of(samples, trials, most)
