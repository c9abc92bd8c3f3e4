from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.curve import Curve, CurveError, CurvePoint, curve_from_points, curves_from_json


def point(rows_per_s: float, cpu: float = 10.0, memory: float = 5.0) -> CurvePoint:
    return CurvePoint(rows_per_s=rows_per_s, cpu=cpu, memory=memory)


TABLE = curve_from_points(
    {1: point(3, 1.02), 2: point(5, 2.04), 10: point(10, 11.22), 40: point(20), 50: point(30), 60: point(40, 54.08)}
)


def test_published_inverse_of_the_table_task() -> None:
    assert [TABLE.threads_for(rate) for rate in (0, 3, 5, 10, 20, 40)] == [1, 1, 2, 10, 40, 60]
    assert TABLE.best_threads == 60


def test_three_threads_lie_on_the_line_between_two_and_ten() -> None:
    assert TABLE.at(3).rows_per_s == 5 + 5 / 8
    assert TABLE.at(3).cpu == pytest.approx(2.04 + (11.22 - 2.04) / 8)


def test_a_curve_is_constant_beyond_its_measurements() -> None:
    assert TABLE.at(1000) == TABLE.at(60)
    assert TABLE.measured_threads == 60


def test_best_is_the_fewest_threads_of_the_highest_rate() -> None:
    bell = curve_from_points({1: point(10), 2: point(30), 3: point(30), 8: point(12)})
    assert bell.best_threads == 2
    assert bell.threads_for(30) == 2


@st.composite
def any_curve(draw: st.DrawFn) -> Curve:
    counts = [1, *sorted(draw(st.sets(st.integers(2, 40), max_size=5)))]
    return curve_from_points({n: point(draw(st.floats(0.01, 1000.0))) for n in counts})


def test_inverse_does_not_round_past_the_answer() -> None:
    """(5.92 - 0.8) / (7.2 - 0.8) of ten threads is 8 plus a rounding error, although 9 threads serve 5.92."""
    line = curve_from_points({1: point(0.8), 11: point(7.2)})
    assert line.threads_for(line.at(9).rows_per_s) == 9


@settings(deadline=None)
@given(any_curve(), st.floats(0.0, 1.0))
def test_inverse_is_the_first_of_all_thread_counts_that_reaches_the_rate(curve: Curve, part: float) -> None:
    rate = part * curve.best.rows_per_s
    by_search = next(n for n in range(1, 41) if curve.at(n).rows_per_s >= rate)
    assert curve.threads_for(rate) == by_search


@settings(deadline=None)
@given(any_curve())
def test_json_round_trip(curve: Curve) -> None:
    assert curves_from_json(msgspec.json.encode({"a": dict(zip(curve.threads, curve.points, strict=True))})) == {
        "a": curve
    }


def test_json_keys_may_come_in_any_order() -> None:
    text = '{"a": {"10": {"rows_per_s": 9, "cpu": 1, "memory": 1}, "1": {"rows_per_s": 2, "cpu": 1, "memory": 1}}}'
    assert curves_from_json(text)["a"].threads == (1, 10)


def test_a_rate_above_one_slot_is_refused() -> None:
    with pytest.raises(CurveError, match=r"at most 40 rows/s \(with 60 threads\), but 41"):
        TABLE.threads_for(41)


@pytest.mark.parametrize("rate", [-1.0, math.nan])
def test_a_negative_rate_is_refused(rate: float) -> None:
    with pytest.raises(CurveError, match="must be 0 or more"):
        TABLE.threads_for(rate)


def test_a_point_of_zero_threads_is_refused() -> None:
    with pytest.raises(CurveError, match="begins at 1 thread"):
        TABLE.at(0)


@pytest.mark.parametrize(
    ("threads", "points", "message"),
    [
        ((), (), "empty"),
        ((2,), (point(1),), "start at 1 thread"),
        ((1, 3, 2), (point(1), point(2), point(3)), "Thread count 2 follows 3"),
        ((1, 1), (point(1), point(2)), "must be unique and ascending"),
        ((1, 2), (point(1),), "2 thread counts but 1 points"),
        ((1,), (point(math.nan),), "rows_per_s at 1 threads is nan"),
        ((1,), (point(math.inf),), "rows_per_s at 1 threads is inf"),
        ((1,), (point(0),), "must be above 0"),
        ((1,), (point(-3),), "must be above 0"),
        ((1,), (point(1, cpu=-0.1),), "cpu at 1 threads is -0.1"),
        ((1,), (point(1, cpu=math.nan),), "cpu at 1 threads is nan"),
        ((1,), (point(1, memory=100.5),), "memory at 1 threads is 100.5"),
    ],
)
def test_invalid_curves_are_refused(threads: tuple[int, ...], points: tuple[CurvePoint, ...], message: str) -> None:
    with pytest.raises(CurveError, match=message):
        Curve(threads=threads, points=points)


GOOD = {"rows_per_s": 1, "cpu": 1, "memory": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON is malformed"),
        (b"\xff\xfe", "JSON is malformed"),
        ("[" * 100_000, "JSON is malformed"),
        ('{"a": {"1": {"rows_per_s": 1' + "0" * 400 + ', "cpu": 1, "memory": 1}}}', "Curve of 'a'"),
        ("[]", "an object with an entry per operator"),
        ("{}", "an object with an entry per operator"),
        ('{"a": {}}', "Curve of 'a': The curve is empty"),
        ('{"a": []}', "Curve of 'a': expected an object"),
        (json.dumps({"a": {"one": GOOD}}), "'one' is not a thread count"),
        (json.dumps({"a": {"01": GOOD}}), "'01' is not a thread count"),
        (json.dumps({"a": {"0": GOOD}}), "'0' is not a thread count"),
        (json.dumps({"a": {"-1": GOOD}}), "'-1' is not a thread count"),
        (json.dumps({"a": {"": GOOD}}), "'' is not a thread count"),
        (json.dumps({"a": {"1": {**GOOD, "disk": 3}}}), "Curve of 'a' at 1 threads: .*unknown field `disk`"),
        (json.dumps({"a": {"1": {"rows_per_s": 1}}}), "missing required field `cpu`"),
        (json.dumps({"a": {"1": {**GOOD, "cpu": "high"}}}), "Curve of 'a' at 1 threads"),
        (json.dumps({"a": {"1": {**GOOD, "cpu": math.nan}}}), "Curve of 'a': cpu at 1 threads is nan"),
        ('{"a": {"1": {"rows_per_s": 1, "cpu": 1, "memory": 1}, "1": {}}}', "'1' is given twice"),
    ],
)
def test_invalid_files_of_curves_are_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(CurveError, match=message):
        curves_from_json(text)
