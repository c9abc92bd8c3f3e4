"""Smoothing: combine several windows into one.

Source: DRS (Fu et al. 2017), section IV-A. Let d(n) be a measurement of window n and D(n) its smoothed value, for each
field over the windows in which it is known:

    moving average   D(n) = (d(n-w+1) + ... + d(n)) / w
    exponential      D(n) = alpha D(n-1) + (1 - alpha) d(n)

Both are functions of the windows alone and have no other state. Rates, costs and times are averaged. Counts of rows and
batches are summed. Levels (backlog, state, totals) are those of the last window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, mul
from typing import Any, Protocol

import msgspec
import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.measure.window import Latency, OperatorWindow, PipelineWindow, Window

_NEGLIGIBLE = 1e-3  # maximum total weight of the windows that exponential smoothing ignores

_AVERAGED = (
    "input_rows_per_s",
    "processed_rows_per_s",
    "true_rows_per_s",
    "selectivity",
    "seconds_per_row",
    "utilisation",
    "arrival_scv",
    "service_scv",
    "overhead",
)
_SELECTIVITY, _UTILISATION = _AVERAGED.index("selectivity"), _AVERAGED.index("utilisation")
_SUMMED = ("rows_in", "rows_out", "utilisation_s")
_ROWS_IN, _UTILISATION_S = len(_AVERAGED), len(_AVERAGED) + _SUMMED.index("utilisation_s")
_OPERATOR_FIELDS = (*_AVERAGED, *_SUMMED)
_operator_numbers = attrgetter(*_OPERATOR_FIELDS)
_pipeline_numbers = attrgetter("batches", "rows_in", "busy_s", "batch_max_s", "batch_s")
_NAME = {"operators": attrgetter("operator"), "pipelines": attrgetter("pipeline")}
_ABSENT = {  # stands for an operator or pipeline that a window does not contain
    "operators": OperatorWindow.knowing("", ""),
    "pipelines": PipelineWindow(
        pipeline="",
        operators=(),
        batches=0,
        rows_in=0,
        batch_s=None,
        batch_max_s=None,
        phases_s={},
        busy_s=None,
        backlog_rows=None,
    ),
}


class Smoothing(Protocol):
    """A way to combine the latest windows into one."""

    @property
    def reach(self) -> int:
        """Return the number of latest windows that influence the result."""
        ...

    @property
    def required(self) -> int:
        """Return the number of windows before which there is no result."""
        ...

    def smoothed(self, windows: Sequence[Window]) -> Window | None:
        """Return the combined window; None if there are too few. `windows` are in order of time."""
        ...


@dataclass(frozen=True, slots=True)
class MovingAverage:
    """The mean of the latest `size` windows."""

    size: int = 3

    def __post_init__(self) -> None:
        if self.size < 1:
            raise PenstockError(f"The number of windows to average is {self.size}. It must be 1 or more.")

    @property
    def reach(self) -> int:
        return self.size

    @property
    def required(self) -> int:
        return self.size

    def smoothed(self, windows: Sequence[Window]) -> Window | None:
        if len(windows) < self.size:
            return None
        return merged(windows[-self.size :], [1.0] * self.size)


@dataclass(frozen=True, slots=True)
class ExponentialSmoothing:
    """Weights that shrink by the factor `alpha` per window of age. At least `min_windows` windows are required."""

    alpha: float = 0.5
    min_windows: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1 or self.min_windows < 1:
            raise PenstockError(
                f"Exponential smoothing has alpha {self.alpha} and requires {self.min_windows} windows. Alpha must be "
                "0 or more and below 1, and at least 1 window must be required."
            )

    @property
    def reach(self) -> int:
        relevant = math.ceil(math.log(_NEGLIGIBLE) / math.log(self.alpha)) if self.alpha > 0 else 1
        return max(self.min_windows, relevant)

    @property
    def required(self) -> int:
        return self.min_windows

    def smoothed(self, windows: Sequence[Window]) -> Window | None:
        if len(windows) < self.min_windows:
            return None
        latest = windows[-self.reach :]
        weights = [(1.0 - self.alpha) * self.alpha ** (len(latest) - 1 - index) for index in range(len(latest))]
        weights[0] = self.alpha ** (
            len(latest) - 1
        )  # D(1) = d(1): the first window also has the weight of all earlier ones
        return merged(latest, weights)


def merged(windows: Sequence[Window], weights: Sequence[float]) -> Window:
    """Return one window over the span of all windows, with a weight for each."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    return Window(
        start_s=windows[0].start_s,
        end_s=last.end_s,
        generation=last.generation,
        external_rows_per_s=_mean([window.external_rows_per_s for window in windows], weights),
        latency=_latency([window.latency for window in windows], weights),
        pipelines=_pipelines(windows, weights),
        operators=_operators(windows, weights),
    )


def _aligned(windows: Sequence[Window], parts: str) -> list[tuple[Any, ...]]:
    """Return, for each part (operator or pipeline) of the last window, a tuple with the part in every window."""
    per_window = [getattr(window, parts) for window in windows]
    names = [list(map(_NAME[parts], window_parts)) for window_parts in per_window]
    if all(window_names == names[-1] for window_names in names):  # the usual case
        return list(zip(*per_window, strict=True))
    by_name = [dict(zip(*pair, strict=True)) for pair in zip(names, per_window, strict=True)]
    return [tuple(window_parts.get(name, _ABSENT[parts]) for window_parts in by_name) for name in names[-1]]


