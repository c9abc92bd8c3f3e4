from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.dataflow.errors import PenstockError

STATIONS = {
    "external_per_s": 8.0,
    "stations": {
        "split": {"arrival_per_s": 8.0, "service_per_s": 9.6},
        "count": {"arrival_per_s": 24.0, "service_per_s": 10.0, "max": 40},
    },
}


@pytest.fixture
def stations(tmp_path: Path) -> str:
    path = tmp_path / "stations.json"
    path.write_text(json.dumps(STATIONS))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def test_budget_as_json(stations: str) -> None:
    result = run("assign", stations, "--processors", "6", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["processors"] == {"split": 2, "count": 4}


def test_target_on_a_quantile_as_json(stations: str) -> None:
    result = json.loads(run("assign", stations, "--latency-ms", "900", "--quantile", "0.9", "--json").output)
    assert result["feasible"] and result["quantiles_s"]["0.9"] <= 0.9


def test_tables(stations: str) -> None:
    assert "count (bottleneck)" in run("assign", stations, "--processors", "6").output
    short = run("assign", stations, "--processors", "3")
    assert short.exit_code == 0
    assert "count (binds)" in short.output
    assert "a stable plan needs 4 processors" in short.output


def test_usage(stations: str) -> None:
    assert "Give either --processors or --latency-ms" in run("assign", stations).output
    assert run("assign", stations, "--processors", "3", "--latency-ms", "5").exit_code == 2
    assert (
        "--quantile requires --latency-ms" in run("assign", stations, "--processors", "3", "--quantile", "0.9").output
    )
    assert "Example:" in run("assign", "--help").output


def test_files_that_are_no_stations(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for path, says in (
        (broken, "The stations document is invalid"),
        (tmp_path / "none.json", "Cannot read"),
        (tmp_path, "Cannot read"),
    ):
        result = run("assign", str(path), "--processors", "3")
        assert result.exit_code == 1
        assert isinstance(result.exception, PenstockError) and says in str(result.exception)


def test_schema() -> None:
    schema = json.loads(run("schema", "stations").output)
    assert set(schema["$defs"]["StationsDocument"]["properties"]) == {"external_per_s", "stations", "streams"}
    assert set(schema["$defs"]["StreamSpec"]["properties"]) == {"from", "to", "gain"}
    assert schema["$defs"]["StationsDocument"]["additionalProperties"] is False
    unknown = run("schema", "statoins")
    assert isinstance(unknown.exception, PenstockError) and "stations" in str(unknown.exception)
