"""Smoothing: several windows as one. The two ways of DRS (Fu et al. 2017, section IV-A), exponential and windowed.

With d(n) what window n measured and D(n) what comes out, field by field, over the windows that know the field:

    windowed      D(n) = (d(n-w+1) + ... + d(n)) / w
    exponential   D(n) = alpha D(n-1) + (1 - alpha) d(n)

Both are functions of the windows alone, so whoever keeps the windows keeps all the state there is. Rates, costs and
times are averaged; counts of rows and batches add up; what is a level (backlog, state, totals) is that of the last.
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

_NEGLIGIBLE = 1e-3  # the weight of all windows that are forgotten, at most

_AVERAGED = (
    "input_rows_per_s",
    "processed_rows_per_s",
    "true_rows_per_s",
    "selectivity",
    "seconds_per_row",
    "utilisation",
    "arrival_scv",
    "service_scv",
)
_SELECTIVITY = _AVERAGED.index("selectivity")
_OF_OPERATORS = (*_AVERAGED, "rows_in", "rows_out")
_operator_numbers = attrgetter(*_OF_OPERATORS)
_pipeline_numbers = attrgetter("batches", "rows_in", "busy_s", "batch_max_s", "batch_s")
_NAME = {"operators": attrgetter("operator"), "pipelines": attrgetter("pipeline")}
_ABSENT = {  # what a window knows of a part that it does not have
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
    @property
    def reach(self) -> int:
        """How many of the latest windows it looks at."""
        ...

    def smoothed(self, windows: Sequence[Window]) -> Window | None:
        """None until there are enough windows, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class MovingAverage:
    """The mean of the latest `size` windows; not before there are so many."""

    size: int = 3

    def __post_init__(self) -> None:
        if self.size < 1:
            raise PenstockError(f"an average over {self.size} windows; give 1 or more")

    @property
    def reach(self) -> int:
        return self.size

    def smoothed(self, windows: Sequence[Window]) -> Window | None:
        if len(windows) < self.size:
            return None
        return merged(windows[-self.size :], [1.0] * self.size)


@dataclass(frozen=True, slots=True)
class ExponentialSmoothing:
    """Weights that fade by `alpha` a window; not before there are `least` windows."""

    alpha: float = 0.5
    least: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1 or self.least < 1:
            raise PenstockError(
                f"exponential smoothing with alpha {self.alpha} from {self.least} windows on; alpha is 0 or more and "
                "below 1, and it takes 1 window or more"
            )

    @property
    def reach(self) -> int:
        forgotten = math.ceil(math.log(_NEGLIGIBLE) / math.log(self.alpha)) if self.alpha > 0 else 1
        return max(self.least, forgotten)

    def smoothed(self, windows: Sequence[Window]) -> Window | None:
        if len(windows) < self.least:
            return None
        seen = windows[-self.reach :]
        # D(1) = d(1): the first window has the weight of all those before it.
        weights = [(1.0 - self.alpha) * self.alpha ** (len(seen) - 1 - age) for age in range(len(seen))]
        weights[0] = self.alpha ** (len(seen) - 1)
        return merged(seen, weights)


