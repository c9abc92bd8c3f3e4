"""The placement of replicas on slots, and its effect on the throughput."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine
from penstock.engines.simulated.distributions import BehaviourError
from penstock.engines.simulated.placement import PLACEMENTS, even
from penstock.plan import ExecutorGroup
from tests.support.simulated_flows import chain, plan_for

REPLICAS = st.lists(st.tuples(st.text(), st.integers(1, 9)), min_size=1, max_size=6)


@pytest.mark.parametrize("name", PLACEMENTS)
@given(stations=REPLICAS, slots=st.integers(1, 20))
def test_each_replica_has_a_slot(name: str, stations: list[tuple[str, int]], slots: int) -> None:
    placed = PLACEMENTS[name](stations, slots)
    assert len(placed) == sum(replicas for _, replicas in stations)
    assert all(0 <= slot < slots for slot in placed)


@given(stations=REPLICAS, slots=st.integers(1, 20))
def test_the_default_is_even(stations: list[tuple[str, int]], slots: int) -> None:
    replicas = Counter(even(stations, slots))
    counts = [replicas[slot] for slot in range(slots)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(("placement", "rows_per_s"), [("even", 150.0), ("separate", 100.0)])
def test_the_placement_determines_the_throughput(placement: str, rows_per_s: float) -> None:
    """Rows take 10 ms at "a". It has three replicas and "b" one, on two slots that replicas share equally.

    Even: each replica has half of a slot, so "a" serves 3 x 50 rows/s. Separate: the three replicas share one slot.
    """
    flow = chain("a", "b")
    costs = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Fixed(value=0.01)),
            "b": OperatorBehaviour(service_s=Fixed(value=0.0001)),
        }
    )
    costs = costs.replace(cluster=msgspec.structs.replace(costs.cluster, placement=placement))
    engine = SimulatedEngine(flow, costs, plan=plan_for(flow, slots=2, a=3, b=1))
    engine.start()
    engine.set_rate("source", 1_000.0)
    engine.clock.sleep(10.0)
    engine.observe()
    engine.clock.sleep(50.0)
    processed = engine.observe().operator("a").processed_rows_per_s
    assert processed == pytest.approx(rows_per_s, rel=0.02)


@pytest.mark.parametrize(("slots_of_a", "rows_per_s"), [(1, 100.0), (2, 200.0)])
def test_operators_of_a_group_have_its_slots_for_themselves(slots_of_a: int, rows_per_s: float) -> None:
    """Rows take 10 ms at "a" and 5 ms at "b", which also has two replicas; each group limits its own operator."""
    flow = chain("a", "b")
    costs = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Fixed(value=0.01)),
            "b": OperatorBehaviour(service_s=Fixed(value=0.005)),
        }
    )
    groups = {"first": ExecutorGroup(operators=("a",), slots=slots_of_a)}
    plan = plan_for(flow, slots=slots_of_a + 1, a=2, b=2).replace(groups=groups)
    engine = SimulatedEngine(flow, costs, plan=plan)
    engine.start()
    engine.set_rate("source", 1_000.0)
    engine.clock.sleep(10.0)
    engine.observe()
    engine.clock.sleep(50.0)
    assert engine.observe().operator("a").processed_rows_per_s == pytest.approx(rows_per_s, rel=0.02)


def test_an_unknown_placement_is_refused() -> None:
    costs = Behaviour()
    costs = costs.replace(cluster=msgspec.structs.replace(costs.cluster, placement="elsewhere"))
    with pytest.raises(BehaviourError, match="no placement 'elsewhere'; use one of even, separate"):
        costs.check(chain("a"))
