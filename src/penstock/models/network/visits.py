"""How often one external row visits each station, itself and through its offspring: mean, spread, siblings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Of one external row. Arrays follow the order of the stations."""

    mean: np.ndarray
    covariance: np.ndarray
    siblings: np.ndarray  # expected ordered pairs of rows that reach the station together, out of one row

    @staticmethod
    def of_means(mean: np.ndarray) -> Visits:
        """Where only the means are known: all visits to a station come at once, and their number is as regular as its
        mean allows, the whole part of it and one more at random for the fraction.

        >>> Visits.of_means(np.array([1.0, 2.5])).siblings.tolist()
        [0.0, 4.0]
        """
        return Visits(mean=mean, covariance=np.diag(_fraction_variance(mean)), siblings=sibling_pairs(mean))


def sibling_pairs(gain: np.ndarray) -> np.ndarray:
    """E[N (N - 1)] of a whole number N that is as near to `gain` as can be: m (m - 1) + 2 m f with gain = m + f."""
    whole = np.floor(gain)
    return np.asarray(whole * (whole - 1.0) + 2.0 * whole * (gain - whole))


def offspring_covariance(gains: np.ndarray) -> np.ndarray:
    """Of the numbers of rows that one row sends to each station.

    Gains that sum to 1 or less are read as routing, each row going to one station or away (multinomial); larger ones as
    so many rows each, with one more at random for the fraction.
    """
    if gains.sum() <= 1.0 + 1e-12:
        return np.asarray(np.diag(gains) - np.outer(gains, gains))
    return np.diag(_fraction_variance(gains))


def _fraction_variance(gain: np.ndarray) -> np.ndarray:
    fraction = gain - np.floor(gain)
    return np.asarray(fraction * (1.0 - fraction))
