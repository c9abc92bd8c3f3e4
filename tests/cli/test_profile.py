"""`penstock profile`: the table of rounds, JSON, and the plan for `penstock run --plan`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import penstock
from penstock.cli.main import cli
from penstock.store import Store
from tests.support.terminal_screen import Screen, output_in_terminal

FLOW = """
import penstock
flow = penstock.Dataflow("two")
rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))
rows.keyed("work", lambda df: df, keys=["n"]).keyed("write", lambda df: df, keys=["m"]).sink("out", penstock.noop())
"""


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "two.py").write_text(FLOW)
    seconds = {"work": 0.01, "write": 0.004}
    operators = {name: {"service_s": {"kind": "exponential", "mean": mean}} for name, mean in seconds.items()}
    (tmp_path / "costs.json").write_text(json.dumps({"operators": operators}))
    at = tmp_path / "study"
    return ["profile", f"{tmp_path}/two.py", "--behaviour", f"{tmp_path}/costs.json", "--at", str(at), "--slots", "4"]


def invoked(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli, list(words))


def test_the_table_has_one_row_per_round_and_the_plan_is_a_file(given: list[str], tmp_path: Path) -> None:
    result = invoked(*given, "--latency-ms", "400")
    assert result.exit_code == 0, result.output
    plan_file = tmp_path / "study" / "plan.json"
    assert f"penstock run {tmp_path}/two.py --plan {plan_file}" in result.output
    assert "best plan: " in result.output and "400 ms" in result.output
    assert "proportional" in result.output and "first, kept" in result.output
    plan = penstock.Plan.from_json(plan_file.read_bytes())
    assert plan.slots == 4
    shown = json.loads(invoked(*given, "--latency-ms", "400", "--json").output)
    assert shown["plan"]["replicas"] == plan.replicas
    assert [row["number"] for row in shown["rounds"]] == list(range(1, len(shown["rounds"]) + 1))
    for row in shown["rounds"]:
        assert row["low_rows_per_s"] <= row["rows_per_s"] <= row["high_rows_per_s"]
        assert row["verdict"] in (None, "better", "worse", "no difference", "target missed")


@pytest.mark.long
def test_declared_types_and_the_second_engine(given: list[str]) -> None:
    words = [*given, "--engine", "micro-batch", "--latency-ms", "2000", "--type", "work=logic-dependent", "--json"]
    result = invoked(*words)
    assert result.exit_code == 0, result.output
    types = {row["operator"]: row["type"] for row in json.loads(result.output)["operators"]}
    assert types["work"] == "logic-dependent"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--type", "work"], "--type 'work' is not of the form NAME=VALUE"),
        (["--slice", "0"], "0"),
        (["--k", "0.5"], "0.5"),
        (["--alpha", "nan"], "nan"),
        (["--engine", "fluid"], "fluid"),
        (["--like", "runs/x"], "either behaviour"),
    ],
)
def test_invalid_options(given: list[str], words: list[str], message: str) -> None:
    result = invoked(*given, *words)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.long
def test_the_directory_of_a_run_is_refused(given: list[str], tmp_path: Path) -> None:
    with Store(tmp_path / "study"):
        pass  # an empty store is accepted
    assert invoked(*given).exit_code == 0
    changed = invoked(*given, "--alpha", "0.8")
    assert changed.exit_code == 1
    assert "alpha 0.9 instead of 0.8" in str(changed.exception)


@pytest.mark.long
def test_several_platforms_are_compared(given: list[str], tmp_path: Path) -> None:
    words = [*given[:-1], "1,4", "--latency-ms", "1000", "--rate", "30"]
    result = invoked(*words)
    assert result.exit_code == 0, result.output
    # 14 ms per row on one slot: 71 rows/s.
    assert "30 rows/s within 1,000 ms need 1 slot" in result.output
    shown = json.loads(invoked(*words, "--json").output)
    assert [point["count"] for point in shown["points"]] == [1, 4]
    assert (tmp_path / "study" / "slots-4" / "plan.json").exists()


def test_the_schema_of_the_result_is_known() -> None:
    assert "Profile" in json.dumps(penstock.schema("profile"))


@pytest.mark.long
def test_costs_come_from_a_run(given: list[str], tmp_path: Path) -> None:
    run, trace = tmp_path / "run", tmp_path / "trace.csv"
    trace.write_text("time_s,rate\n0,20\n60,20\n120,20\n")
    penstock.simulate(
        given[1], trace=trace, policy="threshold", mode="off", behaviour=tmp_path / "costs.json", slots=4, at=run
    )
    words = ["profile", given[1], "--like", str(run), "--slots", "4", "--at", str(tmp_path / "like"), "--json"]
    result = invoked(*words)
    assert result.exit_code == 0, result.output
    operators = {row["operator"]: row["min_latency_s"] for row in json.loads(result.output)["operators"]}
    # About 3,600 rows were measured, and the minimal latency is a low quantile.
    assert operators["work"] == pytest.approx(0.01, rel=0.2)
    assert operators["write"] == pytest.approx(0.004, rel=0.2)


@pytest.mark.long
def test_the_live_table_shows_the_rounds_and_the_progress(given: list[str]) -> None:
    output = output_in_terminal([sys.executable, "-m", "penstock.cli", *given], width=300, height=60)
    screen = Screen(width=300, height=60)
    screen.write(output)
    assert "round 1 of at most 40" in output
    assert any(line.startswith("best plan: ") for line in screen.lines)
    assert not any("of at most 40" in line for line in screen.lines)  # the live table has disappeared
