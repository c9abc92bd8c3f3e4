"""The universal scalability law: contention and crosstalk (Gunther, "Guerrilla Capacity Planning", 2007)."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.candidate import LinearCandidate, Link
from penstock.models.mst.samples import Floats


def _terms(m: Floats) -> Floats:
    return np.stack([1 / m, np.ones_like(m), m - 1], axis=-1)


# MST(m) = r m / (1 + s (m - 1) + k m (m - 1)) = 1 / (w0/m + w1 + w2 (m - 1)) with w0 = (1 - s)/r, w1 = s/r, w2 = k/r.
# w >= 0 keeps the contention s in [0, 1]; the peak is at m = sqrt((1 - s)/k) = sqrt(w0/w2).
USL = LinearCandidate(name="usl", link=Link.RECIPROCAL, features=_terms, parameters=3)
