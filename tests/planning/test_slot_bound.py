from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.models.curve import Curve
from penstock.models.flow import Flow
from penstock.planning.lsa import lsa
from penstock.planning.mba import mba
from penstock.planning.placement import Placement
from penstock.planning.placement_prediction import Routing, predict
from penstock.planning.slot_bound import SlotBounds, slot_bounds
from penstock.planning.thread_schedule import place
from penstock.planning.vms import ONE_SLOT, acquire
from tests.support.micro_dags import CURVES, LINEAR, curve, flow, instances, used_slots

Instance = tuple[Flow, float, dict[str, Curve]]


@settings(max_examples=40, deadline=None)
@given(instances())
def test_no_method_and_mapping_takes_fewer_slots(instance: Instance) -> None:
    dag, rate, curves = instance
    bounds = slot_bounds(dag, rate, curves)
    assert bounds.any_method <= bounds.sustaining
    for method in (lsa, mba):
        allocation = method(dag, rate, curves)
        assert bounds.any_method <= allocation.slots
        for mapping in ("dsm", "rsm", "sam"):
            assert bounds.any_method <= place(allocation, curves, mapping=mapping)[0].cluster.slots
    assert bounds.sustaining <= mba(dag, rate, curves).slots


@settings(max_examples=50, deadline=None)
@given(st.data(), instances())
@pytest.mark.long
def test_no_placement_that_sustains_a_rate_has_fewer_slots(data: st.DataObject, instance: Instance) -> None:
    """The bound at the rate that any placement sustains is at most the slots of this placement."""
    dag, _, curves = instance
    cluster = acquire(data.draw(st.integers(1, 5)), [ONE_SLOT])
    slot = st.integers(0, cluster.slots - 1)
    threads = {name: tuple(data.draw(st.lists(slot, min_size=1, max_size=12))) for name in dag.operators}
    placement = Placement(method="random", cluster=cluster, slot_of=threads)
    rate = predict(dag, placement, curves, Routing.PROPORTIONAL).within_slots_rows_per_s
    assume(math.isfinite(rate) and rate > 0)
    assert slot_bounds(dag, rate, curves).sustaining <= len(used_slots(placement))


def test_the_bound_of_one_operator_is_exact() -> None:
    only = flow((None, "table"))
    for rate in (1, 40, 41, 100, 400, 401):
        assert slot_bounds(only, rate, CURVES).sustaining == math.ceil(rate / 40) == mba(only, rate, CURVES).slots


def test_two_halves_fill_one_slot_and_three_do_not() -> None:
    half = {name: curve({1: (10, 50, 10)}) for name in "abc"}
    two, three = flow((None, "a"), ("a", "b")), flow((None, "a"), ("a", "b"), ("b", "c"))
    assert slot_bounds(two, 10, half) == SlotBounds(any_method=1, sustaining=1)
    assert slot_bounds(three, 10, half) == SlotBounds(any_method=2, sustaining=2)


def test_lsa_below_the_sustaining_bound_does_not_sustain() -> None:
    """LSA places 34 table threads on one slot, but one slot serves at most 40 rows/s."""
    only = flow((None, "table"))
    allocation = lsa(only, 100, CURVES)
    assert (allocation.slots, slot_bounds(only, 100, CURVES)) == (1, SlotBounds(any_method=1, sustaining=3))
    placement, _ = place(allocation, CURVES, mapping="dsm")
    assert predict(only, placement, CURVES, Routing.PROPORTIONAL).rows_per_s < 100


@pytest.mark.parametrize(("rate", "allocated"), [(50, 4), (100, 7), (200, 14)])
def test_linear_micro_dag_is_within_a_factor_of_two_of_any_plan(rate: float, allocated: int) -> None:
    assert allocated / 2 <= slot_bounds(LINEAR, rate, CURVES).sustaining <= allocated


def test_large_numbers_stay_bounds() -> None:
    bounds, allocation = slot_bounds(LINEAR, 100_000, CURVES), mba(LINEAR, 100_000, CURVES)
    assert 100_000 / 30 <= bounds.sustaining <= allocation.slots  # the blob task alone
