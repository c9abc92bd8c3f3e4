"""A power law: a straight line on log-log paper, no plateau in sight."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.candidate import LinearCandidate, Link
from penstock.models.mst.samples import Floats


def _terms(m: Floats) -> Floats:
    one = np.ones_like(m)
    # log of the scale may have either sign, so it is the difference of two non-negative weights.
    return np.stack([one, -one, np.log(m)], axis=-1)


# log MST(m) = (w0 - w1) + w2 log m, w >= 0
POWER = LinearCandidate(name="power", link=Link.LOG, features=_terms, parameters=2)
