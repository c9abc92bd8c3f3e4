"""All policies under a constant Poisson load of an hour: they settle, and what they expect of a loop is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api.policy_options import PolicyOptions, controller_settings, create_policy
from penstock.control.arena.cases import Case, Cell
from penstock.control.policies.catalogue import POLICIES
from penstock.control.simulation import Duration, simulate
from penstock.measure.window import Window
from penstock.store import DecisionRecord, Store

HOUR_S, WINDOW_S = 3600.0, 10.0
WITHOUT_STUDY = [name for name, entry in POLICIES.items() if not (entry.needs_profile or entry.needs_curves)]


def simulated(
    at: Path, policy: str, shape: str, engine: str, *, target_s: float
) -> tuple[list[DecisionRecord], list[Window], Case]:
    """Return the applied changes and the windows of an hour of a constant load."""
    case = Case(cell=Cell(shape=shape, load="flat", engine=engine, seed=1))
    entry = POLICIES[policy]
    options = PolicyOptions(
        policy=policy,
        mode="active",
        micro_batch=case.micro_batch,
        latency_s=target_s if entry.has_latency_target else None,
        max_slots=None if entry.sets_executors else case.slots,
        executors=(1, case.slots) if entry.sets_executors else None,
    )
    options.check()
    simulator = case.engine(case.first_plan)
    with Store(at) as store:
        _, changes = simulate(
            create_policy(options),
            simulator,
            store,
            controller_settings(options, window_s=WINDOW_S, micro_batch=case.micro_batch),
            clock=simulator.clock,
            duration=Duration(windows=HOUR_S / WINDOW_S, window_s=WINDOW_S),
        )
        assert store.errors() == []
        return changes, [window for _, window in store.windows()], case


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "engine", "target_s"),
    [("chain", "row-by-row", 0.46), ("chain", "micro-batch", 3.7), ("loop", "micro-batch", 15.0)],
)
@pytest.mark.parametrize("policy", WITHOUT_STUDY)
def test_a_constant_load_causes_few_changes(
    policy: str, shape: str, engine: str, target_s: float, tmp_path: Path
) -> None:
    """A policy may search for its plan in the first half hour. Afterwards it may correct it once and back."""
    changes, _, _ = simulated(tmp_path, policy, shape, engine, target_s=target_s)
    assert len(changes) <= 9
    assert sum(change.at_s > HOUR_S / 2 for change in changes) <= 2


@pytest.mark.long
@pytest.mark.parametrize("engine", ["row-by-row", "micro-batch"])
def test_drs_counts_the_slots_of_both_parts_of_a_loop(engine: str, tmp_path: Path) -> None:
    """A loop is cut inside a region, whose replicas then run in two pipelines."""
    changes, _, case = simulated(tmp_path, "drs", "loop", engine, target_s=15.0)
    assert changes
    for change in changes:
        assert change.new is not None and change.expected is not None
        assert change.expected.slots == case.topology.slots(change.new, micro_batch=case.micro_batch)
        assert change.expected.slots <= case.slots
        before = case.topology.slots(change.old, micro_batch=case.micro_batch)
        assert (change.reason_code == "release") == (change.expected.slots < before)


@pytest.mark.long
@pytest.mark.parametrize("target_s", [3.0, 6.0])
def test_mst_meets_a_latency_target(target_s: float, tmp_path: Path) -> None:
    """Without a target the policy stays with 13 executors, whose latency is above 3.7 s."""
    changes, windows, _ = simulated(tmp_path, "mst", "chain", "micro-batch", target_s=target_s)
    late = [
        window
        for window in windows[len(windows) // 2 :]
        if window.latency is not None and window.latency.mean_s > target_s
    ]
    assert changes and len(late) <= 0.05 * len(windows) / 2
    assert sum(operator.backlog_rows or 0 for operator in windows[-1].operators) < 5 * 4900  # five seconds of input
