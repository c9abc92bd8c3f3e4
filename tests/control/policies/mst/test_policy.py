"""The policy that scales executors with the load: single decisions, the simulated engine, and recommend mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

import penstock
from penstock.control.controller import Settings
from penstock.control.guards import Cooldown
from penstock.control.policies.mst import Mst, MstSettings
from penstock.control.policies.mst.load import AT_S, LEVEL, SLOPE, with_forecast
from penstock.control.policies.mst.margin import BACKLOG, MARGIN, SLOTS
from penstock.control.policy import Change, Hold, Policy, Reason, Situation
from penstock.control.simulation import Duration, SimulationSummary, simulate
from penstock.control.topology import Topology
from penstock.engines.ports import Applied
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.engines.simulated.behaviour import ChangePause, SimulatedCluster
from penstock.measure.smoothing import MovingAverage
from penstock.plan import Plan, default_plan, validated
from penstock.store import DecisionRecord, LatencyTarget, Store
from tests.support.applications import waiting
from tests.support.driving import drive
from tests.support.situations import situations

EACH_PER_S = 100.0  # rows/s of an executor with one slot: 10 ms per row
CAPACITY = tuple(0.9 * EACH_PER_S * m for m in range(1, 7))


def policy(**how: Any) -> Mst:
    return Mst(
        MstSettings(**{"capacity": CAPACITY, "slots_per_executor": 1, "max_executors": 6, "stable_turns": 3} | how)
    )


def engine_at(rates: tuple[tuple[float, float], ...], slots: int = 1, *, row_s: float = 0.01) -> SimulatedEngine:
    flow = waiting()
    behaviour = Behaviour(
        operators={"wait": OperatorBehaviour(service_s=Fixed(value=row_s))},
        sources={"rows": SourceBehaviour(rates=rates)},
        cluster=SimulatedCluster(slots_per_executor=1, max_executors=6, start_up_s=10.0),
        change=ChangePause(fixed_s=1.0),
    )
    return SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=slots), mode="fluid")


def simulated(
    policy: Policy,
    engine: SimulatedEngine,
    at: Path,
    *,
    windows: int,
    smoothed: int,
    warm_up_s: float,
    max_s: float,
) -> tuple[SimulationSummary, list[DecisionRecord]]:
    settings = Settings(
        mode="active",
        smoothing=MovingAverage(smoothed),
        warm_up_s=warm_up_s,
        stale_after_s=60.0,
        max_slots=6,
        tolerance=0.9,
    )
    with Store(at) as store:
        return simulate(
            policy,
            engine,
            store,
            settings,
            clock=engine.clock,
            duration=Duration(windows=windows, window_s=10.0),
            target=LatencyTarget(seconds=max_s),
        )


def situation_at(rate: float, slots: int, *, backlog: float = 0.0) -> Situation:
    """Return a situation of the simulated engine in its steady state, with the given backlog."""
    engine = engine_at(((0.0, rate),), slots)
    engine.start()
    for _ in range(3):
        engine.advance(20.0)
        window = engine.observe()
    operators = tuple(
        msgspec.structs.replace(operator, backlog_rows=round(backlog)) if operator.operator == "rows" else operator
        for operator in window.operators
    )
    (pipeline,) = window.pipelines
    pipeline = msgspec.structs.replace(pipeline, backlog_rows=round(backlog))
    window = msgspec.structs.replace(window, operators=operators, pipelines=(pipeline,))
    return Situation(
        now_s=window.end_s,
        topology=Topology.of(engine.flow),
        plan=engine.plan,
        window=window,
        latest=window,
        max_slots=6,
    )


@pytest.mark.parametrize(("rate", "executors"), [(80.0, 1), (100.0, 2), (260.0, 3), (271.0, 4), (530.0, 6)])
def test_the_fewest_that_cover_the_rate(rate: float, executors: int) -> None:
    # An executor counts as 90 rows/s: ceil(rate / 90).
    at = situation_at(rate, slots=executors + 1 if executors < 6 else 5)
    memory: dict[str, float] = {}
    for _ in range(3):  # executors are released when fewer have sufficed in three turns
        decision, updated = policy().decide(at, memory)
        memory = dict(updated)
    assert isinstance(decision, Change) and decision.plan.slots == executors
    assert decision.plan.replicas == {"wait": executors}


def test_a_backlog_is_drained_within_the_time_to_catch_up() -> None:
    # 80 rows/s need one; 12,000 rows within 120 s are 100 rows/s more: 180 rows/s need two.
    decision, _ = policy(catch_up_s=120.0).decide(situation_at(80.0, 1, backlog=12_000), {})
    assert isinstance(decision, Change) and decision.plan.slots == 2
    assert decision.inputs["wanted_rows_per_s"] == pytest.approx(180.0, rel=0.01)


def test_a_need_above_the_limit_is_reported() -> None:
    decision, _ = policy(max_executors=2, capacity=CAPACITY).decide(situation_at(400.0, 2), {})
    assert isinstance(decision, Hold) and decision.reason_code is Reason.AT_LIMIT
    assert decision.needs_slots == 5  # ceil(400 / 90)


@pytest.mark.parametrize(("slots_before", "blamed"), [(3, True), (2, False)])
def test_a_backlog_from_a_change_does_not_blame_the_plan(slots_before: int, blamed: bool) -> None:
    at = situation_at(250.0, slots=3, backlog=1_000)
    assert at.latest is not None
    memory = {LEVEL: 250.0, SLOPE: 0.0, AT_S: at.latest.end_s - 10.0, BACKLOG: 0.0, SLOTS: float(slots_before)}
    _, updated = policy().decide(at, memory)
    assert (updated[MARGIN] > 1.0) is blamed


def test_executors_above_the_limit_are_released() -> None:
    at = situation_at(100.0, slots=6)
    memory: dict[str, float] = {}
    for _ in range(3):
        decision, updated = policy(max_executors=4, capacity=CAPACITY[:4]).decide(at, memory)
        memory = dict(updated)
    assert isinstance(decision, Change) and decision.plan.slots == 2  # ceil(100 / 90)


def test_fewer_executors_do_not_count_as_sufficient_during_a_backlog() -> None:
    # 80 rows/s need one of three executors; in the third turn there is a new backlog of 200 rows.
    memory: dict[str, float] = {}
    released = []
    for backlog in (0.0, 0.0, 200.0, 0.0, 0.0):
        decision, updated = policy().decide(situation_at(80.0, slots=3, backlog=backlog), memory)
        memory = dict(updated)
        released.append(isinstance(decision, Change))
    assert released == [False, False, False, False, True]  # the third turn and the two turns that drained the backlog


def test_a_rising_load_is_predicted() -> None:
    memory: dict[str, float] = {}
    for turn, rate in enumerate((40.0, 50.0, 60.0, 70.0)):  # one row/s more each second
        at = replace(situation_at(rate, 1), now_s=1000.0 + 10.0 * turn, stale_after_s=1e9)
        assert at.latest is not None
        at = replace(at, latest=msgspec.structs.replace(at.latest, end_s=at.now_s))
        decision, updated = policy(lead_s=60.0).decide(at, memory)
        memory = dict(updated)
    assert isinstance(decision, Change) and decision.plan.slots == 2  # 70 are within 90, 130 are not


def forecasts(rates: list[tuple[float, float]], lead_s: float) -> list[float]:
    memory: dict[str, float] = {}
    forecasts = []
    for at_s, rate in rates:
        memory = with_forecast(memory, rate, at_s, lead_s)
        forecasts.append(memory[LEVEL] + memory[SLOPE] * lead_s)
    return forecasts


def test_a_falling_load_does_not_predict_a_rise() -> None:
    """The load ends within six seconds, and the release of executors takes half a minute."""
    before = [(2.0 * turn, 100.0) for turn in range(5)] + [(10.0, 73.0), (12.0, 46.0), (14.0, 20.0)]
    after = [(53.0 + 2.0 * turn, 20.0) for turn in range(20)]
    assert max(forecasts(before + after, 30.0)[-len(after) :]) < 25.0


def test_the_prediction_does_not_depend_on_the_duration_of_windows() -> None:
    """After a step from 100 to 300 rows/s, one-second windows predicted 1,600 rows/s and ten-second windows 430."""
    peaks = []
    for window_s in (1.0, 2.0, 5.0, 10.0):
        turns = [window_s * turn for turn in range(round(240.0 / window_s))]
        peaks.append(max(forecasts([(at_s, 100.0 if at_s < 120.0 else 300.0) for at_s in turns], 30.0)))
    assert max(peaks) < 1.15 * min(peaks) < 700.0, peaks


@pytest.mark.parametrize(("falls_per_s", "turns"), [(0.0, 4), (0.1, 4), (2.0, 2)])
def test_executors_are_released_sooner_while_the_load_falls(falls_per_s: float, turns: int) -> None:
    """At 250 rows/s or less, a decrease of 0.1 rows/s per second is about 1 % within the lead time of 30 s."""
    fewer = policy(stable_turns=4, lead_s=30.0)
    at = situation_at(300.0, slots=4)
    assert at.window is not None and at.latest is not None
    memory: dict[str, float] = {LEVEL: 250.0, SLOPE: -falls_per_s, AT_S: at.latest.end_s}
    for turn in range(1, 6):
        rate, end_s = 250.0 - 5.0 * turn * falls_per_s, at.latest.end_s + 5.0
        window = msgspec.structs.replace(at.latest, external_rows_per_s=rate, start_s=end_s - 5.0, end_s=end_s)
        at = replace(at, window=window, latest=window, now_s=end_s)
        decision, updated = fewer.decide(at, memory)
        memory = dict(updated)
        if isinstance(decision, Change):
            break
    assert turn == turns and isinstance(decision, Change) and decision.plan.slots == 3


def test_the_policy_learns_from_a_model_that_was_too_optimistic() -> None:
    # The model says 90 rows/s per executor, but a row takes 20 ms: 50 rows/s.
    engine = engine_at(((0.0, 85.0),), 1, row_s=0.02)
    decided = policy(catch_up_s=600.0)
    engine.start()
    memory: dict[str, float] = {}
    for _ in range(4):
        engine.advance(10.0)
        window = engine.observe()
        at = Situation(
            now_s=window.end_s,
            topology=Topology.of(engine.flow),
            plan=engine.plan,
            window=window,
            latest=window,
            max_slots=6,
        )
        decision, updated = decided.decide(at, memory)
        memory = dict(updated)
    assert memory[MARGIN] == pytest.approx(90.0 / 50.0, rel=0.05)
    assert isinstance(decision, Change) and decision.plan.slots == 2


@pytest.mark.parametrize(("rate", "enough"), [(120.0, 2), (300.0, 4)])
def test_a_model_that_is_too_optimistic_is_not_trusted_repeatedly(rate: float, enough: int, tmp_path: Path) -> None:
    """The modelled capacity is 30 % too high, with the guards and averages of the command line.

    120 rows/s exceed the real capacity of one executor but not the modelled one. Three executors just serve 300 rows/s,
    so an existing backlog never drains.
    """
    believed = policy(capacity=tuple(1.3 * EACH_PER_S * m for m in range(1, 7)))
    engine = engine_at(((0.0, rate),), 2)
    guarded = Cooldown(believed, seconds=60.0)
    sums, changes = simulated(guarded, engine, tmp_path, windows=150, smoothed=5, warm_up_s=15.0, max_s=10.0)
    assert sums.changes <= 8
    assert max(row.new.slots for row in changes if row.new is not None) == enough


@pytest.mark.parametrize("mode", ["fluid", "row-by-row", "micro-batch"])
@pytest.mark.parametrize("step_s", [300.0, 305.0, 309.0], ids=["between windows", "within one", "at its end"])
def test_a_load_step_above_the_plan_does_not_blame_the_model(mode: str, step_s: float, tmp_path: Path) -> None:
    # The capacity is exact (10 ms per row), so the policy must learn nothing from a backlog.
    given = engine_at(((0.0, 80.0), (step_s, 900.0), (step_s + 300.0, 80.0)), 2)
    engine = SimulatedEngine(given.flow, given.behaviour, plan=given.plan, mode=mode)
    exact = policy(capacity=tuple(EACH_PER_S * m for m in range(1, 7)), stable_turns=5)
    rows = drive(
        tmp_path,
        engine,
        engine.clock,
        exact,
        windows=150,
        window_s=10.0,
        smoothing=MovingAverage(5),
        max_slots=6,
        micro_batch=mode == "micro-batch",
    )
    assert max(row.new.slots for row in rows if row.new is not None) == 6
    assert max(row.memory[MARGIN] for row in rows if MARGIN in row.memory) < 1.1


@given(situation=situations)
@settings(max_examples=40, deadline=None)
def test_plans_are_valid_and_inputs_are_not_modified(situation: Situation) -> None:
    decides = Mst(
        MstSettings(
            capacity=tuple(2.0 * m for m in range(1, 13)), slots_per_executor=2, max_executors=12, stable_turns=1
        )
    )
    memory = {"other": 1.0}
    decision, updated = decides.decide(situation, memory)
    assert (decision, updated) == decides.decide(situation, memory) and memory == {"other": 1.0}
    if isinstance(decision, Change):
        validated(situation.topology.flow, decision.plan)
        slots = situation.topology.slots(decision.plan, micro_batch=situation.micro_batch)
        assert decision.expected.slots == slots <= max(situation.max_slots, situation.slots)
        assert decision.plan.slots <= situation.max_slots
    for missing in (replace(situation, window=None), replace(situation, latest=None)):
        held, _ = decides.decide(missing, {})
        assert isinstance(held, Hold) and held.reason_code is Reason.MISSING
    stale, _ = decides.decide(replace(situation, now_s=situation.now_s + 61.0), {})
    assert isinstance(stale, Hold) and stale.reason_code is Reason.STALE


@pytest.mark.long
def test_a_load_with_a_peak_is_followed_with_fewer_executors_and_few_violations(tmp_path: Path) -> None:
    day = [(float(minute * 60), 120.0 + 360.0 * max(0.0, 1.0 - abs(minute - 60) / 30)) for minute in range(120)]
    engine = engine_at(tuple(day), 2)
    follows = policy(stable_turns=4)
    sums, changes = simulated(follows, engine, tmp_path, windows=720, smoothed=2, warm_up_s=10.0, max_s=5.0)
    assert sums.violations is not None and sums.violations <= 0.01 * sums.windows
    assert sums.slot_seconds <= 0.7 * 6 * sums.seconds  # a static plan for the peak always has six executors
    assert {row.new.slots for row in changes if row.new is not None} >= {3, 4, 5, 6}
    assert sums.rolled_back == 0


def test_recommending_changes_nothing(tmp_path: Path) -> None:
    engine = engine_at(((0.0, 350.0),), 1)
    rows = drive(
        tmp_path,
        engine,
        engine.clock,
        policy(),
        windows=6,
        window_s=10.0,
        mode="recommend",
        max_slots=6,  # type: ignore[arg-type]
    )
    assert engine.plan.slots == 1
    recommended = [row for row in rows if row.applied == "recommended"]
    # After 30 s the backlog is 7,500 rows, to be drained in 120 s: 350 + 62.5 = 412.5 rows/s, of 90 each.
    assert recommended and recommended[0].new is not None and recommended[0].new.slots == 5


class ThreeExecutors(SimulatedEngine):
    """A cluster that has three executors for any request."""

    asked: list[int]

    def apply(self, plan: Plan) -> Applied:
        self.asked.append(plan.slots)
        return super().apply(plan.replace(slots=min(plan.slots, 3)))


def test_executors_that_do_not_start_are_not_requested_again(tmp_path: Path) -> None:
    given = engine_at(((0.0, 400.0),), 1)
    engine = ThreeExecutors(given.flow, given.behaviour, plan=given.plan, mode="fluid")
    engine.asked = []
    rows = drive(
        tmp_path,
        engine,
        engine.clock,
        policy(),
        windows=30,
        window_s=10.0,
        max_slots=6,  # type: ignore[arg-type]
    )
    assert engine.plan.slots == 3
    assert engine.asked.count(6) <= 2 and len(engine.asked) <= 3
    assert rows[-1].kind == "hold"


def test_rows_that_wait_at_a_cut_are_a_backlog(tmp_path: Path) -> None:
    flow = penstock.Dataflow("cut")
    stream = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint, m bigint", rows_per_s=10.0))
    stream = stream.keyed("first", lambda frame: frame, keys=["n"], columns=["n", "m"])
    stream.keyed("second", lambda frame: frame, keys=["m"], columns=["n", "m"]).sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={
            "first": OperatorBehaviour(service_s=Fixed(value=0.001)),
            "second": OperatorBehaviour(service_s=Fixed(value=0.01)),
        },
        sources={"rows": SourceBehaviour(rates=((0.0, 250.0), (300.0, 20.0)))},
        cluster=SimulatedCluster(slots_per_executor=2, max_executors=3),
        change=ChangePause(fixed_s=1.0),
    )
    plan = Plan(dataflow="cut", cuts=frozenset({"first"}), replicas={"first": 2, "second": 2}, slots=4)
    engine = SimulatedEngine(flow, behaviour, plan=plan, mode="row-by-row")
    engine.start()
    engine.advance(310.0)
    engine.observe()
    engine.advance(10.0)
    window = engine.observe()
    # 250 rows/s arrive and 200 are served: after 300 s about 15,000 rows wait, all at the cut.
    at = Situation(now_s=window.end_s, topology=Topology.of(flow), plan=plan, window=window, latest=window, max_slots=6)
    how = MstSettings(
        capacity=(90.0, 180.0, 270.0), slots_per_executor=2, max_executors=3, catch_up_s=120.0, stable_turns=1
    )
    decision, _ = Mst(how).decide(at, {})
    assert decision.inputs["backlog_rows"] == pytest.approx(300 * 50 - 20 * 180, rel=0.1)
    assert not (isinstance(decision, Change) and decision.plan.slots < plan.slots)


@pytest.mark.parametrize("away_s", [600.0, 8 * 3600.0])
def test_no_slope_reaches_over_a_gap(away_s: float) -> None:
    memory: dict[str, float] = {}
    at = situation_at(300.0, slots=4)
    for _ in range(5):
        _, updated = policy().decide(at, memory)
        memory = dict(updated) | {SLOPE: 2.0}  # rows/s more each second
    assert at.latest is not None
    memory[AT_S] = at.latest.end_s - away_s
    decision, _ = policy().decide(at, memory)
    assert decision.inputs["forecast_rows_per_s"] == pytest.approx(300.0, rel=0.05)
