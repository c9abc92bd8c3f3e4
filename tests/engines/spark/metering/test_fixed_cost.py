"""The fixed part of a batch, from batches whose cost is known."""

from __future__ import annotations

import random

import pytest

from penstock.engines.spark.metering.batches import Batch
from penstock.engines.spark.metering.fixed_cost import FixedCosts

FIXED_S, COMMIT_S, ROW_S = 0.4, 0.1, 0.002


def batch(number: int, rows: int, noise: float = 1.0) -> Batch:
    return Batch(
        number=number,
        ended_s=float(number),
        seconds=(FIXED_S + COMMIT_S + ROW_S * rows) * noise,
        phases_s={"addBatch": (FIXED_S + ROW_S * rows) * noise, "walCommit": COMMIT_S * noise},
        rows_read={"source": rows},
        rows_out={},
        states={},
    )


def test_batches_of_different_sizes_show_the_fixed_part() -> None:
    costs, draw = FixedCosts(), random.Random(1)
    costs.add("q", [batch(0, 500, noise=20.0)])  # the first one starts Python
    costs.add("q", [batch(n, draw.randint(10, 1000), draw.uniform(0.95, 1.05)) for n in range(1, 40)])
    fixed = costs.estimate("q")
    assert fixed is not None and fixed.low <= FIXED_S + COMMIT_S <= (fixed.high or 0.0)
    assert fixed.value == pytest.approx(FIXED_S + COMMIT_S, rel=0.1)


def test_equal_batches_show_only_the_phases_that_are_always_fixed() -> None:
    costs = FixedCosts()
    costs.add("q", [batch(n, 100) for n in range(10)])
    fixed = costs.estimate("q")
    assert fixed is not None and fixed.value is None and fixed.low == pytest.approx(COMMIT_S)


def test_a_new_start_and_batches_without_rows() -> None:
    costs = FixedCosts()
    costs.add("q", [batch(n, 0) for n in range(10)])
    assert costs.estimate("q") is None
    costs.add("q", [batch(n, 100) for n in range(10, 20)])
    assert costs.estimate("q") is not None
    costs.begin("q")
    assert costs.estimate("q") is None and costs.estimate("other") is None
