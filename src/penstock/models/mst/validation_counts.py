"""Choose VM counts for validation at which the fitted curves disagree (Imai et al. 2017, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from penstock.models.mst.fitted_curve import FittedCurve
from penstock.models.mst.samples import Floats, SamplesError


def discrepancy(predictions: Floats) -> Floats:
    """Return the mean over all pairs of models of |a - b| / min(a, b) per VM count (equation 13).

    `predictions` has the shape (models, counts).

    >>> discrepancy(np.array([[10.0, 10.0], [10.0, 15.0]])).tolist()
    [0.0, 0.5]
    """
    if len(predictions) < 2:
        raise SamplesError(f"{len(predictions)} models are given. At least two are needed to compare them.")
    pairs = [np.abs(a - b) / np.minimum(a, b) for a, b in combinations(predictions, 2)]
    mean: Floats = np.mean(pairs, axis=0)
    return mean


def crossings(predictions: Floats) -> list[int]:
    """Return the VM counts (column + 1) directly after two models cross."""
    crossed: set[int] = set()
    for a, b in combinations(predictions, 2):
        # Curves of nested models may be equal up to rounding. Neither that nor a contact at one count is a crossing.
        apart = np.flatnonzero(np.abs(a - b) > 1e-9 * np.minimum(a, b))
        sign = np.sign(a - b)[apart]
        crossed.update(int(apart[index + 1]) + 1 for index in np.flatnonzero(sign[:-1] != sign[1:]))
    return sorted(crossed)


def first_divergences(
    models: Sequence[FittedCurve], *, trained: Sequence[int], max_vms: int, tau: float = 0.10
) -> list[int]:
    """Return the first VM count of each interval at which the models differ by more than `tau` (Algorithm 1).

    Intervals begin after the largest trained VM count and at every later crossing. The printed algorithm omits the
    first interval if the models cross anywhere, which contradicts the validation counts that the paper reports.
    """
    predictions = np.stack([model.predict(range(1, max_vms + 1)) for model in models])
    gap = discrepancy(predictions)
    after = max(trained) + 1
    starts = [after, *(count for count in crossings(predictions) if count > after)]
    counts: list[int] = []
    for start, end in zip(starts, [*starts[1:], max_vms + 1], strict=True):
        counts += [count for count in range(start, min(end, max_vms + 1)) if gap[count - 1] > tau][:1]
    return counts


def widest_divergence(
    models: Sequence[FittedCurve], *, trained: Sequence[int], measurable: Sequence[int]
) -> int | None:
    """Return the measurable VM count beyond the trained ones at which the models differ most; None if there is none.

    A sample there is more informative than one at which the models begin to differ.
    """
    beyond = sorted(count for count in set(measurable) if count > max(trained))
    if not beyond:
        return None
    gap = discrepancy(np.stack([model.predict(beyond) for model in models]))
    return beyond[int(np.argmax(gap))]
