"""Where to measure next: the VM counts at which the candidates contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from penstock.models.mst.fitted_curve import FittedCurve
from penstock.models.mst.samples import Floats, SamplesError


def discrepancy(predictions: Floats) -> Floats:
    """Mean over all pairs of models of |a - b| / min(a, b), by VM count (equation 13), from (models, counts).

    >>> discrepancy(np.array([[10.0, 10.0], [10.0, 15.0]])).tolist()
    [0.0, 0.5]
    """
    if len(predictions) < 2:
        raise SamplesError(f"{len(predictions)} model was given; only two or more can disagree")
    pairs = [np.abs(a - b) / np.minimum(a, b) for a, b in combinations(predictions, 2)]
    mean: Floats = np.mean(pairs, axis=0)
    return mean


def crossings(predictions: Floats) -> list[int]:
    """VM counts (column + 1) just past a point where two models change places."""
    found: set[int] = set()
    for a, b in combinations(predictions, 2):
        # Nested models may share a curve up to rounding: that is no crossing, nor is touching at one count.
        apart = np.flatnonzero(np.abs(a - b) > 1e-9 * np.minimum(a, b))
        sign = np.sign(a - b)[apart]
        found.update(int(apart[index + 1]) + 1 for index in np.flatnonzero(sign[:-1] != sign[1:]))
    return sorted(found)


def first_divergences(
    models: Sequence[FittedCurve], *, trained: Sequence[int], max_vms: int, tau: float = 0.10
) -> list[int]:
    """Algorithm 1: the first VM count of each interval where the models differ by more than `tau`.

    Intervals begin past the largest VM count trained on and at every crossing beyond it. (As printed, the first
    interval is left out as soon as the models cross anywhere, which contradicts the validation counts it reports.)
    """
    predictions = np.stack([model.predict(range(1, max_vms + 1)) for model in models])
    gap = discrepancy(predictions)
    after = max(trained) + 1
    starts = [after, *(count for count in crossings(predictions) if count > after)]
    chosen = []
    for start, end in zip(starts, [*starts[1:], max_vms + 1], strict=True):
        chosen += [count for count in range(start, min(end, max_vms + 1)) if gap[count - 1] > tau][:1]
    return chosen


def widest_divergence(
    models: Sequence[FittedCurve], *, trained: Sequence[int], measurable: Sequence[int]
) -> int | None:
    """The VM count, of those that can be measured, where the models differ most: a sample there tells more than one
    where they begin to part. Only counts beyond the largest one trained on extrapolate; None where there is none."""
    left = sorted(count for count in set(measurable) if count > max(trained))
    if not left:
        return None
    gap = discrepancy(np.stack([model.predict(left) for model in models]))
    return left[int(np.argmax(gap))]
