"""Policy auto on generated dataflows in simulation, and under faults."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.api.policy_options import PolicyOptions, controller_settings, create_policy
from penstock.control.arena.cases import WINDOW_S, Case, Cell
from penstock.control.arena.fixed_plans import window_latency_s
from penstock.control.controller import Controller
from penstock.control.loop import Loop
from penstock.dataflow import PenstockError
from penstock.engines.ports import Applied
from penstock.engines.simulated import SimulatedEngine
from penstock.engines.simulated.source_load import operator_distributions
from penstock.plan import Plan
from penstock.store import DecisionRecord, RunStart, Store

pytestmark = pytest.mark.long

FIXED_SLOTS = 15  # the cheapest fixed plan of this case in hindsight, by `benchmarks/auto.py`
TARGET_S = 3.7


def case(load: str = "flat", engine: str = "micro-batch") -> Case:
    return Case(cell=Cell(shape="chain", load=load, engine=engine, seed=1))


class Run:
    """A simulated run under policy auto that can be stopped and resumed."""

    def __init__(self, at: Path, subject: Case, engine: SimulatedEngine, **options: float | int | None) -> None:
        given: dict[str, float | int | None] = {"latency_s": TARGET_S, "max_slots": subject.slots} | options
        self.options = PolicyOptions(policy="auto", mode="active", micro_batch=subject.micro_batch, **given)  # type: ignore[arg-type]
        self.at, self.subject, self.engine = at, subject, engine
        self.late: list[bool] = []
        engine.start()

    def go(self, windows: int) -> list[DecisionRecord]:
        """Take turns and return their decisions; each call is a restart of the controller."""
        with Store(self.at) as store:
            before = len(store.decisions())
            store.begin_run(RunStart(dataflow="chain", flow_file="-", pid=1, master="-", started_s=0.0))
            settings = controller_settings(self.options, window_s=WINDOW_S, micro_batch=self.subject.micro_batch)
            controller = Controller(create_policy(self.options), settings, self.engine, store)
            loop = Loop(engine=self.engine, store=store, controller=controller, clock=self.engine.clock)
            loop.on_window = lambda window, plan: self.late.append(window_latency_s(window) > TARGET_S)
            for _ in range(windows):
                self.engine.clock.sleep(WINDOW_S)
                loop.turn()
            assert not [error for error in store.errors() if error.where.startswith("policy")]
            rows = [row for _, row in store.decisions()][before:]
            assert all(_is_consistent(row) for row in changes(rows))
            return rows

    @property
    def slots(self) -> int:
        return self.subject.topology.slots(self.engine.plan, micro_batch=self.subject.micro_batch)


def _is_consistent(row: DecisionRecord) -> bool:
    """Return whether a change expects to meet the target, or says that no plan does."""
    expected = row.expected
    if expected is None or expected.at_most_s is None or expected.latency_s is None:
        return True
    return (
        expected.latency_s <= expected.at_most_s
        or "no plan meets the target" in row.reason
        or "cannot process" in row.reason
    )


def changes(rows: list[DecisionRecord]) -> list[DecisionRecord]:
    return [row for row in rows if row.applied == "ok"]


def test_a_constant_load_gets_about_the_cheapest_plan_and_keeps_it(tmp_path: Path) -> None:
    subject = case()
    run = Run(tmp_path, subject, subject.engine(subject.first_plan))
    first, later = run.go(90), run.go(270)
    assert changes(first) and run.slots <= 1.1 * FIXED_SLOTS
    assert len(changes(later)) <= 1
    assert sum(run.late[60:]) <= 0.01 * len(run.late[60:])


def test_a_restart_during_an_evaluation_changes_nothing(tmp_path: Path) -> None:
    """The run stops soon after the first change. The resumed one judges it, and keeps the plan and the costs."""
    subject = case()
    run = Run(tmp_path, subject, subject.engine(subject.first_plan))
    rows: list[DecisionRecord] = []
    while not changes(rows):
        rows += run.go(6)
        assert len(rows) < 100
    assert [row.verdict for row in changes(rows)] == [None]
    plan = run.engine.plan
    run.go(30)
    with Store(tmp_path) as store:
        judged = [row for _, row in store.applied_changes() if row.verdict is not None]
    assert judged and judged[0].verdict == "kept"
    assert run.engine.plan == plan


def test_an_engine_that_fails_every_second_change_still_gets_enough_slots(tmp_path: Path) -> None:
    subject = case("step")
    engine = _Flaky(subject)
    run = Run(tmp_path, subject, engine)
    run.go(300)  # the load doubles after 2400 s
    assert engine.failed >= 1
    assert run.slots >= 12
    assert sum(run.late[-30:]) == 0


class _Flaky(SimulatedEngine):
    def __init__(self, subject: Case) -> None:
        self.attempts = self.failed = 0
        super().__init__(
            subject.dataflow.flow, subject.behaviour, plan=subject.first_plan, mode=subject.cell.engine, seed=5
        )

    def apply(self, plan: Plan) -> Applied:
        self.attempts += 1
        if self.attempts % 2:
            self.failed += 1
            raise PenstockError("no executor answered")
        return super().apply(plan)


def test_costs_that_drift_are_followed(tmp_path: Path) -> None:
    """The cost of a row rises by 40 % after an hour, so the plan that was right becomes too small."""
    subject = case()
    run = Run(tmp_path, subject, subject.engine(subject.first_plan))
    run.go(120)
    before = run.slots
    _scale_costs(run.engine, 1.4)
    run.go(120)
    assert run.slots >= 1.3 * before
    assert sum(run.late[-30:]) <= 1


def _scale_costs(engine: SimulatedEngine, factor: float) -> None:
    """Change the service times of the running simulation."""
    from penstock.engines.simulated.compiled.draws import new_draws

    operators = {
        name: msgspec.structs.replace(
            own, service_s=msgspec.structs.replace(own.service_s, mean=factor * own.service_s.mean)
        )
        for name, own in engine.behaviour.operators.items()
    }
    scaled = operator_distributions(engine.flow, engine.behaviour.replace(operators=operators))
    draws = new_draws(scaled, seed=0, streams=3 * len(engine.flow.operators))
    engine.simulation._draws.distributions[:] = draws.distributions  # type: ignore[attr-defined]


def test_missing_and_stale_metrics_change_nothing(tmp_path: Path) -> None:
    subject = case("step")
    engine = _Blind(subject)
    run = Run(tmp_path, subject, engine)
    run.go(60)
    plan = engine.plan
    engine.is_blind = True
    with Store(tmp_path) as store:
        settings = controller_settings(run.options, window_s=WINDOW_S, micro_batch=True)
        controller = Controller(create_policy(run.options), settings, engine, store)
        loop = Loop(
            engine=engine, store=store, controller=controller, clock=engine.clock, survives_failed_observation=True
        )
        store.begin_run(RunStart(dataflow="chain", flow_file="-", pid=1, master="-", started_s=0.0))
        for _ in range(20):
            engine.clock.sleep(WINDOW_S)
            loop.turn()
            assert loop.decision is not None and loop.decision.reason_code == "missing-metrics"
    assert engine.plan == plan


class _Blind(SimulatedEngine):
    is_blind = False

    def __init__(self, subject: Case) -> None:
        super().__init__(
            subject.dataflow.flow, subject.behaviour, plan=subject.first_plan, mode=subject.cell.engine, seed=5
        )

    def observe(self):  # type: ignore[no-untyped-def]
        if self.is_blind:
            raise PenstockError("no metrics")
        return super().observe()


@pytest.mark.parametrize("jump_s", [-4000.0, 4000.0])
def test_a_clock_that_jumps_does_not_change_the_plan_or_stop_the_decisions(tmp_path: Path, jump_s: float) -> None:
    subject = case()
    run = Run(tmp_path, subject, subject.engine(subject.first_plan))
    run.go(90)
    plan = run.engine.plan
    run.engine.epoch_s += jump_s
    run.engine.clock = _Jumped(run.engine.clock, jump_s)  # type: ignore[assignment]
    rows = run.go(60)
    assert run.engine.plan == plan
    assert {row.reason_code for row in rows[-20:]} == {"within-target"}


class _Jumped:
    def __init__(self, clock: object, by_s: float) -> None:
        self._clock, self._by_s = clock, by_s

    def time(self) -> float:
        return self._clock.time() + self._by_s  # type: ignore[attr-defined]

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "code"),
    [({"max_slots": 5}, "at-limit"), ({"latency_s": 0.05}, "at-limit"), ({"latency_s": None}, "best")],
)
def test_what_cannot_be_met_is_explained(tmp_path: Path, options: dict[str, float | None], code: str) -> None:
    subject = case()
    run = Run(tmp_path, subject, subject.engine(subject.first_plan), **options)
    rows = run.go(40)
    explained = [row for row in rows if row.reason_code == code]
    assert explained
    if options.get("max_slots"):
        needs = explained[-1].needs_slots
        assert needs is not None and 12 <= needs <= 20  # 11.3 replicas are busy
        assert run.slots == 5
