"""The rule for batch sizes is one implementation: the Spark engine calls it, and the simulator compiles it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines import batch_size
from penstock.engines.simulated.batches import batch_limit
from penstock.engines.spark.reading import batch_sizer

SECONDS = st.floats(1e-3, 1e3)
ROWS = st.floats(1.0, 1e7)


def test_both_engines_use_the_same_functions() -> None:
    assert batch_sizer.next_limit is batch_size.next_limit and batch_sizer.next_stretch is batch_size.next_stretch
    assert batch_limit.next_limit.py_func is batch_size.next_limit
    assert batch_limit.next_stretch.py_func is batch_size.next_stretch


@given(ROWS, st.integers(1, 10**7), SECONDS, st.floats(0.0, 1e3), SECONDS, st.floats(1.0, 4.0))
def test_the_compiled_rule_gives_the_same_numbers(
    limit: float, rows: int, batch_s: float, overhead_s: float, target_s: float, stretch: float
) -> None:
    given = (limit, rows, batch_s, min(overhead_s, batch_s), target_s, stretch)
    assert batch_limit.next_limit(*given) == pytest.approx(batch_size.next_limit(*given), rel=1e-12)
    for rows_left in (True, False):
        assert batch_limit.next_stretch(stretch, rows_left) == batch_size.next_stretch(stretch, rows_left)


@given(ROWS, st.integers(1, 10**7), SECONDS, st.floats(0.0, 1e3), SECONDS, st.floats(1.0, 4.0))
def test_the_limit_halves_or_quadruples_at_most(
    limit: float, rows: int, batch_s: float, overhead_s: float, target_s: float, stretch: float
) -> None:
    following = batch_size.next_limit(limit, rows, batch_s, min(overhead_s, batch_s), target_s, stretch)
    assert min(limit, max(1.0, limit / 2)) <= following <= limit * batch_size.MAX_GROWTH


@given(st.floats(0.01, 10.0), st.floats(1e-6, 1e-2), st.floats(0.1, 60.0))
def test_full_batches_converge_to_the_stretched_target_or_twice_the_overhead(
    overhead_s: float, row_s: float, target_s: float
) -> None:
    """A batch of n rows takes a + c n. Under an endless backlog it should take 4 targets, or 2 a if that is longer."""
    limit, stretch = batch_size.FIRST_BATCH_ROWS, 1.0
    for _ in range(100):
        stretch = batch_size.next_stretch(stretch, rows_left=True)
        batch_s = overhead_s + row_s * limit
        limit = batch_size.next_limit(limit, limit, batch_s, overhead_s, target_s, stretch)
    expected_s = max(batch_size.MAX_STRETCH * target_s, 2 * overhead_s)
    rows = (expected_s - overhead_s) / row_s
    assert limit == pytest.approx(max(1.0, rows), rel=0.01) and math.isfinite(limit)
