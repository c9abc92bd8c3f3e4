"""Predicted and observed values of a run, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.planning.plan_prediction import PlanPrediction
from penstock.report.formatting import UNKNOWN, count, seconds
from penstock.store import RunStart, StoreReader

_WINDOWS = 30  # the observed values are means of at most so many windows
Unit = Literal["rows/s", "s", "%", "per h"]


class PredictedValue(msgspec.Struct, frozen=True, kw_only=True):
    """One predicted value and what was observed; None: unknown."""

    quantity: str
    unit: Unit
    predicted: float | None
    observed: float | None

    @property
    def texts(self) -> tuple[str, str, str]:
        """
        >>> PredictedValue(quantity="mean latency", unit="s", predicted=0.25, observed=None).texts
        ('mean latency', '250 ms', '-')
        """
        return self.quantity, _text(self.predicted, self.unit), _text(self.observed, self.unit)


def predicted_values(reader: StoreReader, plan: Plan | None) -> tuple[PredictedValue, ...]:
    """Return the prediction that a run has for its plan, with means over the latest windows under this plan.

    It is empty if there is no prediction for the plan in force.
    """
    starts = reader.runs()
    prediction = None if plan is None else _prediction(starts, plan)
    if prediction is None or plan is None:
        return ()
    latest = [window for _, window in reader.windows(last=_WINDOWS)]
    windows = [window for window in latest if window.generation == latest[-1].generation and not window.warm_up]
    price = starts[-1].price_per_slot_hour
    values = [
        PredictedValue(
            quantity="rows/s from the sources",
            unit="rows/s",
            predicted=prediction.rows_per_s,
            observed=_mean((window.external_rows_per_s, window.end_s - window.start_s) for window in windows),
        ),
        PredictedValue(
            quantity="rows/s processed",
            unit="rows/s",
            predicted=min(prediction.rows_per_s, prediction.sustained_rows_per_s),
            observed=_mean((_processed_per_s(window), window.end_s - window.start_s) for window in windows),
        ),
        PredictedValue(
            quantity="rows/s sustained",
            unit="rows/s",
            predicted=prediction.sustained_rows_per_s,
            observed=None,
        ),
        PredictedValue(
            quantity="mean latency",
            unit="s",
            predicted=prediction.latency_s,
            observed=_mean(
                (window.latency.mean_s, float(window.latency.rows)) for window in windows if window.latency is not None
            ),
        ),
        PredictedValue(
            quantity="price",
            unit="per h",
            predicted=prediction.price_per_h,
            observed=None if price is None else price * plan.slots,
        ),
    ]
    for group, use in prediction.use.items():
        slots = f"slots of group {group}" if group else "slots without a group"
        values.append(PredictedValue(quantity=f"CPU, {slots}", unit="%", predicted=use.cpu, observed=None))
        values.append(PredictedValue(quantity=f"memory, {slots}", unit="%", predicted=use.memory, observed=None))
    return tuple(value for value in values if value.predicted is not None or value.observed is not None)


def _prediction(starts: Sequence[RunStart], plan: Plan) -> PlanPrediction | None:
    """Return the latest prediction for a plan; a resumed run has that of an earlier start."""
    for start in reversed(starts):
        if start.prediction is not None and start.prediction.is_for(plan):
            return start.prediction
    return None


def _processed_per_s(window: Window) -> float | None:
    """Return the rows/s that were read from the sources, which have no replicas."""
    rates = [operator.processed_rows_per_s for operator in window.operators if operator.replicas is None]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _mean(weighted: Iterable[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total > 0 else None


def _text(value: float | None, unit: Unit) -> str:
    if value is None:
        return UNKNOWN
    return {"rows/s": count(value), "s": seconds(value), "%": f"{value:.1f}%", "per h": f"{value:.4g}"}[unit]
