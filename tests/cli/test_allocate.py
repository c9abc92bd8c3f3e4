from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.dataflow.errors import PenstockError

FLOW: dict[str, Any] = {
    "operators": ["parse", "table"],
    "streams": [
        {"from": None, "to": "parse", "selectivity": 1.0},
        {"from": "parse", "to": "table", "selectivity": 1.0},
    ],
}
CURVES: dict[str, Any] = {
    "parse": {"1": {"rows_per_s": 310, "cpu": 84.69, "memory": 35.63}},
    "table": {
        "1": {"rows_per_s": 3, "cpu": 1.02, "memory": 1.15},
        "40": {"rows_per_s": 20, "cpu": 26.53, "memory": 9.2},
        "60": {"rows_per_s": 40, "cpu": 54.08, "memory": 16.09},
    },
}
SIZES: list[Any] = [
    {"name": "D1", "slots": 1, "price_per_h": 0.1, "rack": 0},
    {"name": "D3", "slots": 4, "price_per_h": 0.4, "rack": 0},
]


def allocate(folder: Path, *options: str, flow: Any = FLOW, curves: Any = CURVES, sizes: Any = SIZES) -> Result:
    for name, content in (("flow", flow), ("curves", curves), ("sizes", sizes)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text)
    rate = () if "--rate" in options else ("--rate", "100")
    files = (str(folder / "flow.json"), "--curves", str(folder / "curves.json"), "--vms", str(folder / "sizes.json"))
    return CliRunner().invoke(cli, ["allocate", *files, *rate, *options])


def test_json_has_the_documented_keys(tmp_path: Path) -> None:
    result = allocate(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["operators"]["table"]["threads"] == 160
    assert report["operators"]["table"]["cpu"] == pytest.approx(226.53)
    assert report["slots"] == 3
    assert report["lower_bound"] <= report["sustaining_lower_bound"] == 3
    assert [vm["name"] for vm in report["vms"]] == ["D3-0"]
    assert report["price_per_h"] == 0.4
    assert len(report["placement"]["table"]) == 160
    assert report["predicted"]["proportional"]["rows_per_s"] == pytest.approx(100)
    assert report["predicted_rows_per_s"] == pytest.approx(80)
    assert set(report["predicted"]["shuffle"]["vms"]) == {"D3-0"}


@pytest.mark.parametrize("mapping", ["dsm", "rsm", "sam"])
@pytest.mark.parametrize("method", ["mba", "lsa"])
def test_tables_are_printed(tmp_path: Path, method: str, mapping: str) -> None:
    result = allocate(tmp_path, "--method", method, "--map", mapping)
    assert result.exit_code == 0, result.output
    assert f"{method} + {mapping} at 100 rows/s" in result.output
    assert "lower bound" in result.output
    assert "price: 0.4 per hour" in result.output or "price: 0.1 per hour" in result.output


def test_without_sizes_every_slot_is_a_vm_of_unknown_price(tmp_path: Path) -> None:
    allocate(tmp_path)
    files = [str(tmp_path / "flow.json"), "--curves", str(tmp_path / "curves.json")]
    result = CliRunner().invoke(cli, ["allocate", *files, "--rate", "100", "--json"])
    report = json.loads(result.output)
    assert [vm["slots"] for vm in report["vms"]] == [1, 1, 1]
    assert report["price_per_h"] is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"flow": {**FLOW, "operators": ["parse", "table", "x"]}}, "No external row reaches 'x'"),
        ({"flow": {**FLOW, "name": "f"}}, "unknown field `name`"),
        ({"flow": "nonsense"}, "The dataflow is invalid"),
        ({"curves": {"parse": CURVES["parse"]}}, "Operator 'table' has no curve"),
        ({"curves": {**CURVES, "parse": {}}}, "Curve of 'parse': The curve is empty"),
        (
            {"curves": {**CURVES, "parse": {"1": {"rows_per_s": -1, "cpu": 1, "memory": 1}}}},
            "peak rate must be above 0",
        ),
        (
            {"curves": {**CURVES, "parse": {"1": {"rows_per_s": 1, "cpu": 1, "memory": 1, "net": 2}}}},
            "unknown field `net`",
        ),
        ({"sizes": [{**SIZES[0], "price_per_h": 0}]}, "'D1' costs 0 per hour"),
        ({"sizes": [{**SIZES[0], "gpu": True}]}, "unknown field `gpu`"),
        ({"sizes": []}, "No VM sizes"),
    ],
)
def test_bad_files_get_one_clear_error(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    result = allocate(tmp_path, **changed)
    assert result.exit_code == 1
    assert isinstance(result.exception, PenstockError)
    assert message in str(result.exception)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    allocate(tmp_path)
    result = CliRunner().invoke(
        cli, ["allocate", str(tmp_path / "none.json"), "--rate", "1", "--curves", str(tmp_path / "curves.json")]
    )
    assert isinstance(result.exception, PenstockError)
    assert "the dataflow file" in str(result.exception)
    assert "No such file" in str(result.exception)


@pytest.mark.parametrize("name", ["dataflow", "curves", "sizes"])
def test_schema_of_each_format(name: str) -> None:
    result = CliRunner().invoke(cli, ["schema", name])
    assert result.exit_code == 0, result.output
    keys = {"dataflow": "selectivity", "curves": "rows_per_s", "sizes": "price_per_h"}
    assert keys[name] in result.output
    assert '"additionalProperties": false' in result.output
    json.loads(result.output)
