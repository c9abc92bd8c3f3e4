"""Non-negative least squares for a batch of small problems, exactly, by trying every support."""

from __future__ import annotations

from itertools import combinations

import numpy as np

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
    unit_gram = gram / (scale[..., :, None] * scale[..., None, :])
    unit_moment = moment / scale
    best = np.zeros(np.broadcast_shapes(unit_moment.shape, unit_gram.shape[:-1]))
    best_objective = np.zeros(best.shape[:-1])
    for size in range(1, width + 1):
        for support in combinations(range(width), size):
            index = list(support)
            part = unit_gram[..., index, :][..., index]
            # A support whose columns are (nearly) dependent here never wins: a smaller one says the same.
            singular = np.linalg.det(part) < 1e-13
            safe = np.where(singular[..., None, None], np.eye(size), part)
            h = unit_moment[..., index]
            w = np.linalg.solve(safe, h[..., None])[..., 0]
            objective = -np.einsum("...i,...i->...", w, h)  # w'Gw - 2w'h where Gw = h
            better = (w >= 0).all(-1) & ~singular & (objective < best_objective * (1 + 1e-12))
            full = np.zeros(best.shape)
            full[..., index] = w
            best = np.where(better[..., None], full, best)
            best_objective = np.where(better, objective, best_objective)
    result: Floats = best / scale
    return result
