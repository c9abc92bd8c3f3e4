"""Exact non-negative least squares for a batch of small problems.

`scipy.optimize.nnls` solves one problem per call. Resampling solves many thousands, so this module solves all of them
at once by trying every support (set of positive weights).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from penstock.models.mst.samples import Floats


def nnls(gram: Floats, moment: Floats) -> Floats:
    """Return the w >= 0 that minimises w'Gw - 2 w'h for each problem: `gram` (..., p, p), `moment` (..., p).

    For a design X and target t, G = X'X and h = X't. The optimum solves the normal equations on its own support. It is
    therefore the non-negative solution with the smallest objective among all 2^p supports. If p <= 4 these are at
    most 15 small solves for the whole batch.

    >>> x = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    >>> nnls(x.T @ x, x.T @ np.array([1.0, 3.0, 5.0])).round(6).tolist()   # -1 + 2m: intercept 0, slope 2 - 3/7
    [0.0, 1.571429]
    """
    width = moment.shape[-1]
    # Scale columns to unit length: 1/m and m^2 differ by orders of magnitude, and the normal equations square that.
    scale = np.sqrt(np.einsum("...ii->...i", gram))
    scale = np.where(scale > 0, scale, 1.0)
    # The batch is the last axis: each entry of the small matrices is one contiguous array.
    g = np.moveaxis(gram / (scale[..., :, None] * scale[..., None, :]), (-2, -1), (0, 1)).copy()
    h = np.moveaxis(np.broadcast_to(moment / scale, scale.shape), -1, 0).copy()
    best = np.zeros(h.shape)
    best_objective = np.zeros(h.shape[1:])
    for size in range(1, width + 1):
        for support in combinations(range(width), size):
            w, singular = _solve(g, h, support)
            objective = -sum(w[i] * h[index] for i, index in enumerate(support))  # w'Gw - 2w'h where Gw = h
            feasible = np.logical_and.reduce([part >= 0 for part in w])
            better = feasible & ~singular & (objective < best_objective * (1 + 1e-12))
            for index in range(width):
                new = w[support.index(index)] if index in support else 0.0
                best[index] = np.where(better, new, best[index])
            best_objective = np.where(better, objective, best_objective)
    result: Floats = np.moveaxis(best, 0, -1) / scale
    return result


def _solve(g: Floats, h: Floats, support: tuple[int, ...]) -> tuple[list[Floats], NDArray[np.bool_]]:
    """Solve Gw = h on a support by G = LDL'. Return w and a mask of singular problems; the batch is the last axis.

    One LAPACK call per small matrix would cost more than its arithmetic. For unit columns a pivot is the squared sine
    of the angle between a column and the columns before it. A pivot near 0 means that the support is singular.
    """
    size = len(support)
    lower: list[list[Floats]] = [[] for _ in range(size)]
    pivots: list[Floats] = []
    singular = np.zeros(h.shape[1:], dtype=bool)
    for j in range(size):
        pivot = g[support[j], support[j]] - sum(lower[j][k] ** 2 * pivots[k] for k in range(j))
        singular = singular | (pivot < 1e-13)
        pivot = np.where(pivot < 1e-13, 1.0, pivot)
        pivots.append(pivot)
        for i in range(j + 1, size):
            rest = sum(lower[i][k] * lower[j][k] * pivots[k] for k in range(j))
            lower[i].append((g[support[i], support[j]] - rest) / pivot)
    forward: list[Floats] = []
    for i in range(size):
        forward.append(h[support[i]] - sum(lower[i][k] * forward[k] for k in range(i)))
    w = [forward[i] / pivots[i] for i in range(size)]
    for i in reversed(range(size)):
        w[i] = w[i] - sum(lower[k][i] * w[k] for k in range(i + 1, size))
    return w, singular
