"""The policy fission-model: it decides once, and the simulator reaches the throughput that it predicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from penstock.apps import joker
from penstock.control.controller import Settings
from penstock.control.policies.fission_model import FissionModel
from penstock.control.policy import Change, Hold, Reason
from penstock.control.simulation import Duration, simulate
from penstock.dataflow import Kind, regions
from penstock.engines.simulated import SimulatedEngine, ThreadCosts
from penstock.measure.smoothing import MovingAverage
from penstock.models.fission_costs import FissionCosts
from penstock.plan import default_plan
from penstock.store import Store
from tests.support.situations import situation_of


@pytest.mark.parametrize("micro_batch", [False, True])
def test_it_decides_once_unless_the_decision_was_not_applied(micro_batch: bool) -> None:
    policy, overloaded = FissionModel(), situation_of("video", (1, 1, 1), 9.0, 12, micro_batch=micro_batch)
    once, memory = policy.decide(overloaded, {})
    assert isinstance(once, Change)
    assert policy.decide(overloaded, memory)[0] == once  # it was vetoed
    held, _ = policy.decide(replace(overloaded, plan=once.plan), memory)
    assert isinstance(held, Hold) and held.reason_code is Reason.BEST and "once" in held.reason


def test_a_decision_to_stay_is_a_decision_as_well() -> None:
    """Under a load that the plan sustains the policy stays; under five times the load it does not decide again."""
    policy, calm = FissionModel(), situation_of("video", (1, 1, 1), 9.0, 12)
    change, _ = policy.decide(calm, {})
    assert isinstance(change, Change)
    best = replace(calm, plan=change.plan)
    stayed, memory = policy.decide(best, {})
    assert isinstance(stayed, Hold) and "highest predicted throughput" in stayed.reason
    msgspec.convert(memory, dict[str, float | str])  # the store accepts it
    busy = replace(situation_of("video", (1, 1, 1), 9.0, 24), plan=change.plan)
    assert isinstance(policy.decide(busy, {})[0], Change)  # without the memory it would decide again
    held, kept = policy.decide(busy, memory)
    assert isinstance(held, Hold) and "once" in held.reason and kept == memory


def test_it_holds_if_the_slots_are_fewer_than_the_regions() -> None:
    """9 rows/s need 2 replicas with 5 rows/s each, 2 with 4.5 and 1 with 100."""
    held, _ = FissionModel().decide(replace(situation_of("video", (1, 1, 1), 8.9, 12), max_slots=2), {})
    assert isinstance(held, Hold) and (held.reason_code, held.needs_slots) == (Reason.AT_LIMIT, 5)


def test_it_holds_at_the_limit_if_the_best_plan_for_the_slots_is_in_force() -> None:
    """With 4 slots, 5 rows/s are the most: 1 replica with 5 rows/s and 2 with 4.5."""
    held, _ = FissionModel().decide(situation_of("video", (1, 2, 1), 8.9, 4), {})
    assert isinstance(held, Hold) and (held.reason_code, held.needs_slots) == (Reason.AT_LIMIT, 5)
    assert held.inputs["predicted_rows_per_s"] == pytest.approx(5.0)


def test_it_holds_if_the_best_plan_is_in_force_and_suffices() -> None:
    held, _ = FissionModel().decide(situation_of("video", (2, 2, 1), 8.0, 5), {})
    assert isinstance(held, Hold) and (held.reason_code, held.needs_slots) == (Reason.BEST, None)
    assert "highest predicted throughput" in held.reason


@pytest.mark.parametrize("factor", [0.2, 1.0])
def test_the_simulator_reaches_the_predicted_throughput(factor: float, tmp_path: Path) -> None:
    """Figure 21: seven operators in a keyed, a stateful and another keyed region, on 24 slots."""
    unit_s = 1e-4
    flow = joker.seven_operators(factor=factor)
    thread = ThreadCosts(row_s=10 * unit_s, replica_s=2 * unit_s, queue_rows=50)
    behaviour = joker.behaviour(flow, multiplication_s=unit_s, rows_per_s=4000.0, thread=thread)
    ones = {region.name: 1 for region in regions(flow) if region.kind is not Kind.SOURCE}
    engine = SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=24, replicas=ones))
    with Store(tmp_path) as store:
        _, changes = simulate(
            FissionModel(FissionCosts(thread_s=thread.row_s, replica_s=thread.replica_s)),
            engine,
            store,
            Settings(mode="active", smoothing=MovingAverage(2), warm_up_s=2.0),
            clock=engine.clock,
            duration=Duration(windows=20, window_s=5.0),
        )
        windows = [window for _, window in store.windows(last=8)]
    assert len(changes) == 1
    predicted = changes[0].inputs["predicted_rows_per_s"]
    first = next(operator.name for operator in flow.operators if operator.kind is not Kind.SOURCE)
    reached = sum(window.operator(first).processed_rows_per_s or 0.0 for window in windows) / len(windows)
    assert predicted is not None and predicted < 4000.0
    assert reached == pytest.approx(predicted, rel=0.06)
