from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.curve import Curve
from penstock.models.flow import Flow, FlowStream, gains
from penstock.planning.allocation import AllocationError
from penstock.planning.lsa import lsa
from penstock.planning.mba import mba
from penstock.planning.placement import Placement
from penstock.planning.placement_prediction import Routing, predict, shares
from penstock.planning.thread_schedule import place
from penstock.planning.vms import VmSize, acquire
from tests.support.micro_dags import CURVES, DIAMOND, LINEAR, STAR, curve, flow, instances

Instance = tuple[Flow, float, dict[str, Curve]]
SHUFFLE, PROPORTIONAL = Routing.SHUFFLE, Routing.PROPORTIONAL
FOUR = [VmSize(name="D3", slots=4, price_per_h=0.4)]
TABLE = flow((None, "table"))


def on_slots(*counts: int, operator: str = "table") -> Placement:
    slots = tuple(slot for slot, count in enumerate(counts) for _ in range(count))
    return Placement(method="by hand", cluster=acquire(len(counts), FOUR), slot_of={operator: slots})


def test_published_shuffle_overloads_the_partial_bundle_of_the_table_task() -> None:
    """60 + 60 + 40 threads at 100 rows/s: shuffle sends 37.5, 37.5 and 25, and the last slot serves only 20."""
    placement = on_slots(60, 60, 40)
    assert [100 * part for part in shares({0: 60, 1: 60, 2: 40}, CURVES["table"], SHUFFLE).values()] == [37.5, 37.5, 25]
    assert predict(TABLE, placement, CURVES, SHUFFLE).rows_per_s == pytest.approx(20 * 160 / 40)
    assert predict(TABLE, placement, CURVES, PROPORTIONAL).rows_per_s == pytest.approx(100)


def test_published_lsa_threads_of_the_table_task_in_the_diamond_sustain_about_thirty() -> None:
    """2 threads on each of four slots and 9 on one: 4 x 5 and, on the line from 5 to 10, 9.375."""
    rate = predict(TABLE, on_slots(2, 2, 2, 2, 9), CURVES, PROPORTIONAL).rows_per_s
    assert rate == pytest.approx(4 * 5 + 9.375)


def test_one_slot_is_its_curve_whatever_the_routing() -> None:
    for threads in (1, 3, 60):
        for routing in Routing:
            prediction = predict(TABLE, on_slots(threads), CURVES, routing)
            point = CURVES["table"].at(threads)
            assert prediction.rows_per_s == pytest.approx(point.rows_per_s)
            assert (prediction.slots[0].cpu, prediction.slots[0].memory) == (
                pytest.approx(point.cpu),
                pytest.approx(point.memory),
            )


def test_use_is_in_proportion_below_the_peak() -> None:
    prediction = predict(TABLE, on_slots(60), CURVES, SHUFFLE, planned_rows_per_s=10)
    assert prediction.at_rows_per_s == 10
    assert prediction.slots[0].cpu == pytest.approx(54.08 / 4)


def test_equal_slots_make_the_two_routings_one() -> None:
    shuffled, by_capacity = (predict(TABLE, on_slots(30, 30, 30), CURVES, routing) for routing in Routing)
    assert shuffled.rows_per_s == pytest.approx(by_capacity.rows_per_s)


def test_more_threads_than_measured_are_reported() -> None:
    assert predict(TABLE, on_slots(61), CURVES, SHUFFLE).beyond_measured == ("table",)
    assert predict(TABLE, on_slots(60), CURVES, SHUFFLE).beyond_measured == ()


@pytest.mark.parametrize("dag", [LINEAR, DIAMOND, STAR])
@pytest.mark.parametrize("rate", [50, 100, 200])
def test_lsa_and_rsm_sustain_less_than_planned_and_mba_and_sam_all_of_it(dag: Flow, rate: float) -> None:
    naive, _ = place(lsa(dag, rate, CURVES), CURVES, mapping="rsm", sizes=FOUR)
    modelled, _ = place(mba(dag, rate, CURVES), CURVES, mapping="sam", sizes=FOUR)
    by_lsa, by_mba = (predict(dag, placement, CURVES, PROPORTIONAL).rows_per_s for placement in (naive, modelled))
    assert by_lsa < rate
    assert by_mba >= rate * (1 - 1e-9)


