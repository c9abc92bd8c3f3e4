"""`penstock compare` in simulation: which dataflow is faster, by how much, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import penstock
from penstock.cli.main import cli

FLOW = """
import penstock

def chain(name, *operators):
    flow = penstock.Dataflow(name)
    rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))
    for operator in operators:
        rows = rows.stateless(operator, lambda df: df)
    rows.sink("out", penstock.noop())
    return flow

short, long = chain("short", "work"), chain("long", "work", "wait")
"""


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "flows.py").write_text(FLOW)
    words = ["compare", f"{tmp_path}/flows.py:short", f"{tmp_path}/flows.py:long"]
    words += ["--slots", "4", "--no-check", "--at", str(tmp_path / "study")]
    for side, seconds in {"a": {"work": 0.01}, "b": {"work": 0.01, "wait": 0.006}}.items():
        operators = {name: {"service_s": {"kind": "exponential", "mean": mean}} for name, mean in seconds.items()}
        (tmp_path / f"{side}.json").write_text(json.dumps({"operators": operators}))
        words += [f"--behaviour-{side}", f"{tmp_path}/{side}.json"]
    return words


def invoked(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli, list(words))


@pytest.mark.long
def test_the_faster_dataflow_and_the_cause_are_named(given: list[str], tmp_path: Path) -> None:
    result = invoked(*given)
    assert result.exit_code == 0, result.output
    assert "results: not compared" in result.output
    assert "A sustains the higher rate" in result.output and "operator 'wait' of B" in result.output
    document = json.loads(invoked(*given, "--json").output)
    # Both dataflows use all 4 slots: 4 / 10 ms and 4 / 16 ms.
    assert document["a"]["rows_per_s"] == pytest.approx(400, rel=0.05)
    assert document["b"]["rows_per_s"] == pytest.approx(250, rel=0.05)
    ratio = document["ratio"]
    assert ratio["low"] < ratio["ratio"] < ratio["high"]
    assert ratio["ratio"] == pytest.approx(10 / 16, rel=0.05) and ratio["p_value"] < 0.001
    assert (document["faster"], document["cause"]["operator"], document["cause"]["side"]) == ("a", "wait", "b")
    # Both studies can be opened on their own.
    assert {record.name for record in (tmp_path / "study").iterdir()} == {"a", "b"}
    assert "Comparison" in json.dumps(penstock.schema("comparison"))


@pytest.mark.long
def test_a_dataflow_is_not_faster_than_itself(given: list[str], tmp_path: Path) -> None:
    same = [given[0], given[1], given[1], "--slots", "4", "--no-check", "--at", str(tmp_path / "same")]
    costs = ["--behaviour-a", f"{tmp_path}/a.json", "--behaviour-b", f"{tmp_path}/a.json"]
    result = invoked(*same, *costs)
    assert result.exit_code == 0, result.output
    assert "no significant difference: B relative to A" in result.output and "cause" not in result.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--behaviour-b": None}, "for one dataflow only"),
        ({"--sample-rows": "0"}, "0"),
        ({"--engine": "fluid"}, "fluid"),
        ({"--type-b": "wait"}, "--type-b 'wait' is not of the form NAME=VALUE"),
    ],
)
def test_invalid_options(given: list[str], changed: dict[str, str | None], message: str) -> None:
    words = list(given)
    for option, value in changed.items():
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
        words += [] if value is None else [option, value]
    result = invoked(*words)
    assert result.exit_code == 2
    assert message in result.output


def test_dataflows_with_different_sources_are_refused() -> None:
    flows = []
    for name, schema in (("rows", "n bigint"), ("lines", "n bigint")):
        flow = penstock.Dataflow(name)
        flow.source(name, penstock.generate(int, schema=schema, rows_per_s=1)).sink("out", penstock.noop())
        flows.append(flow)
    with pytest.raises(penstock.PenstockError, match="The sources of the dataflows differ: rows"):
        penstock.compare(*flows, slots=2)
