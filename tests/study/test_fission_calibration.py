"""The calibration finds the costs that the simulated threads have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock
from penstock.apps import joker
from penstock.cli.main import cli
from penstock.engines.simulated import ThreadCosts

UNIT_S = 1e-4


def test_the_costs_of_simulated_threads_are_found() -> None:
    flow = joker.four_operators(work=25, rows_per_s=1.0)
    thread = ThreadCosts(row_s=20 * UNIT_S, replica_s=7 * UNIT_S, queue_rows=50)
    behaviour = joker.behaviour(flow, multiplication_s=UNIT_S, rows_per_s=1.0, thread=thread)
    result = penstock.calibrate(flow, slots=8, behaviour=behaviour)
    assert result.costs.thread_s == pytest.approx(20 * UNIT_S, rel=0.02)
    assert result.costs.replica_s == pytest.approx(7 * UNIT_S, rel=0.03)
    assert [trial.replicas for trial in result.trials] == [1, 2, 4]
    assert [trial.work_s for trial in result.trials] == pytest.approx([100 * UNIT_S] * 3, rel=0.01)
    assert result.largest_error < 0.01


def test_the_slowest_region_is_used() -> None:
    flow = joker.costly_and_cheap(work=80, rows_per_s=1.0)
    thread = ThreadCosts(row_s=10 * UNIT_S, queue_rows=50)
    behaviour = joker.behaviour(flow, multiplication_s=UNIT_S, rows_per_s=1.0, thread=thread)
    result = penstock.calibrate(flow, slots=8, behaviour=behaviour)
    assert [trial.work_s for trial in result.trials] == pytest.approx([80 * UNIT_S] * 3, rel=0.01)
    assert result.costs.thread_s == pytest.approx(10 * UNIT_S, rel=0.02)


def test_in_batches_the_fixed_time_is_part_of_the_costs(tmp_path: Path) -> None:
    flow = joker.one_operator(rows_per_s=1.0)
    file = tmp_path / "costs.json"
    behaviour = joker.behaviour(flow, multiplication_s=UNIT_S, rows_per_s=1.0, thread=ThreadCosts())
    file.write_text(behaviour.to_json())
    options = ["--engine", "micro-batch", "--behaviour", str(file), "--slots", "4", "--json"]
    answer = CliRunner().invoke(cli, ["calibrate", "penstock.apps.joker:one_operator", *options])
    assert answer.exit_code == 0, answer.output
    result = json.loads(answer.output)
    assert 0.0 < result["costs"]["thread_s"] < 0.01


@pytest.mark.parametrize("replicas", [(), (2,), (2, 2), (0, 1)])
def test_one_number_of_replicas_is_too_few(replicas: tuple[int, ...]) -> None:
    flow = joker.one_operator(work=100, rows_per_s=1.0)
    behaviour = joker.behaviour(flow, rows_per_s=1.0)
    with pytest.raises(penstock.PenstockError, match="give at least two different numbers"):
        penstock.calibrate(flow, slots=4, replicas=replicas, behaviour=behaviour)
