"""The comparison of two dataflows: results as multisets, the ratio of throughputs, and the cause of a difference."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store import ProfiledRegion
from penstock.study.stepwise.comparison import compared_results, difference_cause, throughput_ratio
from penstock.study.stepwise.sequential_test import Verdict

ROWS = st.lists(st.fixed_dictionaries({"word": st.sampled_from("abc"), "n": st.integers(0, 2)}), max_size=12)


@given(ROWS, ROWS)
def test_results_are_equal_if_their_multisets_are(a: list[dict[str, object]], b: list[dict[str, object]]) -> None:
    counts_a, counts_b = (Counter((row["word"], row["n"]) for row in rows) for rows in (a, b))
    check = compared_results({"out": a}, {"result": b}, sample_rows=12, shown=100)
    assert check.equal is (counts_a == counts_b)
    assert (check.rows_a, check.rows_b) == (len(a), len(b))
    counts = {(row.row["word"], row.row["n"]): (row.count_a, row.count_b) for row in check.differences}
    expected = {key: (counts_a[key], counts_b[key]) for key in counts_a | counts_b if counts_a[key] != counts_b[key]}
    assert counts == expected and check.differing_rows == len(expected)


def test_columns_have_no_order_and_sums_may_differ_in_the_last_digits() -> None:
    a = [{"x": 0.1 + 0.2, "y": [1.0, None]}, {"x": float("nan"), "y": []}]
    b = [{"y": [], "x": float("nan")}, {"y": [1.0, None], "x": 0.3}]
    assert compared_results({"out": a}, {"out": b}, sample_rows=2).equal
    assert not compared_results({"out": [{"x": 0.3}]}, {"out": [{"x": 0.3001}]}, sample_rows=2).equal


def test_several_sinks_are_compared_by_name_and_only_the_first_differences_are_kept() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    a = {"kept": [{"at": at}], "late": [{"n": n} for n in range(30)]}
    check = compared_results(a, {"late": [], "kept": [{"at": at}]}, sample_rows=5, shown=3)
    assert (check.differing_rows, len(check.differences)) == (30, 3)
    assert {row.sink for row in check.differences} == {"late"}


def test_the_interval_contains_the_true_ratio_as_often_as_it_claims() -> None:
    random, hits, trials = np.random.default_rng(5), 0, 1_000
    for _ in range(trials):
        a, b = random.normal(100.0, 5.0, 8), random.normal(130.0, 13.0, 20)
        result = throughput_ratio(a.tolist(), b.tolist())
        hits += result.low <= 1.3 <= result.high
        assert result.low < result.ratio < result.high
    assert hits / trials == pytest.approx(0.95, abs=0.025)


def test_equal_dataflows_are_rarely_found_different() -> None:
    random, differences, trials = np.random.default_rng(6), 0, 1_000
    for _ in range(trials):
        a, b = random.normal(100.0, 5.0, 8), random.normal(100.0, 5.0, 8)
        differences += throughput_ratio(a.tolist(), b.tolist()).verdict is not Verdict.NO_DIFFERENCE
    assert differences / trials <= 0.07


def test_samples_without_variation() -> None:
    same = throughput_ratio([100.0] * 6, [100.0] * 6)
    assert (same.verdict, same.low, same.high, same.p_value) == (Verdict.NO_DIFFERENCE, 1.0, 1.0, 1.0)
    slower = throughput_ratio([100.0] * 6, [80.0] * 6)
    assert (slower.verdict, slower.ratio, slower.p_value) == (Verdict.WORSE, pytest.approx(0.8), 0.0)


def test_the_operator_with_the_most_additional_time_is_the_cause() -> None:
    faster = {"parse": 0.7e-3, "count": 0.8e-3}
    cause = difference_cause("b", faster | {"wait": 1e-3, "parse": 0.9e-3}, faster, regions={}, single={})
    assert cause is not None and (cause.operator, cause.side) == ("wait", "b")
    assert "1 ms of 2.7 ms" in cause.reason
    cause = difference_cause("a", faster | {"parse": 0.9e-3}, faster, regions={}, single={})
    assert (
        cause is not None and cause.operator == "parse" and "0.9 ms per external row instead of 0.7 ms" in cause.reason
    )
    assert difference_cause("a", faster, faster, regions={}, single={}) is None


def test_a_busy_operator_without_replicas_is_the_cause() -> None:
    own = {"parse": 5e-3, "rank": 1e-3, "top": 0.2e-3}
    regions = {
        "parse": ProfiledRegion(latency_s=1.0, capacity=0.99),
        "rank": ProfiledRegion(latency_s=1.0, capacity=0.97),
    }
    cause = difference_cause("a", own, {"parse": 5e-3}, regions=regions, single={"rank": ("rank", "top")})
    assert cause is not None and cause.operator == "rank" and "97%" in cause.reason
    idle = regions | {"rank": ProfiledRegion(latency_s=1.0, capacity=0.4)}
    cause = difference_cause("a", own, {"rank": 1e-3}, regions=idle, single={"rank": ("rank", "top")})
    assert cause is not None and cause.operator == "parse"
