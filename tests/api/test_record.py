"""`penstock.open_run`: the record of a run as DataFrames, and requests to another process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import penstock
from penstock.apps.stepwise import word_count
from penstock.control.requests import RequestError
from penstock.plan import Plan
from penstock.store import RunStart, Store, StoreError, Trial
from tests.support.double_flow import DOUBLE_FLOW
from tests.support.sample_runs import HOSTILE, START_S, eventful


def test_windows_and_operators(tmp_path: Path) -> None:
    eventful(tmp_path, windows=60)
    windows = penstock.open_run(tmp_path).windows()
    assert len(windows) == 60 + 30
    assert windows.start[0] == pd.Timestamp(START_S, unit="s", tz="UTC")
    # The sample has a mean of 0.5 s and twice this value at 95 %, except for one window of 4.5 s.
    assert windows.latency_mean_s.max() == 4.5 and windows.latency_p95_s.min() == 1.0
    assert windows.backlog_rows.notna().all()
    assert len(penstock.open_run(tmp_path).windows(last=7)) == 7
    operators = penstock.open_run(tmp_path).operators(last=30)
    assert set(operators.operator) == {"lines", "split", "count", "out"} and len(operators) == 30 * 4


def test_decisions_changes_and_errors(tmp_path: Path) -> None:
    eventful(tmp_path)
    record = penstock.open_run(tmp_path)
    changes = record.decisions(changes_only=True)
    assert list(changes.verdict) == ["kept", "rolled back", None]
    first = changes.iloc[0]
    assert "2 -> 4 replicas" in first.change and "count" in first.change
    assert (first.latency_expected_s, first.latency_observed_s) == (0.6, 0.7)
    assert set(record.decisions().kind) == {"hold", "change"}
    assert list(record.plan_changes().outcome) == ["ok", "ok", "rolled back"]
    assert list(record.errors().message) == ["wordcount"] * 3


def test_trials(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_run(RunStart(dataflow="wc", kind="study", flow_file="wc.py", pid=1, master="-", started_s=0.0))
        plan = Plan(dataflow="wc", slots=2)
        store.add_trial(
            Trial(
                study="mst",
                executors=2,
                repeat=0,
                plan=plan,
                began_s=0.0,
                ended_s=9.0,
                rows_per_s=120.0,
                converged=True,
            )
        )
    trials = penstock.open_run(tmp_path).trials()
    assert list(trials.executors) == [2] and list(trials.rows_per_s) == [120.0] and list(trials.converged) == [True]
    record = penstock.open_run(tmp_path)
    assert len(record.windows()) == 0
    assert "1 trials" in repr(record) and "<td>120</td>" in record._repr_html_()


def test_the_trials_of_a_profile_have_their_plans_and_verdicts(tmp_path: Path) -> None:
    profile = penstock.profile(
        word_count.flow(), slots=2, behaviour=word_count.behaviour(), engine="micro-batch", latency_s=5.0, at=tmp_path
    )
    record = penstock.open_run(tmp_path)
    trials = record.trials()
    rounds = trials[trials.step != "features"]
    assert list(rounds.replicas) == [round.plan.replicas for round in profile.rounds] and set(rounds.slots) == {2}
    assert list(rounds.change) == [round.change for round in profile.rounds]
    assert f"<th>trials</th><td>{len(trials)}</td>" in record._repr_html_()
    assert record.status().study == "profile" and record.report().exists()


def test_a_directory_with_curves_is_named(tmp_path: Path) -> None:
    penstock.measure_curves(
        word_count.flow(), operators=["count"], threads=[1], behaviour=word_count.behaviour(), at=tmp_path
    )
    with pytest.raises(StoreError, match="measured_curves"):
        penstock.open_run(tmp_path)


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run"):
        penstock.open_run(tmp_path)
    with pytest.raises(StoreError, match="nowhere"):
        penstock.open_run(tmp_path / "nowhere")


def test_a_run_that_has_ended_takes_no_requests(tmp_path: Path) -> None:
    eventful(tmp_path)
    with pytest.raises(RequestError):
        penstock.open_run(tmp_path).rescale(count=4)


def test_names_are_escaped_in_notebooks(tmp_path: Path) -> None:
    eventful(tmp_path, name=HOSTILE)
    html = penstock.open_run(tmp_path)._repr_html_()
    assert "<script" not in html and "<img" not in html and "&lt;script&gt;" in html


def test_a_report_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    eventful(tmp_path)
    record = penstock.open_run(tmp_path)
    assert record.report() == tmp_path / "report.html"
    assert "<html" in record.report(tmp_path / "other.html", price_per_slot_hour=0.05).read_text()
    assert record.report_data().totals.windows == 90
    with pytest.raises(penstock.PenstockError, match="Cannot write"):
        record.report(tmp_path / "no" / "such" / "folder.html")


def test_a_run_of_another_process_is_changed_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(DOUBLE_FLOW.format(rows=None, rate=200))
    words = ["run", str(tmp_path / "double.py"), "--at", str(tmp_path / "run"), "--window-s", "0.1", "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "tests.support.penstock_in_memory", *words])
    try:
        give_up_s = time.monotonic() + 300
        while True:
            try:
                if penstock.open_run(tmp_path / "run").status().windows:
                    break
            except StoreError:
                assert time.monotonic() < give_up_s
            time.sleep(0.05)
        record = penstock.open_run(tmp_path / "run")
        assert "2 -> 4 replicas" in record.rescale(twice=4).text
        assert "500 rows/s" in record.set_rate("numbers", 500).text
        assert record.plan is not None and record.plan.replicas == {"twice": 4}
        with pytest.raises(RequestError, match="thrice"):
            record.rescale(thrice=4)
        record.stop()
        assert process.wait(timeout=300) == 0 and record.status().state == "stopped"
    finally:
        process.kill()
        process.wait()
