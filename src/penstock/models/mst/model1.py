"""Model 1 of the paper: the inverse of a time that has serial, parallel, distribution and communication parts."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.candidate import LinearCandidate, Link
from penstock.models.mst.samples import Floats


def _terms(m: Floats) -> Floats:
    return np.stack([np.ones_like(m), 1 / m, m, m**2], axis=-1)


# MST(m) = 1 / (w0 + w1/m + w2 m + w3 m^2), w >= 0   (equation 4)
MODEL1 = LinearCandidate(name="model1", link=Link.RECIPROCAL, features=_terms, parameters=4)
