"""The curve families that MST models are chosen from: MST as a function of the number of VMs m.

    model1    MST(m) = 1 / (w0 + w1/m + w2 m + w3 m^2)                Imai et al. (2017), equation 4
    model2    MST(m) = w0 + w1 m - w2 m^2                             Imai et al. (2017), equation 5
    amdahl    MST(m) = r m / (1 + s (m - 1))                          Amdahl, AFIPS 1967
    usl       MST(m) = r m / (1 + s (m - 1) + k m (m - 1))            Gunther, "Guerrilla Capacity Planning", 2007
    power     MST(m) = c m^p                                          no plateau
    roofline  MST(m) = min(w0 + w1 m, w2)                             linear up to a part that does not scale
    linear    MST(m) = w0 + w1 m                                      Ishii and Suzumura, ElasticStream, CLOUD 2011
    mean      MST(m) = w0                                             the mean of all samples: no scaling

The last two are competitors. They are candidates only if they are requested.

All weights w are non-negative. Every family is fitted by least squares from `FitSums`, for a whole batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.models.mst.least_squares import FitSums, Link
from penstock.models.mst.nnls import nnls
from penstock.models.mst.samples import Floats, SamplesError

_MIN_RECIPROCAL = 1e-100  # smallest 1/MST: a predicted time of 0 has no finite throughput


class CurveFamily(Protocol):
    """A family of curves MST(m).

    `vms` are effective VM counts of shape (counts,). Weights and predictions have the batch in the leading axes.
    """

    @property
    def name(self) -> str: ...

    @property
    def link(self) -> Link: ...

    @property
    def parameters(self) -> int:
        """Return the number of free parameters."""
        ...

    def fit(self, vms: Floats, sums: FitSums) -> Floats:
        """Return the weights that minimise the squared error, of shape (..., weights)."""
        ...

    def predict(self, weights: Floats, vms: Floats) -> Floats:
        """Return the throughput at each VM count, of shape (..., counts)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFamily:
    """A family that is linear in its weights: link(MST(m)) = w . features(m) with every w >= 0.

    >>> MODEL2.predict(np.array([1.0, 10.0, 0.5]), np.array([1.0, 2.0, 4.0])).tolist()
    [10.5, 19.0, 33.0]
    """

    name: str
    link: Link
    features: Callable[[Floats], Floats]  # (counts,) -> (counts, terms)
    parameters: int

    def fit(self, vms: Floats, sums: FitSums) -> Floats:
        x = self.features(vms)
        return nnls((x.T * sums.weights[..., None, :]) @ x, sums.targets @ x)

    def predict(self, weights: Floats, vms: Floats) -> Floats:
        linear: Floats = weights @ self.features(vms).T
        if self.link is Link.RECIPROCAL:
            return 1 / np.maximum(linear, _MIN_RECIPROCAL)
        return np.exp(linear) if self.link is Link.LOG else linear


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineFamily:
    """MST(m) = min(w0 + w1 m, w2): linear scaling until one part that does not scale is saturated.

    `w2` is infinite if the samples show no roof. The fit tries every split of the measured VM counts into a lower part
    (the slope, by least squares) and an upper part (the roof, their mean), and keeps the split with the smallest
    squared error. A roof supported by the largest count alone is usually too low; a validation count beyond it helps.

    >>> ROOFLINE.predict(np.array([0.0, 3.0, 10.0]), np.array([1.0, 2.0, 8.0])).tolist()
    [3.0, 6.0, 10.0]
    """

    name: str = "roofline"
    link: Link = Link.IDENTITY
    parameters: int = 3

    def fit(self, vms: Floats, sums: FitSums) -> Floats:
        order = np.argsort(vms)
        x = np.stack([np.ones_like(vms), vms], axis=-1)
        batch = sums.weights.shape[:-1]
        best = np.zeros((*batch, 3))
        best_objective = np.full(batch, np.inf)
        for slope_counts in range(len(vms), 0, -1):
            on_slope = np.zeros(len(vms))
            on_slope[order[:slope_counts]] = 1.0
            slope_sums, roof_sums = sums.restricted_to(on_slope), sums.restricted_to(1.0 - on_slope)
            line = nnls((x.T * slope_sums.weights[..., None, :]) @ x, slope_sums.targets @ x)
            roof_weight = roof_sums.weights.sum(-1)
            with np.errstate(divide="ignore", invalid="ignore"):
                roof = np.where(roof_weight > 0, roof_sums.targets.sum(-1) / roof_weight, np.inf)
            weights = np.concatenate([line, roof[..., None]], axis=-1)
            predicted = self.predict(weights, vms)
            objective = (sums.weights * predicted**2 - 2 * sums.targets * predicted + sums.squares).sum(-1)
            # The first split has no roof. A later split must be strictly better, not equal up to rounding.
            better = objective < best_objective - 1e-9 * sums.squares.sum(-1)
            best = np.where(better[..., None], weights, best)
            best_objective = np.where(better, objective, best_objective)
        return best

    def predict(self, weights: Floats, vms: Floats) -> Floats:
        line = weights[..., 0:1] + weights[..., 1:2] * vms
        return np.minimum(line, weights[..., 2:3])


