from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings

from penstock.models.curve import Curve
from penstock.models.flow import Flow, FlowStream, gains
from penstock.planning.allocation import Allocation, AllocationError, OperatorAllocation
from penstock.planning.lsa import lsa
from penstock.planning.mba import mba
from tests.support.micro_dags import CURVES, DIAMOND, LINEAR, STAR, curve, flow, instances


def of(allocation: Allocation, name: str) -> OperatorAllocation:
    return next(operator for operator in allocation.operators if operator.operator == name)


@pytest.mark.parametrize(("rate", "slots"), [(50, 4), (100, 7), (200, 14)])
def test_published_slots_of_the_linear_micro_dag_under_mba(rate: float, slots: int) -> None:
    assert mba(LINEAR, rate, CURVES).slots == slots


@pytest.mark.parametrize(("rate", "slots"), [(50, 7), (100, 13), (200, 25)])
def test_published_slots_of_the_linear_micro_dag_under_lsa(rate: float, slots: int) -> None:
    assert lsa(LINEAR, rate, CURVES).slots == slots


def test_published_fifteen_slots_with_a_source_and_a_sink_of_ten_percent_each() -> None:
    assert math.ceil((mba(LINEAR, 200, CURVES).cpu + 20) / 100) == 15


@pytest.mark.parametrize("dag", [LINEAR, DIAMOND, STAR])
def test_published_all_micro_dags_take_seven_slots_at_fifty_under_lsa_because_of_the_blob_memory(dag: Flow) -> None:
    allocation = lsa(dag, 50, CURVES)
    assert allocation.slots == 7
    assert of(allocation, "blob").threads == 25
    assert of(allocation, "blob").memory == pytest.approx(25 * 23.92)


@pytest.mark.parametrize("dag", [LINEAR, DIAMOND])
def test_published_table_task_is_two_full_bundles_and_forty_threads_at_a_hundred(dag: Flow) -> None:
    table = of(mba(dag, 100, CURVES), "table")
    assert (table.threads, table.bundles, table.bundle.threads) == (160, 2, 60)
    assert table.rest is not None
    assert table.rest.threads == 40


def test_published_blob_task_at_a_hundred_takes_twelve_slots_of_memory_by_lsa_and_four_by_mba() -> None:
    linear, modelled = of(lsa(LINEAR, 100, CURVES), "blob"), of(mba(LINEAR, 100, CURVES), "blob")
    assert (linear.threads, round(linear.cpu, 2), round(linear.memory, 2)) == (50, 336.5, 1196.0)
    assert (modelled.threads, round(modelled.cpu, 2), round(modelled.memory, 2)) == (170, 314.69, 326.3)


@pytest.mark.parametrize("dag", [LINEAR, DIAMOND, STAR])
@pytest.mark.parametrize("rate", [50, 100, 200])
def test_published_lsa_takes_more_slots_and_fewer_threads_in_all_nine_cases(dag: Flow, rate: float) -> None:
    by_lsa, by_mba = lsa(dag, rate, CURVES), mba(dag, rate, CURVES)
    assert by_lsa.slots > by_mba.slots
    assert by_lsa.threads < by_mba.threads


def test_star_hub_gets_twice_the_rate_and_two_parse_threads_above_its_peak() -> None:
    hub = of(mba(STAR, 160, CURVES), "parse")
    assert (hub.input_rows_per_s, hub.threads) == (320.0, 2)


def test_one_thread_is_best_and_linear_then_both_methods_give_the_same_threads() -> None:
    only = {"a": curve({1: (10, 100, 100)})}
    for rate in (1, 10, 25, 40):
        by_lsa, by_mba = lsa(flow((None, "a")), rate, only), mba(flow((None, "a")), rate, only)
        assert (by_lsa.threads, by_lsa.slots) == (by_mba.threads, by_mba.slots) == (math.ceil(rate / 10),) * 2


def test_whole_multiples_leave_no_rest_whatever_the_rounding() -> None:
    thirds = Flow(operators=("a",), streams=(FlowStream(source=None, target="a", selectivity=1 / 3),))
    allocated = mba(thirds, 0.9, {"a": curve({1: (0.1, 50, 50)})}).operators[0]
    assert (allocated.bundles, allocated.rest) == (3, None)


