"""Model 2 of the paper: base throughput, gain from VMs, loss to communication between them."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.candidate import LinearCandidate, Link
from penstock.models.mst.samples import Floats


def _terms(m: Floats) -> Floats:
    return np.stack([np.ones_like(m), m, -(m**2)], axis=-1)


# MST(m) = w0 + w1 m - w2 m^2, w >= 0   (equation 5)
MODEL2 = LinearCandidate(name="model2", link=Link.IDENTITY, features=_terms, parameters=3)
