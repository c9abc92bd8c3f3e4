"""Input and output that users do produce: full disks, byte-order marks, extreme numbers. No traceback for any of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.main import COMMANDS, cli
from tests.support.double_flow import DOUBLE_FLOW

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
BOM = b"\xef\xbb\xbf"
COSTS = '{"operators": {"twice": {"service_s": {"kind": "fixed", "value": 0.01}}}}'


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("double.py").write_text(DOUBLE_FLOW.format(rows=None, rate=20))
    Path("load.csv").write_text("time_s,rate\n0,5\n60,7\n120,7\n")
    Path("costs.json").write_text(COSTS)
    return tmp_path


def simulate(*options: str) -> dict[str, object]:
    words = ["simulate", "double.py", "--policy", "threshold", "--json", *options]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
@pytest.mark.parametrize(
    "words",
    [
        ["schema", "plan"],
        ["show", "double.py", "--json", "--no-spark"],
        ["show", "double.py", "--no-spark"],
        [
            "simulate",
            "double.py",
            "--trace",
            "load.csv",
            "--behaviour",
            "costs.json",
            "--policy",
            "threshold",
            "--json",
        ],
        *([name, "--help"] for name in list(COMMANDS)[:2]),
    ],
)
def test_a_full_disk(files: Path, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run([*PENSTOCK, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if "Simulating" not in line]
    assert lines == ["Error: Cannot write the output: No space left on device."]


def test_files_with_a_byte_order_mark(files: Path) -> None:
    plain = simulate("--trace", "load.csv", "--behaviour", "costs.json")
    plan = json.dumps(json.loads(CliRunner().invoke(cli, ["show", "double.py", "--json", "--no-spark"]).stdout)["plan"])
    Path("plan.json").write_bytes(BOM + plan.encode())
    Path("marked.csv").write_bytes(BOM + Path("load.csv").read_bytes())
    Path("marked.json").write_bytes(BOM + COSTS.encode())
    assert simulate("--trace", "marked.csv", "--behaviour", "marked.json", "--plan", "plan.json") == plain


def test_a_load_in_the_year_1_with_a_time_zone(files: Path) -> None:
    plain = simulate("--trace", "load.csv", "--behaviour", "costs.json")
    Path("old.csv").write_text(
        "time,rate\n0001-01-01T00:00:00+14:00,5\n0001-01-01T00:01:00+14:00,7\n0001-01-01T00:02:00+14:00,7\n"
    )
    assert simulate("--trace", "old.csv", "--behaviour", "costs.json") == plain


@pytest.mark.parametrize("kind", ['"kind": "fixed", "value": 1e300', '"kind": "gamma", "mean": 1e300, "scv": 1'])
def test_an_absurd_cost_is_refused(files: Path, kind: str) -> None:
    Path("costs.json").write_text(f'{{"operators": {{"twice": {{"service_s": {{{kind}}}}}}}}}')
    with pytest.raises(penstock.PenstockError, match=r"is 1e\+300; it must be .* 1e\+12") as info:
        penstock.simulate("double.py", trace="load.csv", behaviour="costs.json", policy="threshold")
    assert "\n" not in str(info.value)


def test_the_schema_of_a_behaviour_names_its_parts() -> None:
    result = CliRunner().invoke(cli, ["schema", "behaviour"], catch_exceptions=False)
    properties = json.loads(result.stdout)["$defs"]["Behaviour"]["properties"]
    assert {"operators", "sources", "cluster", "change", "batch", "thread"} == set(properties)


def test_a_file_that_needs_spark_on_a_machine_without_java(files: Path) -> None:
    text = 'from pyspark.sql import functions as F\nBIG = F.col("n") > 500\n'
    Path("columns.py").write_text(text + DOUBLE_FLOW.format(rows=None, rate=20))
    result = subprocess.run(
        [*PENSTOCK, "show", "columns.py"],
        env={**os.environ, "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert (
        f"'{files / 'columns.py'}', line 2: BIG = F.col(\"n\") > 500: This statement needs Spark when" in result.stderr
    )
    assert "/nowhere/bin/java" in result.stderr


def test_a_file_without_spark_objects_needs_neither_spark_nor_pyspark(files: Path) -> None:
    program = "import sys, penstock; penstock.outline('double.py'); assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
