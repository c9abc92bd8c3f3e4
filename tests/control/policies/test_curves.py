"""Policy curves: one step to the plan for the expected rate, by the published curves of the parser and the lookup."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.control.policies.curves import Curves
from penstock.control.policy import Change, Hold, Reason, Situation
from penstock.control.topology import Topology
from penstock.dataflow import Dataflow
from penstock.engines.simulated import Behaviour, Fixed, Mode, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.models.curve import Curve, curves_from_json
from penstock.plan import Plan, default_plan, validated

POINTS = {
    "parse": {"1": (310, 84.69, 35.63)},
    "table": {"1": (3, 1.02, 1.15), "10": (10, 11.22, 3.45), "40": (20, 26.53, 9.20), "60": (40, 54.08, 16.09)},
}
TEXT = json.dumps(
    {
        name: {n: {"rows_per_s": w, "cpu": c, "memory": m} for n, (w, c, m) in points.items()}
        for name, points in POINTS.items()
    }
)
CURVES: dict[str, Curve] = curves_from_json(TEXT)
BEHAVIOUR = Behaviour(
    operators={
        name: OperatorBehaviour(
            service_s=Fixed(value=1 / curve.single.rows_per_s),
            curve={str(n): point for n, point in zip(curve.threads, curve.points, strict=True)},
        )
        for name, curve in CURVES.items()
    }
)


def shop() -> Dataflow:
    flow = penstock.Dataflow("shop")
    events = flow.source("events", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=1))
    parsed = events.rows("parse", lambda row: row, "n bigint", selectivity=1.0)
    looked_up = parsed.rows("table", lambda row: row, "n bigint", threads=1, selectivity=1.0)
    looked_up.sink("out", penstock.noop())
    return flow


def situation_at(rate: float, plan: Plan, flow: Dataflow, max_slots: int = 40) -> Situation:
    behaviour = BEHAVIOUR.replace(sources={"events": SourceBehaviour(rates=((0.0, rate),))})
    engine = SimulatedEngine(flow, behaviour, plan=plan, mode=Mode.FLUID)
    engine.start()
    engine.advance(60.0)
    window = engine.observe()
    return Situation(
        now_s=window.end_s,
        topology=Topology.of(flow),
        plan=engine.plan,
        window=window,
        latest=window,
        max_slots=max_slots,
    )


def test_one_step_leads_to_the_bundles_for_the_rate() -> None:
    flow = shop()
    situation = situation_at(95.0, default_plan(flow, slots=8, replicas={"parse": 1}), flow)
    decision, _ = Curves(curves=CURVES).decide(situation, {})
    assert isinstance(decision, Change) and decision.reason_code is Reason.SHORTAGE
    # A tenth more is 104.5 rows/s: two bundles of 60 threads sustain 80, and 45 threads 25.
    assert decision.plan.threads == {"table": (60, 60, 45)}
    assert decision.plan.rates == {"table": (40.0, 40.0, 25.0)}
    assert decision.expected.rows_per_s == pytest.approx(95.0)
    again, _ = Curves(curves=CURVES).decide(situation_at(95.0, decision.plan, flow), {})
    assert isinstance(again, Hold) and again.reason_code is Reason.WITHIN_TARGET


def test_slots_are_released_only_with_a_margin() -> None:
    flow = shop()
    plan = validated(
        flow,
        Plan(
            dataflow="shop",
            cuts=frozenset({"parse"}),
            replicas={"parse": 3},
            threads={"table": (60, 60, 50)},
            rates={"table": (40.0, 40.0, 30.0)},
            slots=8,
        ),
    )
    # 65 rows/s and three tenths more need more than the 80 rows/s of two bundles; 60 rows/s do not.
    kept, _ = Curves(curves=CURVES).decide(situation_at(65.0, plan, flow), {})
    assert isinstance(kept, Hold) and kept.reason_code is Reason.WITHIN_TARGET
    released, _ = Curves(curves=CURVES).decide(situation_at(60.0, plan, flow), {})
    assert isinstance(released, Change) and released.reason_code is Reason.RELEASE
    assert len(released.plan.bundles("table", released.plan.replicas["parse"])) == 2


def test_missing_slots_and_operators_without_a_curve() -> None:
    flow = shop()
    situation = situation_at(100.0, default_plan(flow, slots=8, replicas={"parse": 1}), flow, max_slots=3)
    decision, _ = Curves(curves=CURVES).decide(situation, {})
    assert isinstance(decision, Hold) and decision.reason_code is Reason.AT_LIMIT and decision.needs_slots == 6
    unmeasured, _ = Curves(curves={}).decide(replace(situation, max_slots=40), {})
    assert isinstance(unmeasured, Hold) and unmeasured.reason_code is Reason.WITHIN_TARGET


def test_a_simulated_run_follows_a_step_of_the_load(tmp_path: Path) -> None:
    (tmp_path / "curves.json").write_text(TEXT)
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,rate\n" + "".join(f"{at},{30 if at < 600 else 100}\n" for at in range(0, 1800, 60)))
    flow = shop()
    simulation = penstock.simulate(
        flow,
        trace=trace,
        policy="curves",
        curves=tmp_path / "curves.json",
        behaviour=BEHAVIOUR,
        engine="fluid",
        plan=default_plan(flow, slots=20, replicas={"parse": 1}),
        max_slots=20,
        at=tmp_path / "record",
    )
    plan = penstock.open_run(tmp_path / "record").plan
    assert plan is not None
    table = sum(CURVES["table"].at(threads).rows_per_s for threads in plan.bundles("table", plan.replicas["parse"]))
    assert table >= 100.0
    assert simulation.totals.changes <= 4
