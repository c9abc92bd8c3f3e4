"""`penstock run --policy` and `penstock decisions`, on the engine in memory and on a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastLatency
from penstock.store import Store
from tests.support.applications import mean_s, plan_of, video
from tests.support.double_flow import DOUBLE_FLOW as FLOW
from tests.support.driving import drive
from tests.support.memory_engine import FakeClock
from tests.support.penstock_in_memory import stand_in
from tests.support.queueing_engine import QueueingEngine


def printed(*arguments: object) -> str:
    result = CliRunner().invoke(cli, list(map(str, arguments)), env={"COLUMNS": "400"})
    assert result.exception is None, result.output
    return result.output


def decided(at: Path, mode: str) -> QueueingEngine:
    flow, clock = video(), FakeClock()
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 4, "match": 2, "aggregate": 1}, slots=7),
        clock=clock,
        rate=lambda _: 6.0,
        service_per_s={"extract": 5.0, "match": 4.5, "aggregate": 1000.0},
    )
    drive(at, engine, clock, Drs(DrsSettings(goal=LeastLatency())), windows=8, mode=mode)
    return engine


def test_a_decision_is_shown_with_its_reason_expectation_and_observation(tmp_path: Path) -> None:
    decided(tmp_path, "active")
    text = printed("decisions", tmp_path)
    assert "hold (2 times)" in text and "settling" in text
    assert "extract: 4 -> 3 replicas, match: 2 -> 3 replicas" in text and "reallocation" in text and "kept" in text
    rows = json.loads(printed("decisions", tmp_path, "--changes", "--json"))
    assert [row["reason_code"] for row in rows] == ["reallocation"]
    (row,) = rows
    assert row["expected"]["latency_s"] == pytest.approx(row["observed"]["latency_s"], rel=0.05)
    assert row["binding"] == "match" and row["inputs"]["external_rows_per_s"] == 6.0
    assert [alternative["reason"] for alternative in row["alternatives"]]
    assert len(json.loads(printed("decisions", tmp_path, "--last", "3", "--json"))) == 3
    assert len(json.loads(printed("decisions", tmp_path, "--changes", "--last", "1", "--json"))) == 1


@pytest.mark.parametrize("columns", ["80", "400"])
def test_missing_slots_are_shown(tmp_path: Path, columns: str) -> None:
    """The expected slots are the fewest that keep 6 rows/s within 0.45 s, by brute force over M/M/k; there are 7."""
    flow, clock = video(), FakeClock()
    service = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
    every = product(range(2, 12), range(2, 12), [1])
    visits = dict.fromkeys(service, 1.0)
    needs = min(
        sum(counts) for counts in every if mean_s(visits, 6.0, service, dict(zip(service, counts, strict=True))) <= 0.45
    )
    start = plan_of(flow, {"extract": 3, "match": 3, "aggregate": 1}, slots=7)
    engine = QueueingEngine(flow, start, clock=clock, rate=lambda _: 6.0, service_per_s=service)
    drive(tmp_path, engine, clock, Drs(DrsSettings(goal=FewestSlots(max_s=0.45))), windows=4)
    result = CliRunner().invoke(cli, ["decisions", str(tmp_path)], env={"COLUMNS": columns})
    assert f"[needs {needs} slots]" in " ".join(result.output.split())


def test_recommendations_repeat_in_one_line(tmp_path: Path) -> None:
    engine = decided(tmp_path, "recommend")
    assert engine.applied == []
    assert "replicas (6 times)" in printed("decisions", tmp_path) and "recommended" in printed("decisions", tmp_path)


def test_a_run_without_a_policy_has_none(tmp_path: Path) -> None:
    Store(tmp_path).close()
    assert "The run has no decisions" in printed("decisions", tmp_path)
    assert json.loads(printed("decisions", tmp_path, "--json")) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--policy", "drs"], "requires a latency target, a limit, or both"),
        (["--policy", "ds2", "--latency-ms", "100"], "has no latency target"),
        (["--quantile", "0.95"], "choose a policy, or give a latency target"),
        (["--policy", "drs", "--max-slots", "4", "--quantile", "0.95"], "require a latency target"),
    ],
)
def test_options_that_do_not_fit(options: list[str], says: str) -> None:
    result = CliRunner().invoke(cli, ["run", "flow.py", *options], env={"COLUMNS": "400"})
    assert result.exit_code == 2 and says in result.output


@pytest.fixture
def run_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run `penstock run` on a few rows and return its output."""
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    flow = tmp_path / "double.py"

    def run(*options: str, rows: int) -> str:
        flow.write_text(FLOW.format(rows=rows, rate=100))
        return printed("run", flow, "--at", tmp_path / "run", "--window-s", "0.1", "--until-idle", *options)

    return run


def test_more_slots_than_the_master_has(run_in_memory: Callable[..., str]) -> None:
    for policy, says in ((["--max-slots", "8"], True), (["--max-slots", "2"], False), (["--latency-ms", "9"], False)):
        printed = run_in_memory("--policy", "drs", *policy, rows=10)
        assert ("local[2] has 2; use local[8]" in printed) == says


@pytest.mark.parametrize("policy", [["drs", "--max-slots", "2"], ["drs", "--latency-ms", "500"], ["threshold"]])
def test_a_run_with_a_policy_records_what_it_decides(
    tmp_path: Path, run_in_memory: Callable[..., str], policy: list[str]
) -> None:
    assert run_in_memory("--quiet", "--warm-up-s", "0", "--mode", "active", "--policy", *policy, rows=100) == ""
    rows = json.loads(printed("decisions", tmp_path / "run", "--json"))
    # The engine in memory measures no costs, so the policy holds, and each hold is recorded.
    assert {row["reason_code"] for row in rows} == {"settling", "missing-metrics"}
    assert {row["policy"] for row in rows} == {policy[0]}
