"""Organic adaptation in simulation: properties on random dataflows, and a load that rises and falls."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import penstock
from penstock.apps import joker
from penstock.apps.joker.multiplication import SCHEMA, finish, global_multiply, keyed_multiply, multiply, source
from penstock.control.policies.adaptation_parameters import AdaptationParameters, Variant
from penstock.control.topology import Topology
from penstock.dataflow import Dataflow
from penstock.engines.simulated import ThreadCosts
from penstock.plan import default_plan
from tests.support.organic_simulations import Adaptation, adaptation, ones

pytestmark = pytest.mark.long

STRICT = AdaptationParameters(strict=True)
UNIT_S = 1e-4  # time of a multiplication; 100 of them take 10 ms
TOLERANCE = 0.05


@st.composite
def dataflows(draw: st.DrawFn) -> Dataflow:
    """Return one to three regions in a row, with another source, a loop, one replica, or a second sink."""
    flow = penstock.Dataflow("random")
    stream = source(flow, None, 1.0)
    looped = draw(st.booleans())
    loop = flow.feedback("again", schema=SCHEMA) if looped else None
    for number in range(draw(st.integers(1, 3))):
        inputs = [stream]
        if number == 0 and loop is not None:
            inputs.append(loop)
        if draw(st.integers(0, 3)) == 0:
            inputs.append(source(flow, None, 1.0, f"other{number}"))
        before = stream
        stream = keyed_multiply(inputs, f"k{number}", draw(st.integers(20, 400)), key=("key", "other")[number % 2])
        for extra in range(draw(st.integers(0, 2))):
            selectivity = draw(st.sampled_from([0.5, 1.0, 2.0]))
            stream = multiply(stream, f"s{number}{extra}", draw(st.integers(0, 400)), selectivity)
    if draw(st.booleans()):
        stream = global_multiply(stream, "one", draw(st.integers(5, 50)))
    finish(stream, None, None)
    if draw(st.booleans()):
        finish(keyed_multiply(before, "branch", draw(st.integers(20, 400))), None, None, "branch_out")
    if loop is not None:  # less than one row comes back per row
        multiply(stream, "back", 10, 0.02).feed(loop)
    return flow


@pytest.mark.parametrize("mode", ["row-by-row", "micro-batch"])
@given(
    flow=dataflows(),
    variant=st.sampled_from(list(Variant)),
    strict=st.booleans(),
    slots=st.integers(6, 12),
    overhead=st.integers(0, 60),
)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would take minutes
)
def test_adaptation_of_random_dataflows(
    mode: str, flow: Dataflow, variant: Variant, strict: bool, slots: int, overhead: int
) -> None:
    parameters = AdaptationParameters(variant=variant, strict=strict)
    unchanged = AdaptationParameters(variant=Variant.FISSION_ONLY, max_replicas=1, strict=True)
    has_loop = any(operator.feedback for operator in flow.operators)
    thread = ThreadCosts(
        row_s=overhead * UNIT_S,
        send_s=overhead * UNIT_S / 4,
        queue_rows=None if has_loop else 10,  # a loop of full queues would block itself
    )
    result, without = (
        adaptation(
            flow,
            parameters,
            rows_per_s=200.0,
            multiplication_s=UNIT_S,
            slots=slots,
            thread=thread if mode == "row-by-row" else None,
            periods=periods,
            mode=mode,
        )
        for parameters, periods in ((parameters, 120), (unchanged, 40))
    )
    assert not without.changes
    # It terminates: nothing changes in the last third.
    assert all(row.at_s < 800.0 for row in result.changes), [row.reason for row in result.changes]
    first = Topology.of(flow).slots(
        default_plan(flow, slots=slots, replicas=ones(flow)), micro_batch=mode == "micro-batch"
    )
    assert all(used <= max(slots, first) for used in result.used_slots)
    # A batch counts in the window in which it ends.
    tolerance = TOLERANCE if mode == "row-by-row" else 0.15
    assert mean(result.completed_per_s[-20:]) >= mean(without.completed_per_s[-20:]) * (1.0 - tolerance)
    # As printed, the throughput of saturated regions counts as the load, and batches make it vary by more than 20 %.
    if not (strict and mode == "micro-batch"):
        assert_no_failed_plan_is_repeated(result)


def assert_no_failed_plan_is_repeated(result: Adaptation) -> None:
    """The load is constant, so a plan that was rolled back stays blacklisted until another change is kept."""
    failed = []
    for row in result.changes:
        if row.reason_code != "roll-back":  # returns to the plan before the adaptation
            assert row.new not in failed
        if row in result.kept:
            failed = []
        elif row.verdict == "rolled back":
            failed.append(row.new)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def initial(result: Adaptation) -> float:
    """Return the throughput before the first change, without the first window, in which empty queues fill."""
    return result.rows_per_s[1]


def test_cuts_and_replicas_follow_a_load_in_both_directions() -> None:
    """In micro-batches, two operators with 10 ms each process 50 rows/s with one replica; 360 need at least 8 slots."""
    flow = joker.two_operators(work=(100, 100))
    result = adaptation(
        flow,
        AdaptationParameters(stable_periods=2),
        rows_per_s=((0.0, 30.0), (100.0, 120.0), (200.0, 360.0), (400.0, 120.0), (600.0, 20.0)),
        multiplication_s=UNIT_S,
        periods=100,
        slots=16,
        mode="micro-batch",
    )
    plans = [(row.at_s, row.new) for row in result.changes if row.new is not None]
    assert max(result.used_slots) >= 8
    assert any(plan.cuts for _, plan in plans)
    assert {plan.replicas["m1_100"] for at_s, plan in plans if 200.0 <= at_s < 400.0} - {1, 2}
    assert result.plan == default_plan(flow, slots=16, replicas=ones(flow))  # the falling load releases all of them
    assert mean(result.completed_per_s[70:80]) == pytest.approx(360.0, rel=0.1)
    assert mean(result.completed_per_s[-20:]) == pytest.approx(20.0, rel=0.1)
