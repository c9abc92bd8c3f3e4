from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from penstock.planning.mba import mba
from penstock.planning.placement import Placement
from penstock.planning.placement_prediction import Routing, shares
from penstock.planning.routing import routes, share_within_vms
from penstock.planning.thread_schedule import place
from penstock.planning.vms import Vm, VmCluster, VmSize
from tests.support.micro_dags import CURVES, DIAMOND, LINEAR, flow

D = [VmSize(name=f"D{n}", slots=2 ** (n - 1), price_per_h=0.1) for n in (1, 2, 3)]


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Draw a placement of blob and table threads on up to four VMs in two racks."""
    sizes = [
        VmSize(name="v", slots=draw(st.integers(1, 2)), rack=draw(st.integers(0, 1)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    cluster = VmCluster(vms=tuple(Vm(name=f"v{number}", size=size) for number, size in enumerate(sizes)))
    slots = st.lists(st.integers(0, cluster.slots - 1), min_size=1, max_size=12)
    return Placement(method="x", cluster=cluster, slot_of={"blob": tuple(draw(slots)), "table": tuple(draw(slots))})


def test_proportional_routing_removes_the_published_imbalance() -> None:
    """60 + 60 + 40 table threads sustain 40, 40 and 20 rows/s, so their slots receive 2/5, 2/5 and 1/5 of the rows."""
    placement, _ = place(mba(DIAMOND, 100, CURVES), CURVES, sizes=D)
    groups = placement.groups()["table"]
    received = shares(groups, CURVES["table"], Routing.PROPORTIONAL)
    assert {(groups[slot], round(share, 9)) for slot, share in received.items()} == {(60, 0.4), (40, 0.2)}
    assert sum(received.values()) == pytest.approx(1)


@given(placements())
@settings(max_examples=60, deadline=None)
def test_every_slot_sends_all_its_rows_and_gets_its_capacity(placement: Placement) -> None:
    table = routes(flow((None, "blob"), ("blob", "table")), placement, CURVES)
    groups = placement.groups()
    sent, got = Counter[int](), Counter[int]()
    for route in table:
        assert route.share > 0
        sent[route.from_slot] += route.share
        got[route.to_slot] += route.share
    for name, moved in (("blob", sent), ("table", got)):
        assert dict(moved) == pytest.approx(shares(groups[name], CURVES[name], Routing.PROPORTIONAL))
    assert len(table) <= 4 * (len(groups["blob"]) + len(groups["table"]))


@given(placements())
@settings(max_examples=40, deadline=None)
def test_routing_has_the_least_transport_cost(placement: Placement) -> None:
    """Compare with an exact solution of the transport problem, with costs that increase with the distance."""
    groups, cluster = placement.groups(), placement.cluster
    rack = [cluster.vms[vm].size.rack for vm in cluster.vm_of_slot]

    def cost(slot: int, other: int) -> float:
        if slot == other:
            return 0.0
        if cluster.vm_of_slot[slot] == cluster.vm_of_slot[other]:
            return 1.0
        return 2.5 if rack[slot] == rack[other] else 7.0

    supply = shares(groups["blob"], CURVES["blob"], Routing.PROPORTIONAL)
    demand = shares(groups["table"], CURVES["table"], Routing.PROPORTIONAL)
    costs = np.array([[cost(slot, other) for other in demand] for slot in supply])
    rows = np.kron(np.eye(len(supply)), np.ones(len(demand)))
    columns = np.kron(np.ones(len(supply)), np.eye(len(demand)))
    best = linprog(
        costs.ravel(), A_eq=np.vstack([rows, columns])[:-1], b_eq=[*supply.values(), *list(demand.values())[:-1]]
    ).fun
    chosen = routes(flow((None, "blob"), ("blob", "table")), placement, CURVES)
    assert sum(route.share * cost(route.from_slot, route.to_slot) for route in chosen) == pytest.approx(best, abs=1e-6)


def test_all_on_one_vm_is_all_local() -> None:
    placement, _ = place(mba(LINEAR, 50, CURVES), CURVES, sizes=D)
    table = routes(LINEAR, placement, CURVES)
    assert len(placement.cluster.vms) == 1
    assert share_within_vms(table, placement) == pytest.approx(1)
    assert {(route.source, route.target) for route in table} == {
        ("parse", "pi"),
        ("pi", "write"),
        ("write", "blob"),
        ("blob", "table"),
    }
