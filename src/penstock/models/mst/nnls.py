"""Non-negative least squares for a batch of small problems, exactly, by trying every support."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from penstock.models.mst.samples import Floats


def nnls(gram: Floats, moment: Floats) -> Floats:
    """The w >= 0 that minimises w'Gw - 2 w'h, for each problem of a batch: `gram` (..., p, p), `moment` (..., p).

    With design X and target t, G = X'X and h = X't. The optimum solves the plain normal equations on its own support,
    so among the 2^p supports whose solution is non-negative the one with the smallest objective is it. With p <= 4 this
    is at most 15 small solves for the whole batch, where Lawson and Hanson's loop would run once a problem.

    >>> x = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    >>> nnls(x.T @ x, x.T @ np.array([1.0, 3.0, 5.0])).round(6).tolist()   # the line -1 + 2m: held at 0, slope 2 - 3/7
    [0.0, 1.571429]
    """
    width = moment.shape[-1]
    # Columns of unit length: 1/m and m^2 differ by orders of magnitude, and the normal equations square that.
    scale = np.sqrt(np.einsum("...ii->...i", gram))
    scale = np.where(scale > 0, scale, 1.0)
    # Problem last: each entry of the small matrices is one contiguous array over the batch.
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
    """Gw = h on a support by G = LDL', the batch last; LAPACK's call a matrix would cost more than its arithmetic.

    With unit columns a pivot is the squared sine of a column's angle to those before it: near 0, the support says
    nothing that a smaller one does not, and it is called singular.
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
