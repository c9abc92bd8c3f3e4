from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli, main


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = ["app,vms,throughput"]
    for app, rate in (("grep", 2.0), ("sort", 5.0)):
        for m in (1, 2, 3, 4, 6, 8, 16, 32):
            rows += [f"{app},{m},{rate * m / (1 + 0.02 * (m - 1)) * rng.lognormal(0, 0.03)}" for _ in range(4)]
    path = tmp_path / "samples.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    hours = np.arange(24 * 8)
    rates = 12 * (1.2 + np.sin(hours * 2 * np.pi / 24))
    path = tmp_path / "trace.csv"
    path.write_text("time_s,rate\n" + "".join(f"{3600 * h},{r}\n" for h, r in zip(hours, rates, strict=True)))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    "command", [("mst", "fit", "no.csv"), ("elastic", "no.csv", "--samples", "no.csv", "--app", "a")]
)
@pytest.mark.parametrize("name", ["curves.png", "curves"])
def test_a_plot_that_is_not_html_is_refused_before_anything_is_read(command: tuple[str, ...], name: str) -> None:
    result = run(*command, "--plot", name)
    assert result.exit_code == 2 and f"'{name}' does not end in .html" in result.output


def test_fit_json_has_predictions_with_intervals_around_the_truth(samples: Path, tmp_path: Path) -> None:
    plot = tmp_path / "mst.html"
    result = run("mst", "fit", samples, "--predict", "12,24,64", "--validate", "32", "--json", "--plot", plot)
    assert result.exit_code == 0, result.output
    apps = {item["app"]: item for item in json.loads(result.output)["apps"]}
    assert list(apps) == ["grep", "sort"]
    assert apps["grep"]["validated"] == [32]
    for p in apps["sort"]["predictions"]:
        truth = 5.0 * p["vms"] / (1 + 0.02 * (p["vms"] - 1))
        assert p["low"] <= p["throughput"] <= p["high"]
        assert p["throughput"] == pytest.approx(truth, rel=0.15)
    page = plot.read_text()
    assert page.count("<svg") == 2 and "90% of new measurements" in page and "used to select the model" in page


def test_fit_table(samples: Path) -> None:
    result = run("mst", "fit", samples, "--app", "sort")
    assert result.exit_code == 0, result.output
    assert "sort" in result.output and "grep" not in result.output
    assert "predicted from the smaller ones" in result.output and "shares of the models" in result.output


def test_subset(samples: Path) -> None:
    result = run("mst", "subset", samples, "--max-vms", "8", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["exhaustive"] and report["tried"] == 20 + 15 + 6
    assert max(report["vms"]) <= 8
    assert str(report["vms"][0]) in run("mst", "subset", samples, "--max-vms", "8").output


def test_elastic(samples: Path, trace: Path, tmp_path: Path) -> None:
    plot = tmp_path / "schedule.html"
    common = ("elastic", trace, "--samples", samples, "--app", "grep")
    result = run(*common, "--json", "--plot", plot)
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    policies = {item["policy"]: item for item in report["policies"]}
    assert len(policies) == 9 and len(report["vms"]) == 192 and report["judged_from"] == 96
    assert policies["static peak"]["violations"] == 0
    assert policies["ground truth"]["cost_per_h"] < policies["static peak"]["cost_per_h"]
    page = plot.read_text()
    assert page.count("<svg") == 2 and "capacity: " in page and "violations" in page
    assert "static peak" in run(*common).output


@pytest.mark.parametrize("name", ["mst-fit", "mst-subset", "elastic"])
def test_schema(name: str) -> None:
    result = run("schema", name)
    assert result.exit_code == 0
    assert json.loads(result.output)["$defs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mst", "fit", "nowhere.csv"), "Cannot read"),
        (("mst", "fit", "SAMPLES", "--app", "wc"), "no samples of app 'wc'"),
        (("mst", "fit", "SAMPLES", "--validate", "5"), "no samples on [5]"),
        (("mst", "fit", "SAMPLES", "--plot", "/nowhere/at/all.html"), "Cannot write"),
        (("mst", "fit", "TRACE"), "must have app,vms,throughput"),
        (("mst", "subset", "SAMPLES", "--max-vms", "1"), "VM counts up to 1"),
        (("elastic", "SAMPLES", "--samples", "SAMPLES", "--app", "grep"), "must have time_s,rate"),
        (("elastic", "TRACE", "--samples", "SAMPLES", "--app", "wc"), "no samples of app 'wc'"),
        (("elastic", "TRACE", "--samples", "SAMPLES", "--app", "grep", "--max-vms", "64"), "at most 32 VMs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(
    samples: Path,
    trace: Path,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {"SAMPLES": str(samples), "TRACE": str(trace)}
    monkeypatch.setattr("sys.argv", ["penstock", *(files.get(argument, argument) for argument in arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and error.count("\n") == 1
    assert message in error
