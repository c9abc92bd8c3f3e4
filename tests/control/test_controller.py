"""Steps of the controller with a scripted engine and a fake clock: reason codes, guards, modes and failures."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.controller import Controller, Settings
from penstock.control.guards import Bounded, Cooldown, Hysteresis, PayBack
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastLatency
from penstock.control.policy import Decision, Hold, Memory, Policy, Reason, Situation
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.store import RunStart, Store, StoreReader
from tests.support.driving import drive
from tests.support.memory_engine import FakeClock
from tests.support.scripted import START, Scripted, changing, reasons, scripted_engine

# ---- reason codes of the loop


def test_nothing_is_decided_until_there_are_enough_windows(tmp_path: Path) -> None:
    clock = FakeClock()
    rows = drive(tmp_path, scripted_engine(clock), clock, changing(match=4), windows=4, warm_up_s=60.0)
    assert reasons(rows) == ["warming-up", "settling", "settling", "shortage"]


def test_warm_up_after_a_change_is_not_measured(tmp_path: Path) -> None:
    clock = FakeClock()
    rows = drive(
        tmp_path,
        scripted_engine(clock, pause_s=20.0),
        clock,
        changing(match=4),
        windows=11,
        smoothing=MovingAverage(1),
        warm_up_s=90.0,
    )
    # The first 90 s do not count. The change starts at 180 s and ends at 200 s, so windows before 290 s do not count.
    # Three windows show how much they differ by chance, so the third one after the warm-up refutes the change.
    cold = ["warming-up"] * 2
    assert reasons(rows) == [*cold, "shortage", *cold, "best", "best", "roll-back", *cold, "refuted"]
    observed = rows[2].observed
    assert observed is not None and observed.latency_s == pytest.approx(rows[7].before.latency_s)  # type: ignore[union-attr]


def test_an_engine_that_cannot_be_observed(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = scripted_engine(clock)

    def breaks() -> None:
        engine.broken = True

    rows = drive(
        tmp_path, engine, clock, changing(match=4), windows=4, smoothing=MovingAverage(3), at_window={2: breaks}
    )
    assert reasons(rows) == ["settling", "settling", "missing-metrics", "missing-metrics"]
    with StoreReader(tmp_path) as reader:
        assert {error.where for error in reader.errors()} == {"observe"}


def test_stale_windows_are_not_decided_on(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = scripted_engine(clock)
    observe = engine.observe

    def late() -> Window:
        window = observe()
        clock.sleep(300.0)  # the window is read late
        return window

    engine.observe = late  # type: ignore[method-assign]
    rows = drive(
        tmp_path, engine, clock, changing(match=4), windows=30, smoothing=MovingAverage(1), stale_after_s=120.0
    )
    assert set(reasons(rows)) == {"stale-metrics"} and engine.applied == []


def test_windows_from_before_a_gap_are_no_part_of_a_measurement(tmp_path: Path) -> None:
    """After a gap of two hours, two old windows and a new one are not three windows."""
    clock = FakeClock()
    engine = scripted_engine(clock)
    observe = engine.observe

    def lately() -> Window:
        window = observe()
        return msgspec.structs.replace(window, start_s=max(window.start_s, window.end_s - 60.0))

    engine.observe = lately  # type: ignore[method-assign]
    rows = drive(tmp_path, engine, clock, changing(match=4), windows=125, at_window={2: lambda: clock.sleep(7200.0)})
    assert reasons(rows)[:5] == ["settling", "stale-metrics", "settling", "settling", "shortage"]


def test_missing_costs_hold(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = scripted_engine(clock)
    engine.blind = True
    rows = drive(tmp_path, engine, clock, Drs(DrsSettings(goal=LeastLatency())), windows=4)
    assert reasons(rows)[-1] == "missing-metrics" and "the cost per row of 'extract'" in rows[-1].reason


def test_no_rows_arrive(tmp_path: Path) -> None:
    clock = FakeClock()
    rows = drive(tmp_path, scripted_engine(clock, rate=0.0), clock, Drs(DrsSettings(goal=LeastLatency())), windows=4)
    assert reasons(rows)[-1] == "idle"


def test_a_policy_that_raises_does_not_stop_the_loop(tmp_path: Path) -> None:
    clock = FakeClock()
    calls = itertools.count()

    def decides(situation: Situation) -> Decision:
        if next(calls) % 2:
            raise ZeroDivisionError("who divides by zero")
        return Hold(reason_code=Reason.BEST, reason="fine")

    rows = drive(tmp_path, scripted_engine(clock), clock, Scripted(decides), windows=6, smoothing=MovingAverage(1))
    assert reasons(rows) == ["best", "policy-failed"] * 3
    with StoreReader(tmp_path) as reader:
        errors = reader.errors()
        assert len(reader.windows()) == 6
    assert [error.where for error in errors] == ["policy scripted"] * 3
    assert "ZeroDivisionError: who divides by zero" in errors[0].message and errors[0].traceback is not None


@dataclass(frozen=True)
class InvalidPolicy:
    decision: Any
    memory: Any
    name: str = field(default="nonsense", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        return self.decision, self.memory


@pytest.mark.parametrize(
    "policy",
    [
        InvalidPolicy("change it", {}),
        InvalidPolicy(Hold(reason_code=Reason.BEST, reason=""), {"learned": float("nan")}),
    ],
    ids=["no decision", "cannot be kept"],
)
def test_a_policy_that_returns_nonsense(tmp_path: Path, policy: Policy) -> None:
    clock = FakeClock()
    rows = drive(tmp_path, scripted_engine(clock), clock, policy, windows=3, smoothing=MovingAverage(1))
    assert reasons(rows) == ["policy-failed"] * 3


def test_a_plan_that_is_not_valid_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = scripted_engine(clock)
    rows = drive(tmp_path, engine, clock, changing(match=0), windows=4, smoothing=MovingAverage(1))
    assert reasons(rows) == ["shortage", "refuted", "refuted", "refuted"]
    assert rows[0].applied == "failed" and "give a whole number" in (rows[0].failure or "")
    assert engine.applied == []


# ---- changes of others


def test_a_change_by_another_requester_is_detected(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = scripted_engine(clock)

    def by_hand() -> None:
        engine.apply(engine.plan.replace(replicas=engine.plan.replicas | {"extract": 6}))

    wants = changing(match=4)

    def decides(situation: Situation) -> Decision:
        if situation.plan.replicas["extract"] == 6:
            return wants.decides(situation)
        return Hold(reason_code=Reason.BEST, reason="waiting")

    policy = Cooldown(Scripted(decides), seconds=150.0)
    rows = drive(tmp_path, engine, clock, policy, windows=6, smoothing=MovingAverage(1), at_window={2: by_hand})
    # The second window belongs to the previous plan; the cooldown counts from the change.
    assert reasons(rows)[:5] == ["best", "warming-up", "cooldown", "cooldown", "shortage"]


# ---- guards


def test_each_guard_vetoes_with_its_reason(tmp_path: Path) -> None:
    wanted = changing(match=4, extract=9)
    guarded: dict[str, Policy] = {
        "out-of-bounds": Bounded(wanted, max_slots=12),
        "too-little-gain": Hysteresis(wanted, gain=0.6),
        "not-yet": Hysteresis(wanted, turns=9),
        "not-paid-back": PayBack(wanted, within_s=10.0, pause_s=30.0),
        "out-of-bounds ": Bounded(wanted, max_replicas={"extract": 8}),
    }
    for code, policy in guarded.items():
        clock = FakeClock()
        rows = drive(tmp_path / code, scripted_engine(clock), clock, policy, windows=4, smoothing=MovingAverage(1))
        assert reasons(rows) == [code.strip()] * 4
        assert rows[0].alternatives[0].replicas["extract"] == 9  # the vetoed decision is recorded
    composed = Cooldown(Bounded(PayBack(Hysteresis(wanted), within_s=3600.0), max_slots=64), seconds=300)
    clock = FakeClock()
    rows = drive(tmp_path / "all", scripted_engine(clock), clock, composed, windows=7, smoothing=MovingAverage(1))
    began_s = rows[0].at_s - 60.0  # windows of a minute; the cooldown counts from the start
    assert reasons(rows)[:4] == ["cooldown"] * 4
    assert rows[4].applied == "ok" and rows[4].at_s >= began_s + 300.0


def test_hysteresis_passes_a_change_that_is_requested_for_long_enough(tmp_path: Path) -> None:
    clock = FakeClock()
    rows = drive(
        tmp_path,
        scripted_engine(clock),
        clock,
        Hysteresis(changing(match=4), turns=3),
        windows=3,
        smoothing=MovingAverage(1),
    )
    assert reasons(rows) == ["not-yet", "not-yet", "shortage"]


def test_after_a_change_the_next_one_must_be_requested_for_as_long_again(tmp_path: Path) -> None:
    def one_more(situation: Situation) -> Decision:
        return changing(match=situation.plan.replicas["match"] + 1).decides(situation)

    clock = FakeClock()
    policy = Hysteresis(Scripted(one_more), turns=3)
    # Each change meets its expectation.
    engine = scripted_engine(clock, slower=lambda plan: 2.0 ** -plan.replicas["match"])
    rows = drive(tmp_path, engine, clock, policy, windows=6, smoothing=MovingAverage(1))
    assert reasons(rows) == ["not-yet", "not-yet", "shortage"] * 2


# ---- modes


@given(
    counts=st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(1, 3)),
    rate=st.floats(1.0, 30.0),
    goal=st.sampled_from([LeastLatency(max_slots=22), FewestSlots(max_s=1.0), FewestSlots(max_s=3.0, quantile=0.95)]),
)
@settings(max_examples=25, deadline=None)
def test_recommending_never_applies(tmp_path_factory: Any, counts: tuple, rate: float, goal: Any) -> None:
    clock = FakeClock()
    engine = scripted_engine(clock, rate=rate, counts=dict(zip(START, counts, strict=True)))
    before = engine.plan
    at = tmp_path_factory.mktemp("run")
    rows = drive(
        at, engine, clock, Drs(DrsSettings(goal=goal)), windows=5, smoothing=MovingAverage(2), mode="recommend"
    )
    assert len(rows) == 5
    assert engine.applied == [] and engine.plan == before
    assert {row.applied for row in rows} <= {None, "recommended"} and all(row.verdict is None for row in rows)
    with StoreReader(at) as reader:
        assert reader.plan_changes() == []


def test_off_decides_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    assert drive(tmp_path, scripted_engine(clock), clock, changing(match=4), windows=3, mode="off") == []


# ---- across restarts


def test_a_resumed_run_remembers_its_changes_and_what_it_learned(tmp_path: Path) -> None:
    clock = FakeClock()
    policy = Cooldown(Drs(DrsSettings(goal=LeastLatency(max_slots=8))), seconds=3600.0)
    drive(tmp_path, scripted_engine(clock, slower=lambda plan: 2.0), clock, policy, windows=6)
    engine = scripted_engine(clock, slower=lambda plan: 2.0)
    rows = drive(tmp_path, engine, clock, policy, windows=6)
    again = rows[6:]
    assert reasons(again)[-1] == "cooldown"
    assert again[0].memory["drs.correction"] == pytest.approx(2.0, rel=0.01)


def test_a_decision_is_recorded_before_it_is_applied(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = scripted_engine(clock)

    def killed(plan: Plan) -> Any:
        with StoreReader(tmp_path) as reader:
            ((_, row),) = reader.decisions(last=1)
        assert (row.kind, row.applied, row.new) == ("change", "begun", plan)
        raise KeyboardInterrupt

    engine.apply = killed  # type: ignore[method-assign]
    with Store(tmp_path) as store:
        store.begin_run(RunStart(dataflow="video", flow_file="flow.py", pid=1, master="fake", started_s=1000.0))
        engine.start()
        chosen = Settings(mode="active", smoothing=MovingAverage(1), warm_up_s=0.0)
        controller = Controller(changing(match=4), chosen, engine, store)
        clock.sleep(60.0)
        with pytest.raises(KeyboardInterrupt):
            controller.decide(engine.observe(), number=1, at_s=clock.time())
        ((_, row),) = store.decisions()
    assert row.applied == "begun" and row.verdict is None
