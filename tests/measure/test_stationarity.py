from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.measure.stationarity import ConvergenceError, has_converged, samples_until_converged


def test_four_of_five_within_five_percent() -> None:
    # changes: +100%, +5%, 0, -4.8%, +30%, -23%: never four of five; then +1%, 0, +1%, 0 with one large among the last 5
    assert samples_until_converged([50, 100, 105, 105, 100, 130, 100]) is None
    assert samples_until_converged([50, 100, 105, 105, 100, 130, 100, 101, 101, 102, 102]) == 11


def test_a_rate_that_grows_by_more_than_the_tolerance_never_converges() -> None:
    assert samples_until_converged([1.06**i for i in range(50)]) is None
    assert samples_until_converged([1.04**i for i in range(50)]) == 5  # four changes of 4%


def test_missing_samples_are_not_close_to_others() -> None:
    assert samples_until_converged([5.0, math.nan, 5.0, math.nan, 5.0, math.nan, 5.0, math.nan]) is None


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), max_size=30), st.integers(1, 6), st.integers(0, 5))
def test_convergence_is_a_count_over_the_last_n(samples: list[float], n: int, lenience: int) -> None:
    k = max(1, n - lenience)
    pairs = list(pairwise(samples))[-n:]
    near = sum(abs(b - a) <= 0.05 * a for a, b in pairs)
    assert has_converged(samples, n=n, k=k) == (near >= k)


@pytest.mark.parametrize(("n", "k", "tolerance"), [(5, 6, 0.05), (5, 0, 0.05), (5, 4, -0.1), (5, 4, math.nan)])
def test_an_impossible_rule_is_refused(n: int, k: int, tolerance: float) -> None:
    with pytest.raises(ConvergenceError):
        samples_until_converged([1.0, 1.0], n=n, k=k, tolerance=tolerance)