def merged(windows: Sequence[Window], weights: Sequence[float]) -> Window:
    """One window over the span of all, each weighted by so much."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    latencies = [one.latency for one in windows]
    return Window(
        start_s=windows[0].start_s,
        end_s=last.end_s,
        generation=last.generation,
        external_rows_per_s=_mean([one.external_rows_per_s for one in windows], weights),
        latency=_latency(latencies, weights),
        pipelines=_pipelines(windows, weights),
        operators=_operators(windows, weights),
    )


def _same(windows: Sequence[Window], parts: str) -> list[tuple[Any, ...]]:
    """Each part of the last window as every window has it."""
    found = [getattr(window, parts) for window in windows]
    names = [list(map(_NAME[parts], some)) for some in found]
    if all(some == names[-1] for some in names):  # as it is mostly
        return list(zip(*found, strict=True))
    by_window = [dict(zip(*some, strict=True)) for some in zip(names, found, strict=True)]
    return [tuple(of.get(name, _ABSENT[parts]) for of in by_window) for name in names[-1]]


def _numbers(found: Sequence[float | None], parts: int, windows: int) -> tuple[np.ndarray, np.ndarray]:
    """By part, window and field, with 0 for what is not known; and what is known.

    All of them at once: there may be hundreds of parts, with ten numbers each in every window.
    """
    seen = np.array(found, dtype=float).reshape(parts, windows, -1)  # None becomes not a number
    unknown = np.isnan(seen)
    seen[unknown] = 0.0
    return seen, ~unknown


def _means(values: np.ndarray, weights: np.ndarray) -> list[list[float | None]]:
    """Over the windows."""
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return _or_none((values * weights).sum(axis=1) / total, total)


def _or_none(values: np.ndarray, weights: np.ndarray) -> list[Any]:
    """None where there is no weight."""
    found = values.astype(object)
    found[weights == 0] = None
    return found.tolist()  # type: ignore[no-any-return]


def _operators(windows: Sequence[Window], weights: Sequence[float]) -> tuple[OperatorWindow, ...]:
    same = _same(windows, "operators")
    if not same:
        return ()
    found = list(chain.from_iterable([_operator_numbers(one) for of in same for one in of]))
    seen, known = _numbers(found, len(same), len(windows))
    heights = known[:, :, :-2] * np.array(weights)[:, np.newaxis]
    # Of a few rows a ratio says little; where there were none it stands for all that were before.
    rows, rows_known = seen[:, :, -2:].sum(axis=1), known[:, :, -2:].sum(axis=1)
    some = rows[:, 0] > 0
    heights[some, :, _SELECTIVITY] *= seen[some, :, -2]
    averaged, counted = _means(seen[:, :, :-2], heights), _or_none(rows.astype(int), rows_known)
    return tuple(
        msgspec.structs.replace(of[-1], **dict(zip(_OF_OPERATORS, means + counts, strict=True)))
        for of, means, counts in zip(same, averaged, counted, strict=True)
    )


def _pipelines(windows: Sequence[Window], weights: Sequence[float]) -> tuple[PipelineWindow, ...]:
    same = _same(windows, "pipelines")
    if not same:
        return ()
    found = list(chain.from_iterable([_pipeline_numbers(one) for of in same for one in of]))
    seen, known = _numbers(found, len(same), len(windows))
    # A mean over batches is one of more or fewer of them.
    heights = (np.array(weights) * seen[:, :, 0])[:, :, np.newaxis]
    averaged = _means(seen[:, :, 4:], known[:, :, 4:] * heights)
    sums = _or_none(seen[:, :, :3].sum(axis=1), known[:, :, :3].sum(axis=1))
    longest = np.where(known[:, :, 3], seen[:, :, 3], -np.inf).max(axis=1)
    at_most = _or_none(longest, known[:, :, 3].sum(axis=1))
    phases = _phases(same, heights)
    return tuple(
        msgspec.structs.replace(
            of[-1],
            batches=int(batches),
            rows_in=int(rows_in),
            batch_s=batch_s,
            batch_max_s=batch_max_s,
            phases_s=phases_s,
            busy_s=busy_s,
        )
        for of, (batches, rows_in, busy_s), (batch_s,), batch_max_s, phases_s in zip(
            same, sums, averaged, at_most, phases, strict=True
        )
    )


def _phases(same: Sequence[tuple[PipelineWindow, ...]], heights: np.ndarray) -> list[dict[str, float]]:
    """Those of the last window."""
    names = list(dict.fromkeys(phase for of in same for phase in of[-1].phases_s))
    if not names:
        return [{} for _ in same]
    found = [one.phases_s.get(phase) for of in same for one in of for phase in names]
    seen, known = _numbers(found, len(same), len(same[0]))
    by_name = [dict(zip(names, means, strict=True)) for means in _means(seen, known * heights)]
    return [{phase: means[phase] or 0.0 for phase in of[-1].phases_s} for of, means in zip(same, by_name, strict=True)]


def _latency(seen: Sequence[Latency | None], weights: Sequence[float]) -> Latency | None:
    known = [(one, weight) for one, weight in zip(seen, weights, strict=True) if one is not None]
    if not known:
        return None
    total = sum(weight for _, weight in known)
    times = {
        field: math.fsum(weight * getattr(one, field) for one, weight in known) / total
        for field in ("mean_s", "p50_s", "p95_s", "p99_s")
    }
    return Latency(rows=sum(one.rows for one, _ in known), **times)


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    if None not in values:  # as it is mostly, and a policy waits for it
        return float(sum(map(mul, values, weights)) / total) if (total := sum(weights)) else None
    total = seen = 0.0
    for value, weight in zip(values, weights, strict=True):
        if value is not None:
            total += weight * value
            seen += weight
    return total / seen if seen else None
