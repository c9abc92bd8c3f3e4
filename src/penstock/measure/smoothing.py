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
from operator import attrgetter, mul
from typing import Any, Protocol

import msgspec
import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.measure.window import OperatorWindow, PipelineWindow, Sojourn, Window

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
_KNOWN = attrgetter(*_AVERAGED, "rows_in", "rows_out")
_NAME = {"operators": attrgetter("operator"), "pipelines": attrgetter("pipeline")}


class Smoothing(Protocol):
    @property
    def reach(self) -> int:
        """How many of the latest windows it looks at."""
        ...

    def smoothed(self, windows: Sequence[Window]) -> Window | None:
        """None until there are enough windows, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class Windowed:
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
class Exponential:
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
    sojourns = [one.sojourn for one in windows]
    return Window(
        start_s=windows[0].start_s,
        end_s=last.end_s,
        generation=last.generation,
        external_rows_per_s=_mean([one.external_rows_per_s for one in windows], weights),
        sojourn=_sojourn(sojourns, weights),
        pipelines=tuple(_pipeline(seen[-1], seen, weights) for seen in _same(windows, "pipelines")),
        operators=_operators(windows, weights),
    )


def _same(windows: Sequence[Window], parts: str) -> list[tuple[Any, ...]]:
    """Each part of the last window as every window has it; None where a window has it not."""
    found = [getattr(window, parts) for window in windows]
    names = [list(map(_NAME[parts], some)) for some in found]
    if all(some == names[-1] for some in names):  # as it is mostly
        return list(zip(*found, strict=True))
    by_window = [dict(zip(*some, strict=True)) for some in zip(names, found, strict=True)]
    return [tuple(of.get(name) for of in by_window) for name in names[-1]]


def _operators(windows: Sequence[Window], weights: Sequence[float]) -> tuple[OperatorWindow, ...]:
    """All of them at once: there may be hundreds, with ten numbers each in every window. Not a number: not known."""
    same = _same(windows, "operators")
    if not same:
        return ()
    nothing = (None,) * (len(_AVERAGED) + 2)
    seen = np.array([[nothing if one is None else _KNOWN(one) for one in some] for some in same], dtype=float)
    known = ~np.isnan(seen)
    seen[~known] = 0.0
    heights = known[:, :, :-2] * np.array(weights)[:, np.newaxis]
    # Of a few rows a ratio says little; where there were none it stands for all that were before.
    rows, rows_known = seen[:, :, -2:].sum(axis=1), known[:, :, -2:].any(axis=1)
    some = rows[:, 0] > 0
    heights[some, :, _SELECTIVITY] *= seen[some, :, -2]
    with np.errstate(invalid="ignore"):
        means = (seen[:, :, :-2] * heights).sum(axis=1) / heights.sum(axis=1)
    averaged, counted = means.astype(object), rows.astype(int).astype(object)
    averaged[np.isnan(means)], counted[~rows_known] = None, None
    return tuple(
        msgspec.structs.replace(of[-1], rows_in=rows_in, rows_out=rows_out, **dict(zip(_AVERAGED, row, strict=True)))
        for of, row, (rows_in, rows_out) in zip(same, averaged.tolist(), counted.tolist(), strict=True)
    )


def _pipeline(last: PipelineWindow, seen: Sequence[PipelineWindow | None], weights: Sequence[float]) -> PipelineWindow:
    known = [one for one in seen if one is not None]
    # A mean over batches is one of more or fewer of them.
    weights = [weight * (0 if one is None else one.batches) for one, weight in zip(seen, weights, strict=True)]
    phases = {
        phase: _mean([None if one is None else one.phases_s.get(phase) for one in seen], weights) or 0.0
        for phase in last.phases_s
    }
    return msgspec.structs.replace(
        last,
        batches=sum(one.batches for one in known),
        rows_in=sum(one.rows_in for one in known),
        batch_s=_mean([None if one is None else one.batch_s for one in seen], weights),
        batch_max_s=max((one.batch_max_s for one in known if one.batch_max_s is not None), default=None),
        phases_s=phases,
        busy_s=_sum([one.busy_s for one in known]),
    )


def _sojourn(seen: Sequence[Sojourn | None], weights: Sequence[float]) -> Sojourn | None:
    known = [(one, weight) for one, weight in zip(seen, weights, strict=True) if one is not None]
    if not known:
        return None
    total = sum(weight for _, weight in known)
    times = {
        field: math.fsum(weight * getattr(one, field) for one, weight in known) / total
        for field in ("mean_s", "p50_s", "p95_s", "p99_s")
    }
    return Sojourn(rows=sum(one.rows for one, _ in known), **times)


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    if None not in values:  # as it is mostly, and a policy waits for it
        return float(sum(map(mul, values, weights)) / total) if (total := sum(weights)) else None
    total = seen = 0.0
    for value, weight in zip(values, weights, strict=True):
        if value is not None:
            total += weight * value
            seen += weight
    return total / seen if seen else None


def _sum(values: Sequence[Any]) -> Any:
    if None not in values:
        return sum(values) if values else None
    known = [value for value in values if value is not None]
    return sum(known) if known else None
