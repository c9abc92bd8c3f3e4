"""Options of DRS that concern its model, its smoothing, and the time before its first change."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.api.policy_options import OptionError, PolicyOptions, controller_settings, create_policy
from penstock.control.controller import Settings
from penstock.control.guards import Cooldown
from penstock.control.policies.drs import Drs, DrsSettings, LeastLatency
from penstock.control.simulation import Duration, simulate
from penstock.engines.simulated import (
    Behaviour,
    Gamma,
    Hyperexponential,
    OperatorBehaviour,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.measure.smoothing import ExponentialSmoothing, MovingAverage
from penstock.plan import default_plan
from penstock.store import Store, StoreReader
from tests.support.driving import drive
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import mmk_latency_s
from tests.support.scripted import scripted_engine


def drs_options(**options: object) -> PolicyOptions:
    return PolicyOptions(policy="drs", latency_s=1.0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("micro_batch", [False, True])
def test_alpha_smooths_exponentially(micro_batch: bool) -> None:
    given = controller_settings(drs_options(alpha=0.7, windows=4), window_s=1.0, micro_batch=micro_batch).smoothing
    assert given == ExponentialSmoothing(alpha=0.7, min_windows=4)
    plain = controller_settings(drs_options(windows=4), window_s=1.0, micro_batch=micro_batch).smoothing
    assert plain == MovingAverage(4)


@pytest.mark.parametrize("alpha", [-0.1, 1.0, 3.0])
def test_an_invalid_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(OptionError, match="alpha"):
        drs_options(alpha=alpha).check()


def test_options_without_a_user_are_refused() -> None:
    with pytest.raises(OptionError, match="queueing model"):
        PolicyOptions(policy="threshold", queue="gigk").check()
    with pytest.raises(OptionError, match="alpha"):
        PolicyOptions(policy="organic", alpha=0.5).check()
    with pytest.raises(OptionError, match="alpha"):
        PolicyOptions(alpha=0.5).check()


def test_a_run_and_a_simulation_get_the_same_model() -> None:
    policy: object = create_policy(drs_options(queue="gigk"))
    while not isinstance(policy, Drs):
        policy = policy.policy  # type: ignore[attr-defined]
    assert policy.settings.queue == "gigk"


def test_the_first_change_waits_for_the_cooldown(tmp_path: Path) -> None:
    clock = FakeClock()
    policy = Cooldown(Drs(DrsSettings(goal=LeastLatency(max_slots=22))), seconds=600.0)
    rows = drive(tmp_path, scripted_engine(clock), clock, policy, windows=15, smoothing=MovingAverage(1))
    (change,) = [row for row in rows if row.applied == "ok"]
    start_s = rows[0].at_s - 60.0
    assert start_s + 600.0 <= change.at_s <= start_s + 660.0
    assert {row.reason_code for row in rows if row.at_s < change.at_s} == {"cooldown"}
    assert "The start was" in rows[0].reason


def predicted_s(queue: str | None, service: object, at: Path) -> float:
    """Return the latency of one query in micro-batches by the model, without the correction that is learned."""
    flow = penstock.Dataflow("one")
    rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=90.0))
    rows.keyed("work", lambda df: df, keys=["n"]).sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={"work": OperatorBehaviour(service_s=service)},  # type: ignore[arg-type]
        sources={"rows": SourceBehaviour(rates=((0.0, 90.0),))},
        batch=SimulatedBatchCosts(batch_s=0.01, task_s=0.0, target_s=2.0),
    )
    plan = default_plan(flow, slots=40, replicas={"work": 12})
    engine = SimulatedEngine(flow, behaviour, plan=plan, mode="micro-batch", seed=2)
    policy = Drs(DrsSettings(goal=LeastLatency(max_slots=40), queue=queue))  # type: ignore[arg-type]
    settings = Settings(mode="recommend", smoothing=MovingAverage(3), micro_batch=True, warm_up_s=0.0)
    with Store(at) as store:
        simulate(policy, engine, store, settings, clock=engine.clock, duration=Duration(windows=4, window_s=300.0))
    with StoreReader(at) as reader:
        inputs = reader.decisions()[-1][1].inputs
    return float(inputs["predicted_latency_s"]) / float(inputs["correction"])  # type: ignore[arg-type]


def test_a_queue_takes_the_place_of_the_micro_batch_model(tmp_path: Path) -> None:
    """M/M/k by the textbook. GI/G/k scales the waiting time by the mean of the two SCVs (Allen and Cunneen)."""
    by_formula = mmk_latency_s(90.0, 10.0, 12)
    waiting_s = by_formula - 0.1
    for scv, service in ((0.25, Gamma(mean=0.1, scv=0.25)), (9.0, Hyperexponential(mean=0.1, scv=9.0))):
        predicted = {queue: predicted_s(queue, service, tmp_path / f"{queue}-{scv}") for queue in ("mmk", "gigk", None)}
        assert predicted["mmk"] == pytest.approx(by_formula, rel=0.15)  # the rates are measured
        assert predicted["gigk"] == pytest.approx(0.1 + waiting_s * (1.0 + scv) / 2.0, rel=0.3)
        assert predicted[None] not in (predicted["mmk"], predicted["gigk"])
