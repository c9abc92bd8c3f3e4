"""The contract of thread planners: every allocation method with every mapping passes the same tests."""

from __future__ import annotations

import pytest

from penstock.models.flow import Flow
from penstock.planning.placement_prediction import Routing, predict
from penstock.planning.thread_schedule import ALLOCATIONS, MAPPINGS, place, schedule_threads
from penstock.planning.vms import VmSize, acquire
from tests.support.micro_dags import CURVES, DIAMOND, LINEAR, STAR

SIZES = [VmSize(name=f"D{n}", slots=2 ** (n - 1), price_per_h=0.1 * 2 ** (n - 1)) for n in (1, 2, 3)]
each_method = pytest.mark.parametrize("method", ALLOCATIONS)
each_mapping = pytest.mark.parametrize("mapping", MAPPINGS)
each_dag = pytest.mark.parametrize("dag", [LINEAR, DIAMOND, STAR], ids=["linear", "diamond", "star"])


@each_method
@each_dag
def test_an_allocation_covers_the_rate_of_every_operator(dag: Flow, method: str) -> None:
    allocation = ALLOCATIONS[method](dag, 100, CURVES)
    assert {operator.operator for operator in allocation.operators} == set(dag.operators)
    for operator in allocation.operators:
        rest = operator.rest.rows_per_s if operator.rest else 0.0
        planned = operator.bundles * operator.bundle.rows_per_s + rest
        assert planned == pytest.approx(operator.input_rows_per_s)
    assert 100 * allocation.slots >= max(allocation.cpu, allocation.memory) - 1e-6


@each_method
@each_dag
def test_a_higher_rate_needs_no_fewer_threads_and_slots(dag: Flow, method: str) -> None:
    low, high = (ALLOCATIONS[method](dag, rate, CURVES) for rate in (50, 200))
    assert low.threads <= high.threads
    assert low.slots <= high.slots


@each_method
@each_mapping
@each_dag
def test_a_mapping_places_every_thread_on_an_acquired_slot(dag: Flow, method: str, mapping: str) -> None:
    allocation = ALLOCATIONS[method](dag, 100, CURVES)
    placement, extra_slots = place(allocation, CURVES, mapping=mapping, sizes=SIZES)
    assert placement.method == mapping
    assert placement.cluster == acquire(allocation.slots + extra_slots, SIZES)
    assert {name: len(slots) for name, slots in placement.slot_of.items()} == {
        operator.operator: operator.threads for operator in allocation.operators
    }
    assert all(0 <= slot < placement.cluster.slots for slots in placement.slot_of.values() for slot in slots)


@each_method
@each_mapping
def test_planning_is_deterministic(method: str, mapping: str) -> None:
    first, second = (schedule_threads(STAR, 100, CURVES, method=method, mapping=mapping, sizes=SIZES) for _ in range(2))
    assert first == second


@each_method
@each_mapping
@each_dag
def test_proportional_routing_sustains_at_least_the_rate_of_shuffle_routing(
    dag: Flow, method: str, mapping: str
) -> None:
    placement, _ = place(ALLOCATIONS[method](dag, 100, CURVES), CURVES, mapping=mapping, sizes=SIZES)
    shuffle, proportional = (predict(dag, placement, CURVES, routing).rows_per_s for routing in Routing)
    assert shuffle <= proportional * (1 + 1e-9)
