"""Predicted and observed values: closed forms of the latency, the file beside a plan, and a simulated run."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.main import cli
from penstock.dataflow import Dataflow
from penstock.dataflow.errors import PlanError
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SourceBehaviour
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.plan import Plan
from penstock.planning.batch_latency import steady_batch_s
from penstock.planning.plan_prediction import PlanPrediction, prediction_file

RATE, PARSED_PER_S = 60.0, 100.0
CURVES = {"parse": {"1": {"rows_per_s": PARSED_PER_S, "cpu": 80, "memory": 20}}}
# One query with 0.1 s per batch and 60 % of its time for rows: batches of 0.1 / 0.4 s, and 1.5 times that per row.
LATENCY_S = 1.5 * 0.1 / (1 - RATE / PARSED_PER_S)


def shop() -> Dataflow:
    flow = penstock.Dataflow("shop")
    events = flow.source("events", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=RATE))
    events.global_state("parse", lambda df: df.groupBy().count()).sink("out", penstock.noop())
    return flow


def allocated(folder: Path) -> Path:
    (folder / "curves.json").write_text(json.dumps(CURVES))
    report = penstock.allocate(shop(), rate=RATE, curves=folder, plan=folder / "plan.json")
    assert report.plan_latency_s == pytest.approx(LATENCY_S)
    return folder / "plan.json"


def simulated(folder: Path, plan: Path | Plan) -> penstock.RunRecord:
    trace = folder / "trace.csv"
    trace.write_text(f"time_s,rate\n0,{RATE}\n150,{RATE}\n")
    penstock.simulate(
        shop(),
        trace=trace,
        plan=plan,
        behaviour=Behaviour(
            operators={"parse": OperatorBehaviour(service_s=Fixed(value=1 / PARSED_PER_S))},
            sources={"events": SourceBehaviour(interarrival=Fixed(value=1.0))},
            batch=SimulatedBatchCosts(batch_s=0.1, task_s=0.0),
        ),
        policy="ds2",
        mode="off",
        engine="micro-batch",
        at=folder / "run",
    )
    return penstock.open_run(folder / "run")


def test_a_batch_lasts_at_least_as_long_as_a_call() -> None:
    # 40 rows/s in 60 calls of 1.5 s: below the peak rate, a batch has too few rows to fill the threads.
    assert steady_batch_s(0.1, [(0.5, 1.5)]) == pytest.approx(1.6)
    # Near the peak rate the rows take longer than a call: D = 0.1 + 0.95 D.
    assert steady_batch_s(0.1, [(0.95, 1.5)]) == pytest.approx(2.0)
    # Two operators, of which one waits for its call: D = 0.1 + 0.5 D + 0.2.
    assert steady_batch_s(0.1, [(0.5, 0.0), (0.1, 0.2)]) == pytest.approx(0.6)


def test_a_simulated_run_shows_the_prediction_beside_what_was_observed(tmp_path: Path) -> None:
    record = simulated(tmp_path, allocated(tmp_path))
    values = {value.quantity: value for value in record.status().predicted}
    processed, latency = values["rows/s processed"], values["mean latency"]
    assert (processed.predicted, processed.observed) == (RATE, pytest.approx(RATE, rel=0.02))
    assert latency.predicted == pytest.approx(LATENCY_S)
    assert latency.observed == pytest.approx(LATENCY_S, rel=0.1)
    assert values["CPU, slots without a group"].predicted == pytest.approx(80 * RATE / PARSED_PER_S)
    assert record.report_data().predicted == record.status().predicted
    printed = CliRunner().invoke(cli, ["status", str(record.directory)], env={"COLUMNS": "200"}).output
    assert "prediction for this plan" in printed and "mean latency" in printed and "375 ms" in printed
    page = tmp_path / "page.html"
    made = CliRunner().invoke(cli, ["report", str(record.directory), "--output", str(page)])
    assert made.exit_code == 0, made.output
    assert "Predicted and observed values" in page.read_text()


def test_a_changed_plan_has_no_prediction(tmp_path: Path) -> None:
    file = allocated(tmp_path)
    plan = Plan.from_json(file.read_text())
    file.write_text(plan.replace(slots=plan.slots + 1).to_json())
    assert simulated(tmp_path, file).status().predicted == ()


def test_a_plan_as_a_value_has_no_prediction(tmp_path: Path) -> None:
    plan = Plan.from_json(allocated(tmp_path).read_text())
    assert simulated(tmp_path, plan).status().predicted == ()


def test_a_prediction_is_for_one_plan_with_any_slots(tmp_path: Path) -> None:
    prediction = PlanPrediction.from_json(prediction_file(allocated(tmp_path)).read_text())
    assert msgspec.json.decode(msgspec.json.encode(prediction), type=PlanPrediction) == prediction
    assert prediction.is_for(prediction.plan.replace(slots=9))
    assert not prediction.is_for(prediction.plan.replace(replicas={"parse": 2}))


def test_a_file_that_is_no_prediction_is_refused(tmp_path: Path) -> None:
    file = allocated(tmp_path)
    prediction_file(file).write_text("{}")
    with pytest.raises(PlanError, match=r"plan\.prediction\.json: .*You can delete this file"):
        simulated(tmp_path, file)