def _numbers(numbers: Sequence[float | None], parts: int, windows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values by part, window and field, with 0 for unknown values, and a mask of the known values.

    One array holds all numbers, because there may be hundreds of parts with ten numbers per window.
    """
    values = np.array(numbers, dtype=float).reshape(parts, windows, -1)  # None becomes NaN
    unknown = np.isnan(values)
    values[unknown] = 0.0
    return values, ~unknown


def _means(values: np.ndarray, weights: np.ndarray) -> list[list[float | None]]:
    """Return the weighted means over the windows; None without any weight."""
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return _or_none((values * weights).sum(axis=1) / total, total)


def _or_none(values: np.ndarray, weights: np.ndarray) -> list[Any]:
    """Return the values as lists, with None for values without weight."""
    objects = values.astype(object)
    objects[weights == 0] = None
    return objects.tolist()  # type: ignore[no-any-return]


def _operators(windows: Sequence[Window], weights: Sequence[float]) -> tuple[OperatorWindow, ...]:
    operators = _aligned(windows, "operators")
    if not operators:
        return ()
    numbers = list(chain.from_iterable([_operator_numbers(part) for parts in operators for part in parts]))
    values, known = _numbers(numbers, len(operators), len(windows))
    field_weights = known[:, :, :_ROWS_IN] * np.array(weights)[:, np.newaxis]
    # Weight a selectivity by its input rows, and a utilisation by its time. Otherwise keep the plain weights.
    sums, sums_known = values[:, :, _ROWS_IN:].sum(axis=1), known[:, :, _ROWS_IN:].sum(axis=1)
    for field, weight in ((_SELECTIVITY, _ROWS_IN), (_UTILISATION, _UTILISATION_S)):
        has_weight = sums[:, weight - _ROWS_IN] > 0
        field_weights[has_weight, :, field] *= values[has_weight, :, weight]
    averaged, summed = _means(values[:, :, :_ROWS_IN], field_weights), _or_none(sums, sums_known)
    return tuple(
        msgspec.structs.replace(
            parts[-1],
            **dict(zip(_AVERAGED, means, strict=True)),
            rows_in=None if sums[0] is None else int(sums[0]),
            rows_out=None if sums[1] is None else int(sums[1]),
            utilisation_s=sums[2],
        )
        for parts, means, sums in zip(operators, averaged, summed, strict=True)
    )


def _pipelines(windows: Sequence[Window], weights: Sequence[float]) -> tuple[PipelineWindow, ...]:
    pipelines = _aligned(windows, "pipelines")
    if not pipelines:
        return ()
    numbers = list(chain.from_iterable([_pipeline_numbers(part) for parts in pipelines for part in parts]))
    values, known = _numbers(numbers, len(pipelines), len(windows))
    # Weight a mean over batches by the number of batches.
    batch_weights = (np.array(weights) * values[:, :, 0])[:, :, np.newaxis]
    averaged = _means(values[:, :, 4:], known[:, :, 4:] * batch_weights)
    sums = _or_none(values[:, :, :3].sum(axis=1), known[:, :, :3].sum(axis=1))
    longest = np.where(known[:, :, 3], values[:, :, 3], -np.inf).max(axis=1)
    maxima = _or_none(longest, known[:, :, 3].sum(axis=1))
    phases = _phases(pipelines, batch_weights)
    return tuple(
        msgspec.structs.replace(
            parts[-1],
            batches=int(batches),
            rows_in=int(rows_in),
            batch_s=batch_s,
            batch_max_s=batch_max_s,
            phases_s=phases_s,
            busy_s=busy_s,
        )
        for parts, (batches, rows_in, busy_s), (batch_s,), batch_max_s, phases_s in zip(
            pipelines, sums, averaged, maxima, phases, strict=True
        )
    )


def _phases(pipelines: Sequence[tuple[PipelineWindow, ...]], batch_weights: np.ndarray) -> list[dict[str, float]]:
    """Return the mean time of each phase that the last window of a pipeline has."""
    names = list(dict.fromkeys(phase for parts in pipelines for phase in parts[-1].phases_s))
    if not names:
        return [{} for _ in pipelines]
    numbers = [part.phases_s.get(phase) for parts in pipelines for part in parts for phase in names]
    values, known = _numbers(numbers, len(pipelines), len(pipelines[0]))
    by_name = [dict(zip(names, means, strict=True)) for means in _means(values, known * batch_weights)]
    return [
        {phase: means[phase] or 0.0 for phase in parts[-1].phases_s}
        for parts, means in zip(pipelines, by_name, strict=True)
    ]


def _latency(latencies: Sequence[Latency | None], weights: Sequence[float]) -> Latency | None:
    known = [(latency, weight) for latency, weight in zip(latencies, weights, strict=True) if latency is not None]
    if not known:
        return None
    total = sum(weight for _, weight in known)
    times = {
        field: math.fsum(weight * getattr(latency, field) for latency, weight in known) / total
        for field in ("mean_s", "p50_s", "p95_s", "p99_s")
    }
    return Latency(rows=sum(latency.rows for latency, _ in known), sd_s=_deviation_s(known), **times)


def _deviation_s(known: Sequence[tuple[Latency, float]]) -> float | None:
    """Return the standard deviation over all windows, which includes the differences between their means."""
    spread = [(latency.mean_s, latency.sd_s, weight) for latency, weight in known if latency.sd_s is not None]
    total = sum(weight for _, _, weight in spread)
    if not total:
        return None
    mean_s = sum(weight * mean for mean, _, weight in spread) / total
    return math.sqrt(sum(weight * (sd**2 + (mean - mean_s) ** 2) for mean, sd, weight in spread) / total)


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    if None not in values:  # the usual case, computed quickly because policies wait for it
        return float(sum(map(mul, values, weights)) / total) if (total := sum(weights)) else None
    total = known_weight = 0.0
    for value, weight in zip(values, weights, strict=True):
        if value is not None:
            total += weight * value
            known_weight += weight
    return total / known_weight if known_weight else None