def test_a_useless_curve_still_gets_the_slots_of_its_bundles() -> None:
    assert mba(flow((None, "a")), 25, {"a": curve({1: (10, 0, 0)})}).slots == 3


def test_an_operator_without_rows_still_has_a_thread() -> None:
    filtered = Flow(operators=("a",), streams=(FlowStream(source=None, target="a", selectivity=0.0),))
    for method in (lsa, mba):
        allocation = method(filtered, 10, {"a": curve({1: (5, 50, 50)})})
        assert (allocation.threads, allocation.cpu, allocation.slots) == (1, 0.0, 1)


def _lsa_by_the_loop(rate: Fraction, curve: Curve) -> tuple[int, float, float]:
    """Algorithm LSA as published, thread by thread."""
    threads, cpu, memory = 0, 0.0, 0.0
    single = curve.single
    while rate >= single.rows_per_s:
        threads, cpu, memory = threads + 1, cpu + single.cpu, memory + single.memory
        rate -= Fraction(single.rows_per_s)
    if rate > 0:
        part = float(rate) / single.rows_per_s
        threads, cpu, memory = threads + 1, cpu + single.cpu * part, memory + single.memory * part
    return threads, cpu, memory


def _mba_by_the_loop(rate: Fraction, curve: Curve) -> tuple[int, float, float]:
    """Algorithm MBA as published, slot by slot, with a search for its inverse."""
    threads, cpu, memory = 0, 0.0, 0.0
    peaks = {n: curve.at(n).rows_per_s for n in range(1, 13)}
    best = min(n for n, peak in peaks.items() if peak == max(peaks.values()))
    while rate >= peaks[best]:
        threads, cpu, memory = threads + best, cpu + 100, memory + 100
        rate -= Fraction(peaks[best])
    if rate > 0:
        few = min(n for n, peak in peaks.items() if peak >= rate)
        part = float(rate) / peaks[1] if few == 1 else 1.0
        threads, cpu, memory = threads + few, cpu + curve.at(few).cpu * part, memory + curve.at(few).memory * part
    return threads, cpu, memory


@settings(max_examples=60, deadline=None)
@given(instances())
def test_both_methods_equal_the_published_loops(instance: tuple[Flow, float, dict[str, Curve]]) -> None:
    dag, rate, curves = instance
    for method, by_the_loop in ((lsa, _lsa_by_the_loop), (mba, _mba_by_the_loop)):
        for allocated in method(dag, rate, curves).operators:
            wanted = rate * gains(dag)[allocated.operator]
            times = wanted / allocated.bundle.rows_per_s
            # The loop does not round, so exclude multiples that are whole except for a rounding error, and zero.
            if not (times == round(times) > 0 or abs(times - round(times)) > 1e-9):
                continue
            threads, cpu, memory = by_the_loop(Fraction(wanted), curves[allocated.operator])
            assert allocated.input_rows_per_s == wanted
            assert allocated.threads == threads
            assert (allocated.cpu, allocated.memory) == (pytest.approx(cpu, abs=1e-9), pytest.approx(memory, abs=1e-9))


@pytest.mark.parametrize("rate", [0.0, -5.0, math.nan, math.inf])
def test_invalid_rates_are_refused(rate: float) -> None:
    with pytest.raises(AllocationError, match="must be a finite number above 0"):
        mba(LINEAR, rate, CURVES)


def test_an_operator_without_a_curve_is_named() -> None:
    with pytest.raises(AllocationError, match=r"'table' has no curve. Curves are given for: blob, parse, pi, write"):
        lsa(LINEAR, 10, {name: known for name, known in CURVES.items() if name != "table"})


@pytest.mark.parametrize("rate", [1e9, 1e300, 1e308])  # the last is infinite after the selectivity
@pytest.mark.parametrize("method", [lsa, mba])
def test_an_excessive_number_of_threads_is_refused(
    method: Callable[[Flow, float, dict[str, Curve]], Allocation], rate: float
) -> None:
    many = Flow(operators=("slow",), streams=(FlowStream(source=None, target="slow", selectivity=20.0),))
    with pytest.raises(AllocationError, match="more than 1,000,000 threads are needed. Check the rate"):
        method(many, rate, {"slow": curve({1: (1e-9, 50, 50), 3: (2e-9, 50, 50)})})