@settings(max_examples=30, deadline=None)
@given(instances())
def test_mba_and_sam_sustain_the_rate_when_rows_go_by_capacity(instance: Instance) -> None:
    dag, rate, curves = instance
    placement, _ = place(mba(dag, rate, curves), curves, mapping="sam", sizes=FOUR)
    assert predict(dag, placement, curves, PROPORTIONAL).rows_per_s >= rate * (1 - 1e-9)


@st.composite
def placements(draw: st.DrawFn) -> tuple[Flow, dict[str, Curve], Placement]:
    dag, _, curves = draw(instances())
    cluster = acquire(draw(st.integers(1, 6)), [VmSize(name="two", slots=2)])
    slot = st.integers(0, cluster.slots - 1)
    threads = {name: tuple(draw(st.lists(slot, min_size=1, max_size=10))) for name in dag.operators}
    return dag, curves, Placement(method="random", cluster=cluster, slot_of=threads, cpu_pooled=draw(st.booleans()))


@settings(max_examples=50, deadline=None)
@given(placements())
def test_at_the_predicted_rate_no_thread_gets_more_than_its_slot_does_and_one_gets_all(
    case: tuple[Flow, dict[str, Curve], Placement],
) -> None:
    """The expected use is the sum over threads, without shares or groups."""
    dag, curves, placement = case
    gain = gains(dag)
    for routing in Routing:
        prediction = predict(dag, placement, curves, routing)
        if not math.isfinite(prediction.rows_per_s):
            assert all(value == 0 for value in gain.values())
            continue
        worst, cpu = 0.0, Counter[int]()
        for name, slots in placement.slot_of.items():
            together = Counter(slots)
            does = [
                curves[name].at(together[slot]).rows_per_s / together[slot] for slot in slots
            ]  # the part of one thread
            rate = prediction.rows_per_s * gain[name]
            gets = (
                [rate / len(slots)] * len(slots)
                if routing is SHUFFLE
                else [rate * capacity / sum(does) for capacity in does]
            )
            worst = max(worst, *(got / can for got, can in zip(gets, does, strict=True)))
            for slot, got, can in zip(slots, gets, does, strict=True):
                cpu[slot] += curves[name].at(together[slot]).cpu / together[slot] * got / can
        assert worst == pytest.approx(1.0)
        assert [use.cpu for use in prediction.slots] == pytest.approx(
            [cpu[slot] for slot in range(placement.cluster.slots)]
        )
        assert sum(use.cpu for use in prediction.vms) == pytest.approx(sum(cpu.values()))


@settings(max_examples=30, deadline=None)
@given(placements())
def test_routing_by_capacity_never_sustains_less_than_shuffle(case: tuple[Flow, dict[str, Curve], Placement]) -> None:
    dag, curves, placement = case
    shuffled, by_capacity = (predict(dag, placement, curves, routing).rows_per_s for routing in Routing)
    assert by_capacity >= shuffled * (1 - 1e-9)


def test_within_slots_stops_where_a_slot_is_full() -> None:
    """Two operators of 80% CPU each at their peak of 10 share a slot: at 10 it would use 160%, at 6.25 all of it."""
    curves = {"a": curve({1: (10, 80, 10)}), "b": curve({1: (10, 80, 10)})}
    dag = flow((None, "a"), ("a", "b"))
    cluster = acquire(2, [VmSize(name="two", slots=2)])
    together = Placement(method="x", cluster=cluster, slot_of={"a": (0,), "b": (0,)})
    pooled = Placement(method="x", cluster=cluster, slot_of={"a": (0,), "b": (0,)}, cpu_pooled=True)
    assert predict(dag, together, curves, SHUFFLE).rows_per_s == pytest.approx(10)
    assert predict(dag, together, curves, SHUFFLE).within_slots_rows_per_s == pytest.approx(6.25)
    assert predict(dag, pooled, curves, SHUFFLE).within_slots_rows_per_s == pytest.approx(10)


def test_nothing_arrives_nothing_binds() -> None:
    dag = Flow(operators=("table",), streams=(FlowStream(source=None, target="table", selectivity=0.0),))
    prediction = predict(dag, on_slots(3), CURVES, SHUFFLE)
    assert prediction.rows_per_s == math.inf
    assert prediction.slots[0].cpu == 0.0


def test_an_operator_without_threads_is_named() -> None:
    with pytest.raises(AllocationError, match="'table' has no thread in the placement"):
        predict(TABLE, on_slots(1, operator="other"), CURVES, SHUFFLE)
