"""The share of rows per replica for any number of keys."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.engines.simulated.stations import key_shares


@pytest.mark.parametrize("zipf", [0.0, 0.7, 1.0, 1.5])
def test_the_rest_of_many_keys_weighs_as_much_as_their_sum(zipf: float) -> None:
    """Compare with all keys hashed one by one."""
    keys = 3_000_000
    first = 1.0 / np.sum(np.arange(1, keys + 1, dtype=float) ** -zipf)
    shares = key_shares(keys, zipf, replicas=3)
    assert shares.sum() == pytest.approx(1.0)
    exact = np.zeros(3)
    weights = np.arange(1, keys + 1, dtype=float) ** -zipf * first
    number = np.arange(1, keys + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    number ^= number >> np.uint64(29)
    number *= np.uint64(0xBF58476D1CE4E5B9)
    np.add.at(exact, ((number >> np.uint64(32)) % np.uint64(3)).astype(int), weights)
    assert shares == pytest.approx(exact, abs=2e-3)


def test_a_million_million_keys_without_skew_are_spread_evenly() -> None:
    assert key_shares(10**12, 0.0, replicas=4).tolist() == pytest.approx([0.25] * 4, abs=1e-3)


def test_a_million_million_keys_with_strong_skew_are_dominated_by_the_first() -> None:
    """With exponent 2 the weights add up to pi^2 / 6, so the first key has 6 / pi^2 of all rows."""
    assert max(key_shares(10**12, 2.0, replicas=64)) >= 6 / np.pi**2 - 1e-9
