"""Maximum sustainable throughput (MST) by executors: measurements and the fitted curve with its intervals."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.models.mst.prediction import MstModel
from penstock.models.mst.samples import ThroughputSamples
from penstock.store import StoreReader
from penstock.study.mst.design import PACED, samples_of
from penstock.study.mst.model import model_of


class MstPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. `is_validation` marks measurements that selected the model instead of fitting it."""

    executors: int
    rows_per_s: float
    is_validation: bool = False


class MstInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A new measurement is between `low` and `high` with probability `level`."""

    executors: int
    rows_per_s: float
    low: float
    high: float
    level: float


class MstCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one application and the curve fitted to them."""

    app: str
    points: tuple[MstPoint, ...]
    model: str | None = None  # None if there are too few measurements for a model
    fitted: tuple[MstInterval, ...] = ()
    machines: str = "executors"  # name of the x axis
    unit: str = "rows/s"


def mst_curve(
    app: str, points: Iterable[tuple[int, float]], model: MstModel | None = None, *, level: float = 0.9
) -> MstCurve:
    """Return the curve of trials given as `(executors, rows_per_s)`, with the predictions of a model fitted to them."""
    validated = () if model is None else model.selection.validated
    return MstCurve(
        app=app,
        points=tuple(
            MstPoint(executors=executors, rows_per_s=rate, is_validation=executors in validated)
            for executors, rate in points
        ),
        model=None if model is None else model.selection.chosen.name,
        fitted=() if model is None else _intervals(model, level),
    )


def sample_curve(samples: ThroughputSamples, model: MstModel, *, level: float) -> MstCurve:
    """Return the curve of samples by VM count, whose unit of throughput is unknown."""
    curve = mst_curve(samples.app, _flat(samples), model, level=level)
    return msgspec.structs.replace(curve, machines="VMs", unit="throughput")


def curves_in(reader: StoreReader) -> tuple[MstCurve, ...]:
    """Return the curve of the saturated trials in a store with their model, and the curve of the paced trials."""
    run, trials = reader.last_run(), reader.trials()
    app = "" if run is None else run.dataflow
    curves = []
    samples = samples_of(app, trials)
    if samples is not None:
        model = model_of(samples, trials, max(samples.vms)) if len(samples.vms) > 1 else None
        curves.append(mst_curve(app, _flat(samples), model))
    paced = [(t.executors, t.rows_per_s) for t in trials if t.study == PACED and t.rows_per_s]
    if paced:
        curves.append(mst_curve(f"{app}, paced", paced))
    return tuple(curves)


def _flat(samples: ThroughputSamples) -> list[tuple[int, float]]:
    return [(vms, rate) for vms, rates in zip(samples.vms, samples.throughput, strict=True) for rate in rates]


def _intervals(model: MstModel, level: float) -> tuple[MstInterval, ...]:
    return tuple(
        MstInterval(executors=p.vms, rows_per_s=p.throughput, low=p.low, high=p.high, level=p.level)
        for p in model.predict(range(1, model.max_vms + 1), level=level)
    )
