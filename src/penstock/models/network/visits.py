"""The visits of one external row, and of the rows derived from it, to each station."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Correlation of the waits of two visits of one row to the same station at different times. Simulated loops of two M/M/k
# stations with 3 and 5 servers at 70 to 80 % utilisation and 30 to 80 % returning rows give 0.58 to 0.62.
REPEATED_WAITS = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Mean and covariance of the visits of one external row. Arrays are in the order of the stations."""

    mean: np.ndarray
    covariance: np.ndarray
    siblings: np.ndarray  # expected ordered pairs of rows that one row sends to the station together

    @property
    def equal_waits(self) -> np.ndarray:
        """Return the expected ordered pairs of visits to each station, weighted by the correlation of their waits.

        Siblings wait together. Other visits of one external row, such as those of a loop, find nearly the same queue.
        """
        pairs = np.diag(self.covariance) + self.mean * (self.mean - 1.0)
        return np.asarray(self.siblings + REPEATED_WAITS * np.maximum(0.0, pairs - self.siblings))

    @staticmethod
    def of_means(mean: np.ndarray) -> Visits:
        """Return the visits if only their means are known.

        All visits to a station arrive together. Their number is the whole part of the mean, plus one with the
        probability of the fractional part.

        >>> Visits.of_means(np.array([1.0, 2.5])).siblings.tolist()
        [0.0, 4.0]
        """
        return Visits(mean=mean, covariance=np.diag(_fraction_variance(mean)), siblings=sibling_pairs(mean))


def sibling_pairs(gain: np.ndarray) -> np.ndarray:
    """Return E[N (N - 1)] = m (m - 1) + 2 m f for gain = m + f, where N is m, or m + 1 with probability f."""
    whole = np.floor(gain)
    return np.asarray(whole * (whole - 1.0) + 2.0 * whole * (gain - whole))


def offspring_covariance(gains: np.ndarray) -> np.ndarray:
    """Return the covariance of the numbers of rows that one row sends to each station.

    Gains with a sum of 1 or less are routing probabilities: each row goes to one station or leaves (multinomial).
    Larger gains are numbers of rows: the whole part, plus one with the probability of the fractional part.
    """
    if gains.sum() <= 1.0 + 1e-12:
        return np.asarray(np.diag(gains) - np.outer(gains, gains))
    return np.diag(_fraction_variance(gains))


def _fraction_variance(gain: np.ndarray) -> np.ndarray:
    fraction = gain - np.floor(gain)
    return np.asarray(fraction * (1.0 - fraction))
