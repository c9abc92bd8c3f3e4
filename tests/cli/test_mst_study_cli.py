"""`mst predict`, `report` and the policy use the same prediction of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from penstock.api.mst_measurement import StudyProgress, predict_mst
from penstock.cli.main import cli
from penstock.cli.mst import TrialProgressBar
from penstock.models.mst.samples import SamplesError
from penstock.plan import Plan
from penstock.store import RunStart, Store, StoreReader, Trial
from penstock.study.mst.design import SATURATED
from penstock.study.mst.model import model_in


def trial(plan: Plan, rate: float, repeat: int = 0) -> Trial:
    """Executors have 2 slots."""
    return Trial(
        study=SATURATED,
        executors=plan.slots // 2,
        repeat=repeat,
        plan=plan,
        began_s=0.0,
        ended_s=10.0,
        rows_per_s=rate,
        converged=True,
        samples=(rate, rate),
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """An executor serves 100 rows/s within 1 %, so 5 executors serve 500 rows/s."""
    with Store(tmp_path / "study") as store:
        store.begin_run(RunStart(dataflow="one", flow_file="one.py", pid=0, master="x", started_s=0.0))
        for executors in (1, 2, 3, 4):
            plan = Plan(dataflow="one", slots=2 * executors, replicas={"work": 2 * executors})
            for repeat in range(3):
                store.add_trial(trial(plan, 100.0 * executors * (0.99 + 0.01 * repeat), repeat))
        store.end_run(at_s=100.0, reason="done")
    return tmp_path / "study"


def printed(*words: str) -> Any:
    result = CliRunner().invoke(cli, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_study_has_one_interval_for_a_count(study: Path) -> None:
    by_policy = model_in(study, 6, dataflow="one", slots_per_executor=2).predict([5], level=0.9)[0]
    intervals = [(by_policy.low, by_policy.high)]
    for executors in ("5", "5,8"):
        interval = printed("mst", "predict", str(study), "--executors", executors)["fit"]["predictions"][0]
        intervals.append((interval["low"], interval["high"]))
    (drawn,) = [point for point in printed("report", str(study))["mst"][0]["fitted"] if point["executors"] == 5]
    intervals.append((drawn["low"], drawn["high"]))
    assert intervals == [pytest.approx(intervals[0])] * 4
    assert intervals[0][0] < 500.0 < intervals[0][1]


def test_a_study_is_predicted_by_the_requested_competitors(study: Path) -> None:
    """The rate is 100 rows/s per executor, on 1 to 4. A line predicts 800 on 8 executors. The constant with the least
    squares of relative errors is 100 (1 + 1/2 + 1/3 + 1/4) / (1 + 1/4 + 1/9 + 1/16) = 146.3."""

    def fitted(*models: str) -> Any:
        words = [word for model in models for word in ("--model", model)]
        fit = printed("mst", "predict", str(study), "--executors", "8", "--choose", "training", *words)["fit"]
        same = predict_mst(study, executors=[8], models=models, choose="training").fit
        assert json.loads(msgspec.json.encode(same)) == fit
        assert set(fit["errors"]) == set(models)
        return fit

    line, constant, both = fitted("linear"), fitted("mean"), fitted("mean", "linear")
    assert line["predictions"][0]["throughput"] == pytest.approx(800.0, rel=0.02)
    assert constant["weights"] == [pytest.approx(146.3, rel=0.01)]
    assert constant["predictions"][0]["throughput"] < 400.0  # at most the largest measurement
    assert both["model"] == "linear" and both["errors"]["linear"] < both["errors"]["mean"]


def test_an_unknown_model_is_refused_before_anything_is_measured(study: Path, tmp_path: Path) -> None:
    for words in (
        ("predict", str(study), "--executors", "8"),
        ("measure", "one.py", "--executors", "1,2", "--at", str(tmp_path / "new")),
    ):
        with pytest.raises(SamplesError, match="no model 'cubic'. The models are model1, .*, linear, mean"):
            CliRunner().invoke(cli, ["mst", *words, "--model", "cubic"], catch_exceptions=False)
    assert not (tmp_path / "new").exists()


def test_elastic_takes_a_study_instead_of_samples(study: Path, tmp_path: Path) -> None:
    """One executor serves 100 rows/s. The load is 90 or 390 rows/s for half an hour each, which 1 and 4 of them serve."""
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,rate\n" + "".join(f"{60 * i},{90 if i % 60 < 30 else 390}\n" for i in range(240)))
    rows = {row["policy"]: row for row in printed("elastic", str(trace), "--samples", str(study))["policies"]}
    assert rows["static peak"]["mean_vms"] == 4.0 and rows["static peak"]["violations"] == 0.0
    assert rows["ground truth"]["mean_vms"] == pytest.approx(2.5, abs=0.1)


def test_executors_without_another_replica_add_no_throughput(tmp_path: Path) -> None:
    """Three queries on m executors of 2 slots have floor(2 m / 3) replicas each: 1, 1, 2, 2, 3, 4, of 100 rows/s."""
    with Store(tmp_path) as store:
        store.begin_run(RunStart(dataflow="three", flow_file="three.py", pid=0, master="x", started_s=0.0))
        for executors, replicas, rate in [(1, 1, 101.0), (2, 1, 99.0), (3, 2, 200.0)]:
            each = dict.fromkeys(("a", "b", "c"), replicas)
            plan = Plan(dataflow="three", slots=2 * executors, cuts=frozenset({"a", "b"}), replicas=each)
            store.add_trial(trial(plan, rate))
        store.end_run(at_s=100.0, reason="done")
    predictions = printed("mst", "predict", str(tmp_path), "--executors", "4,5,6")["fit"]["predictions"]
    assert [prediction["throughput"] for prediction in predictions] == pytest.approx([200.0, 300.0, 400.0], rel=0.05)


def test_json_output_contains_no_lines_of_trials(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StoreReader(study) as store:
        first = store.trials()[0]
    with TrialProgressBar(quiet=True) as progress:
        progress.show(StudyProgress(done=0, total=2))
        progress.show(StudyProgress(done=1, total=2, trial=first))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "mst #1, 1 executors: 99 rows/s" in captured.err
