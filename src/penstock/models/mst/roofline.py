"""A roofline: linear scaling until one part that does not scale (a single counter, the busiest key) is full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.models.mst.candidate import Link, Moments
from penstock.models.mst.nnls import nnls
from penstock.models.mst.samples import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineCandidate:
    """MST(m) = min(w0 + w1 m, w2), w >= 0; w2 is infinite where the samples show no roof.

    Fitted by trying every cut of the measured VM counts into those under the slope and those under the roof: the slope
    by least squares on the first, the roof as the mean of the others; the cut with the least squared error is kept.
    A roof that rests on the last count alone is a guess, and a low one: let a validation count beyond it decide.
    """

    name: str = "roofline"
    link: Link = Link.IDENTITY
    parameters: int = 3

    def fit(self, vms: Floats, sums: Moments) -> Floats:
        order = np.argsort(vms)
        x = np.stack([np.ones_like(vms), vms], axis=-1)
        batch = sums.ones.shape[:-1]
        best = np.zeros((*batch, 3))
        best_objective = np.full(batch, np.inf)
        for under_slope in range(len(vms), 0, -1):
            slope = np.zeros(len(vms))
            slope[order[:under_slope]] = 1.0
            part, roof_part = sums.at(slope), sums.at(1.0 - slope)
            line = nnls((x.T * part.ones[..., None, :]) @ x, part.targets @ x)
            below = roof_part.ones.sum(-1)
            with np.errstate(divide="ignore", invalid="ignore"):
                roof = np.where(below > 0, roof_part.targets.sum(-1) / below, np.inf)
            weights = np.concatenate([line, roof[..., None]], axis=-1)
            predicted = self.predict(weights, vms)
            objective = (sums.ones * predicted**2 - 2 * sums.targets * predicted + sums.squares).sum(-1)
            # The first cut has no roof; one that only ties with it is none.
            better = objective < best_objective - 1e-9 * sums.squares.sum(-1)
            best = np.where(better[..., None], weights, best)
            best_objective = np.where(better, objective, best_objective)
        return best

    def predict(self, weights: Floats, vms: Floats) -> Floats:
        line = weights[..., 0:1] + weights[..., 1:2] * vms
        return np.minimum(line, weights[..., 2:3])


ROOFLINE = RooflineCandidate()
