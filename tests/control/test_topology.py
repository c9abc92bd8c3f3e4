"""The topology of a dataflow: the cuts that replica counts require, and the queries that result."""

from __future__ import annotations

import penstock
from penstock.apps.nexmark import q4, q5, q7
from penstock.control.region_configuration import RegionConfiguration, plan_with
from penstock.control.topology import Topology
from penstock.plan import default_plan, validated


def test_other_replicas_of_two_states_in_one_query_need_a_cut() -> None:
    flow = q5.flow()
    topology, plan = Topology.of(flow), default_plan(flow)
    assert topology.queries(plan.cuts) == (("count", "hottest"),)
    for count in (1, 3):
        rescaled = topology.rescaled(plan, {"hottest": count})
        assert rescaled == validated(flow, rescaled) and rescaled.cuts == {"count"}
        assert topology.queries(rescaled.cuts) == (("count",), ("hottest",))
    both = topology.rescaled(plan, {"count": 3, "hottest": 3})
    assert both == validated(flow, both) and both.cuts == frozenset()


def test_a_rescaled_plan_keeps_its_cuts() -> None:
    """A cut between two states cannot be removed from a run, so no policy may propose that."""
    flow = q7.flow()
    topology, plan = Topology.of(flow), default_plan(flow)
    apart = topology.rescaled(plan, {"maximum": 1})
    assert apart.cuts == {"maximum"}
    equal = topology.rescaled(apart, {"maximum": 2})
    assert equal.cuts == {"maximum"}
    assert penstock.diff(apart, equal).cuts_removed == ()
    assert topology.successor(apart, plan) == plan.replace(cuts=frozenset({"maximum"}))


def test_the_cuts_that_a_run_can_remove() -> None:
    flow = q4.flow()
    topology, plan = Topology.of(flow), default_plan(flow)
    cuts = frozenset({"opened", "valid_bids", "average"})  # only the second one is between two states
    assert topology.removable_cuts(plan.replace(cuts=cuts)) == {"opened", "average"}


def test_the_configuration_of_a_region_removes_no_cut_between_states() -> None:
    """The states 'valid_bids' and 'highest' are in one region."""
    flow = q4.flow()
    topology = Topology.of(flow)
    plan = default_plan(flow).replace(cuts=frozenset({"valid_bids"}))
    wanted = plan_with(topology, plan, {"valid_bids": RegionConfiguration(replicas=1)}, micro_batch=True)
    assert wanted == validated(flow, wanted) and wanted.cuts == {"valid_bids", "highest"}
