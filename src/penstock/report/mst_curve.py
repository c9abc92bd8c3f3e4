"""Maximum sustainable throughput by executors: what was measured, and the curve through it with its intervals."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.models.mst.prediction import MstModel, MstPrediction
from penstock.store import StoreReader
from penstock.study.mst.design import PACED, samples_of
from penstock.study.mst.model import model_of


class MstPoint(msgspec.Struct, frozen=True, kw_only=True):
    executors: int
    rows_per_s: float


class MstInterval(msgspec.Struct, frozen=True, kw_only=True):
    """`low` to `high` holds a new measurement with probability `level`."""

    executors: int
    rows_per_s: float
    low: float
    high: float
    level: float


class MstCurve(msgspec.Struct, frozen=True, kw_only=True):
    app: str
    points: tuple[MstPoint, ...]  # one a trial
    model: str | None = None  # None while too little is measured to fit one
    fitted: tuple[MstInterval, ...] = ()


def mst_curve(
    app: str, points: Iterable[tuple[int, float]], model: MstModel | None = None, *, level: float = 0.9
) -> MstCurve:
    """From trials as `(executors, rows_per_s)`, and the model that was fitted to them, as far as it reaches."""
    fitted = () if model is None else model.predict(range(1, model.max_vms + 1), level=level)
    return MstCurve(
        app=app,
        points=tuple(MstPoint(executors=executors, rows_per_s=rate) for executors, rate in points),
        model=None if model is None else model.selection.chosen.name,
        fitted=tuple(_interval(one) for one in fitted),
    )


def curves_in(reader: StoreReader) -> tuple[MstCurve, ...]:
    """Of the trials in a store, with the model fitted to them; those that were paced, to check the others, apart."""
    run, trials = reader.last_run(), reader.trials()
    app = "" if run is None else run.dataflow
    found = []
    samples = samples_of(app, trials)
    if samples is not None:
        model = model_of(samples, trials, max(samples.vms)) if len(samples.vms) > 1 else None
        every = zip(samples.vms, samples.throughput, strict=True)
        found.append(mst_curve(app, [(count, rate) for count, rates in every for rate in rates], model))
    paced = [(one.executors, one.rows_per_s) for one in trials if one.study == PACED and one.rows_per_s]
    if paced:
        found.append(mst_curve(f"{app}, paced", paced))
    return tuple(found)


def _interval(one: MstPrediction) -> MstInterval:
    return MstInterval(executors=one.vms, rows_per_s=one.throughput, low=one.low, high=one.high, level=one.level)
