"""Amdahl's law: a serial fraction that no VM helps (Amdahl, AFIPS 1967)."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.candidate import LinearCandidate, Link
from penstock.models.mst.samples import Floats


def _terms(m: Floats) -> Floats:
    return np.stack([np.ones_like(m), 1 / m], axis=-1)


# MST(m) = r m / (1 + s (m - 1)) = 1 / (w0 + w1/m) with w0 = s/r, w1 = (1 - s)/r, w >= 0: r > 0 and 0 <= s <= 1
AMDAHL = LinearCandidate(name="amdahl", link=Link.RECIPROCAL, features=_terms, parameters=2)
