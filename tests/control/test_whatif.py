"""A recorded run under another plan, load or limit, compared with closed forms and with direct simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.api.policy_options import OptionError
from penstock.cli.main import cli
from penstock.control.loop import Loop
from penstock.control.whatif import Planned, WhatIf, recording_of, what_if
from penstock.dataflow import Dataflow
from penstock.engines.simulated import Behaviour, Exponential, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.models.queueing import MMk
from penstock.plan import Plan, default_plan
from penstock.store import LatencyTarget, RunStart, Store, StoreReader

SERVICE_PER_S = 10.0


def flow() -> Dataflow:
    subject = Dataflow("one")
    rows = subject.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))
    rows.keyed("work", lambda frame: frame, keys=["n"]).sink("out", penstock.noop())
    return subject


def plan(replicas: int, slots: int = 8) -> Plan:
    return default_plan(flow(), slots=slots, replicas={"work": replicas})


def behaviour(rate: float) -> Behaviour:
    return Behaviour(
        operators={"work": OperatorBehaviour(service_s=Exponential(mean=1.0 / SERVICE_PER_S))},
        sources={"rows": SourceBehaviour(rates=((0.0, rate),))},
        batch=SimulatedBatchCosts(batch_s=0.4, task_s=0.02, target_s=10.0),
    )


def record(
    at: Path,
    *,
    rate: float,
    replicas: int,
    mode: str,
    windows: int = 240,
    target_s: float = 0.5,
    slots_per_executor: int | None = None,
) -> None:
    engine = SimulatedEngine(flow(), behaviour(rate), plan=plan(replicas), mode=mode, seed=3)
    with Store(at) as store:
        start = RunStart(
            dataflow="one",
            kind="simulation",
            flow_file="-",
            pid=1,
            master="-",
            started_s=0.0,
            latency_target=LatencyTarget(seconds=target_s),
            slots_per_executor=slots_per_executor,
        )
        store.begin_run(start)
        engine.start()
        store.run_started(engine.plan, ())
        loop = Loop(engine=engine, store=store, clock=engine.clock)
        for _ in range(windows):
            engine.clock.sleep(5.0)
            loop.turn()


def answer(at: Path, planned: Plan, rate: float = 1.0) -> WhatIf:
    with StoreReader(at) as reader:
        recording = recording_of(reader, flow())
    return what_if(recording, Planned(((0.0, planned),)), question="?", rate=rate, seed=11)


@pytest.mark.parametrize(("replicas", "factor"), [(2, 1.5), (1, 0.5), (3, 2.0)])
def test_row_by_row_the_interval_contains_the_closed_form(tmp_path: Path, replicas: int, factor: float) -> None:
    """Recorded: 10 rows/s on two replicas of 10 rows/s. Asked: other rates and replicas, which are M/M/k as well."""
    record(tmp_path, rate=10.0, replicas=2, mode="row-by-row", windows=480)
    result = answer(tmp_path, plan(replicas), factor)
    recorded = MMk(arrival_per_s=10.0, service_per_s=SERVICE_PER_S).mean_s(2)
    expected = MMk(arrival_per_s=10.0 * factor, service_per_s=SERVICE_PER_S).mean_s(replicas)
    assert result.actual.latency is not None and result.actual.latency.value == pytest.approx(recorded, rel=0.1)
    latency = result.answer.latency
    assert latency is not None and latency.high is not None and latency.low <= expected <= latency.high
    assert latency.high < 4 * expected  # an interval that contains everything says nothing
    hours = 40 * 60 / 3600
    assert result.answer.slot_hours.value == pytest.approx(replicas * hours, rel=0.01)


def test_in_micro_batches_the_interval_contains_a_direct_simulation(tmp_path: Path) -> None:
    record(tmp_path / "run", rate=20.0, replicas=4, mode="micro-batch")
    record(tmp_path / "other", rate=30.0, replicas=5, mode="micro-batch")
    result = answer(tmp_path / "run", plan(5), 1.5)
    other = answer(tmp_path / "other", plan(5)).actual.latency
    latency = result.answer.latency
    assert other is not None and other.value is not None and latency is not None and latency.high is not None
    assert 0.9 * latency.low <= other.value <= 1.1 * latency.high


def test_late_windows_follow_from_an_overload(tmp_path: Path) -> None:
    record(tmp_path, rate=10.0, replicas=2, mode="row-by-row", windows=120)
    result = answer(tmp_path, plan(1), 1.5)  # 15 rows/s arrive and 10 are processed: the backlog grows from the start
    assert result.answer.late is not None and result.actual.late is not None
    assert result.answer.late.low > 0.9 and result.actual.late.value is not None and result.actual.late.value < 0.1


def test_without_a_change_the_record_is_reproduced(tmp_path: Path) -> None:
    record(tmp_path, rate=10.0, replicas=2, mode="row-by-row")
    result = answer(tmp_path, plan(2))
    latency = result.actual.latency
    assert latency is not None and latency.value is not None
    assert result.answer.latency is not None and result.answer.latency.high is not None
    assert result.answer.latency.low <= latency.value <= result.answer.latency.high
    assert result.actual.slot_hours == result.reproduced.slot_hours
    assert result.correction == pytest.approx(1.0, abs=0.15)


def test_time_in_which_the_run_was_stopped_is_left_out(tmp_path: Path) -> None:
    record(tmp_path, rate=10.0, replicas=2, mode="row-by-row", windows=60)
    with Store(tmp_path) as store:
        start = RunStart(dataflow="one", kind="simulation", flow_file="-", pid=1, master="-", started_s=9_000.0)
        store.begin_run(start)
        store.run_started(plan(2), ())
        engine = SimulatedEngine(flow(), behaviour(10.0), plan=plan(2), seed=4, epoch_s=9_000.0)
        engine.start()
        loop = Loop(engine=engine, store=store, clock=engine.clock)
        for _ in range(60):
            engine.clock.sleep(5.0)
            loop.turn()
    assert answer(tmp_path, plan(2)).seconds == pytest.approx(600.0)


@pytest.mark.long
def test_the_policy_chooses_plans_within_the_limit(tmp_path: Path) -> None:
    record(tmp_path, rate=20.0, replicas=8, mode="row-by-row", windows=240)
    result = penstock.whatif(tmp_path, max_slots=6, flow=flow())
    assert result.answer.changes >= 1 and result.last_plan.replicas["work"] <= 5
    assert result.answer.slot_hours.value is not None and result.actual.slot_hours.value is not None
    assert result.answer.slot_hours.value < result.actual.slot_hours.value
    assert result.answer.late is not None and result.answer.late.value is not None and result.answer.late.value < 0.1


@pytest.mark.long
def test_a_limit_above_the_recorded_slots_is_used(tmp_path: Path) -> None:
    """20 rows/s on 8 slots; at five times the load, 100 rows/s of 0.1 s each keep more than ten replicas busy."""
    record(tmp_path, rate=20.0, replicas=3, mode="row-by-row", windows=120)
    result = penstock.whatif(tmp_path, rate=5.0, max_slots=32, flow=flow())
    assert 11 <= result.last_plan.replicas["work"] <= 31
    assert result.answer.late is not None and result.answer.late.value is not None and result.answer.late.value < 0.5
    hours = 120 * 5.0 / 3600
    assert result.answer.slot_hours.value is not None and 10 * hours < result.answer.slot_hours.value < 32 * hours


@pytest.mark.long
@pytest.mark.parametrize("limit", [{"max_slots": 7}, {"executors": (1, 3)}])
def test_the_policy_chooses_the_number_of_executors_that_is_paid(tmp_path: Path, limit: dict[str, Any]) -> None:
    """The run had 4 executors of 2 slots; 10 rows/s of 0.1 s each need two replicas."""
    record(tmp_path, rate=10.0, replicas=7, mode="row-by-row", windows=120, slots_per_executor=2)
    result = penstock.whatif(tmp_path, flow=flow(), **limit)
    hours = 120 * 5.0 / 3600
    assert result.actual.slot_hours.value == pytest.approx(8 * hours, rel=0.01)
    assert result.last_plan.slots in (2, 4, 6)
    assert result.answer.slot_hours.value is not None and result.answer.slot_hours.value < 7 * hours


def test_limits_that_the_run_cannot_have_are_refused(tmp_path: Path) -> None:
    record(tmp_path / "local", rate=10.0, replicas=2, mode="row-by-row", windows=8)
    with pytest.raises(OptionError, match="has no executors whose number could change; give max_slots"):
        penstock.whatif(tmp_path / "local", executors=(1, 4), flow=flow())
    record(tmp_path / "cluster", rate=10.0, replicas=2, mode="row-by-row", windows=8, slots_per_executor=4)
    with pytest.raises(OptionError, match="max_slots is 3, but one executor of the run has 4 slots"):
        penstock.whatif(tmp_path / "cluster", max_slots=3, flow=flow())


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    record(tmp_path, rate=10.0, replicas=2, mode="row-by-row", windows=8)
    with pytest.raises(OptionError, match="names no file of its dataflow"):
        penstock.whatif(tmp_path)
    with pytest.raises(OptionError, match="a limit for policy 'auto'"):
        penstock.whatif(tmp_path, plan=plan(2), max_slots=4, flow=flow())
    with pytest.raises(OptionError, match="rate is 0"):
        penstock.whatif(tmp_path, rate=0.0, flow=flow())


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    record(tmp_path / "run", rate=10.0, replicas=2, mode="row-by-row", windows=60)
    (tmp_path / "flow.py").write_text(
        'import penstock\nflow = penstock.Dataflow("one")\n'
        'rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))\n'
        'rows.keyed("work", lambda frame: frame, keys=["n"]).sink("out", penstock.noop())\n'
    )
    words = ["whatif", str(tmp_path / "run"), "--flow", f"{tmp_path}/flow.py", "--rate", "1.5x"]
    printed = CliRunner().invoke(cli, [*words, "--price", "0.1"])
    assert printed.exit_code == 0, printed.output
    assert "recorded" in printed.output and "what if" in printed.output and "above 500 ms" in printed.output
    values = json.loads(CliRunner().invoke(cli, [*words, "--json"]).output)
    assert values["answer"]["latency"]["low"] <= values["answer"]["latency"]["value"]
    refused = CliRunner().invoke(cli, ["whatif", str(tmp_path / "run"), "--rate", "fast"])
    assert refused.exit_code == 2 and "'fast' is not a factor above 0" in refused.output