def _model1_terms(m: Floats) -> Floats:
    return np.stack([np.ones_like(m), 1 / m, m, m**2], axis=-1)


def _model2_terms(m: Floats) -> Floats:
    return np.stack([np.ones_like(m), m, -(m**2)], axis=-1)


def _linear_terms(m: Floats) -> Floats:
    return np.stack([np.ones_like(m), m], axis=-1)


def _mean_terms(m: Floats) -> Floats:
    return np.ones((len(m), 1))


def _amdahl_terms(m: Floats) -> Floats:
    return np.stack([np.ones_like(m), 1 / m], axis=-1)


def _usl_terms(m: Floats) -> Floats:
    return np.stack([1 / m, np.ones_like(m), m - 1], axis=-1)


def _power_terms(m: Floats) -> Floats:
    # log c may have either sign, so it is the difference of two non-negative weights.
    ones = np.ones_like(m)
    return np.stack([ones, -ones, np.log(m)], axis=-1)


# Serial, parallel, distribution and communication time of one unit of data.
MODEL1 = LinearFamily(name="model1", link=Link.RECIPROCAL, features=_model1_terms, parameters=4)

# Base throughput, gain per VM, loss to communication between VMs.
MODEL2 = LinearFamily(name="model2", link=Link.IDENTITY, features=_model2_terms, parameters=3)

# 1 / (w0 + w1/m) with w0 = s/r and w1 = (1 - s)/r: w >= 0 is equivalent to r > 0 and 0 <= s <= 1.
AMDAHL = LinearFamily(name="amdahl", link=Link.RECIPROCAL, features=_amdahl_terms, parameters=2)

# 1 / (w0/m + w1 + w2 (m - 1)) with w0 = (1 - s)/r, w1 = s/r, w2 = k/r.
# w >= 0 keeps the contention s in [0, 1]. The peak is at m = sqrt((1 - s)/k) = sqrt(w0/w2).
USL = LinearFamily(name="usl", link=Link.RECIPROCAL, features=_usl_terms, parameters=3)

# log MST(m) = (w0 - w1) + w2 log m
POWER = LinearFamily(name="power", link=Link.LOG, features=_power_terms, parameters=2)

ROOFLINE = RooflineFamily()

# Base throughput and gain per VM.
LINEAR = LinearFamily(name="linear", link=Link.IDENTITY, features=_linear_terms, parameters=2)

MEAN = LinearFamily(name="mean", link=Link.IDENTITY, features=_mean_terms, parameters=1)

PAPER_FAMILIES: tuple[CurveFamily, ...] = (MODEL1, MODEL2)
COMPETITORS: tuple[CurveFamily, ...] = (LINEAR, MEAN)
CURVE_FAMILIES: tuple[CurveFamily, ...] = (MODEL1, MODEL2, AMDAHL, USL, POWER, ROOFLINE)  # the default candidates


def families_named(names: Sequence[str]) -> tuple[CurveFamily, ...]:
    """Return the families with these names, without duplicates; the default candidates if no name is given.

    Raise a SamplesError for an unknown name.

    >>> [family.name for family in families_named(["model1", "linear"])]
    ['model1', 'linear']
    """
    by_name: dict[str, CurveFamily] = {family.name: family for family in (*CURVE_FAMILIES, *COMPETITORS)}
    for name in names:
        if name not in by_name:
            raise SamplesError(f"There is no model '{name}'. The models are {', '.join(by_name)}.")
    return tuple(by_name[name] for name in dict.fromkeys(names)) or CURVE_FAMILIES
