"""The parts of the commands for executors that need no Spark."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

import penstock
from penstock.api import running
from penstock.cli.main import cli
from penstock.dataflow.load import load
from penstock.engines.spark.cluster.record import ClusterRecord, ClusterSize
from penstock.plan import Plan
from penstock.store import Owner, RunLock, RunStart, Store, Trial
from penstock.study.mst.fingerprint import fingerprint


def printed(*words: str, fails: bool = False) -> str:
    result = CliRunner().invoke(cli, list(words))
    assert (result.exit_code != 0) is fails, result.output
    return result.output + ("" if result.exception is None or not fails else str(result.exception))


def study_in(at: Path, rates: dict[int, list[float]], **known: Any) -> None:
    with Store(at) as store:
        store.begin_run(RunStart(dataflow="waiting", kind="study", flow_file="-", pid=1, master="-", started_s=0.0))
        for executors, seen in rates.items():
            for repeat, rate in enumerate(seen):
                store.add_trial(
                    Trial(
                        study="mst",
                        executors=executors,
                        repeat=repeat,
                        plan=Plan(dataflow="waiting", slots=executors),
                        began_s=0.0,
                        ended_s=1.0,
                        rows_per_s=rate,
                        **({"converged": True} | known),
                    )
                )


@contextlib.contextmanager
def cluster_in(at: Path, workers: int) -> Iterator[str]:
    """Return the record that a supervisor writes, with one slot per worker."""
    at.mkdir(exist_ok=True)
    myself = Owner(pid=os.getpid(), create_time_s=psutil.Process().create_time())
    asked = ClusterSize(workers=workers, slots=1)
    ClusterRecord(size=asked, master="spark://127.0.0.1:1", web_port=1, supervisor=myself).save(at)
    with RunLock(at):
        yield str(at)


def test_measured_counts_predict_the_others(tmp_path: Path) -> None:
    # Rows only wait: 100 rows/s per executor.
    study_in(tmp_path, {m: [99.0 * m, 101.0 * m] for m in (1, 2, 3)})
    printed_fit = json.loads(printed("mst", "predict", str(tmp_path), "--executors", "5,6", "--json"))
    for prediction in printed_fit["fit"]["predictions"]:
        assert prediction["throughput"] == pytest.approx(100.0 * prediction["vms"], rel=0.05)
        assert prediction["low"] < 100.0 * prediction["vms"] < prediction["high"]


def test_a_study_without_results_is_refused(tmp_path: Path) -> None:
    study_in(tmp_path / "none", {})
    assert "contains no trial with a result" in printed(
        "mst", "predict", str(tmp_path / "none"), "--executors", "5", fails=True
    )
    with Store(tmp_path / "none") as store:
        plan = Plan(dataflow="waiting", slots=2)
        why = "the source ran out of rows"
        store.add_trial(
            Trial(study="mst", executors=2, repeat=0, plan=plan, began_s=0, ended_s=1, rows_per_s=None, reason=why)
        )
    assert "(the last of 1: the source ran out of rows)" in printed(
        "mst", "predict", str(tmp_path / "none"), "--executors", "5", fails=True
    )
    study_in(tmp_path / "one", {2: [200.0]})
    output = printed("mst", "predict", str(tmp_path / "one"), "--executors", "5", fails=True)
    assert "measure another count to fit a curve" in output


FLOW = """
import penstock
flow = penstock.Dataflow("waiting")
rows = flow.source("rows", penstock.generate(int, schema="n bigint"{rate}))
rows.stateless("wait", lambda df: df).sink("out", penstock.noop())
"""


def test_only_trials_that_are_missing_are_made_and_only_of_the_same_thing(tmp_path: Path) -> None:
    study, flow = tmp_path / "study", tmp_path / "flow.py"
    study_in(study, {m: [99.0 * m, 101.0 * m] for m in (1, 2, 3)})
    flow.write_text(FLOW.format(rate=", rows=10"))
    words = ["mst", "measure", str(flow), "--at", str(study), "--executors", "1,2,3", "--repeats", "2"]
    assert "fitted to [1, 2, 3] executors" in printed(*words, "--executor-cores", "1")  # no cluster is started
    assert "trials with 1 cores per executor, not 4" in printed(*words, "--executor-cores", "4", fails=True)
    assert "omit the budget" in printed(*words, "--executor-cores", "1", "--paced", "--budget", "4", fails=True)
    assert "A paced measurement sets the rate of source 'rows'" in printed(
        *words, "--executor-cores", "1", "--paced", fails=True
    )
    another = tmp_path / "another.py"
    another.write_text(FLOW.format(rate=", rows=10").replace("waiting", "another"))
    words[2] = str(another)
    assert "contains a study of 'waiting', not of 'another'" in printed(*words, "--executor-cores", "1", fails=True)
    another.write_text(
        FLOW.format(rate="").replace('penstock.generate(int, schema="n bigint")', "penstock.spark_source(int)")
    )
    assert "Source 'rows' is a DataFrame" in printed(*words, "--executor-cores", "1", fails=True)
    words[2] = str(flow)
    assert "replicas by rule, not by drs" in printed(*words, "--executor-cores", "1", "--replicas", "drs", fails=True)


def test_invalid_measurements_are_refused_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.format(rate=", rows=10"))
    words = ["mst", "measure", str(tmp_path / "flow.py"), "--at", str(tmp_path / "study")]
    assert "contains no number" in printed(*words, "--executors", "", fails=True)
    assert "contains no number" in printed("mst", "predict", str(tmp_path), "--executors", ",", fails=True)
    assert not (tmp_path / "study").exists()
    with cluster_in(tmp_path, workers=3) as cluster:
        output = printed(*words, "--executors", "1,2,4", "--cluster", cluster, fails=True)
    assert "needs 4 executors" in output and "has 3 workers" in output
    status = printed("status", str(tmp_path / "study")).replace("\n", " ")
    assert f"(a study of {tmp_path / 'flow.py'})" in status and "(interrupted)" in status


def test_one_count_is_shown_although_it_makes_no_curve(tmp_path: Path) -> None:
    study, flow = tmp_path / "study", tmp_path / "flow.py"
    study_in(study, {2: [200.0]})
    flow.write_text(FLOW.format(rate=", rows=10"))
    words = ["mst", "measure", str(flow), "--at", str(study), "--executors", "2", "--executor-cores", "1"]
    assert "A prediction needs a second executor count" in printed(*words)
    assert [trial["rows_per_s"] for trial in json.loads(printed(*words, "--json"))["trials"]] == [200.0]


def test_trials_of_another_program_or_on_other_executors_are_not_mixed(tmp_path: Path) -> None:
    study, flow = tmp_path / "study", tmp_path / "flow.py"
    flow.write_text(FLOW.format(rate=", rows=10"))
    study_in(study, {1: [100.0], 2: [200.0]}, program=fingerprint(load(str(flow))), memory_mb=1024)
    words = ["mst", "measure", str(flow), "--at", str(study), "--executors", "1,2", "--executor-cores", "1"]
    flow.write_text("# a comment\n" + flow.read_text())
    assert "200" in printed(*words, "--window-s", "9")
    assert "trials with 1024 MB per executor, not 2048" in printed(*words, "--memory-mb", "2048", fails=True)
    flow.write_text(FLOW.format(rate=", rows=20"))
    output = printed(*words, fails=True)
    assert f"has trials of an earlier version of {flow}:" in output and "Use another directory" in output


def test_trials_that_did_not_converge_are_marked(tmp_path: Path) -> None:
    study_in(tmp_path, {1: [100.0], 2: [200.0]})
    words = ["mst", "predict", str(tmp_path), "--executors", "1,2,3"]
    assert "?" not in printed(*words)
    study_in(tmp_path, {3: [301.0]}, converged=False)
    output = printed(*words)
    assert "301?" in output and "200?" not in output and "? did not converge" in output


def test_failed_trials_do_not_use_the_budget(tmp_path: Path) -> None:
    study, flow = tmp_path / "study", tmp_path / "flow.py"
    study_in(study, {})
    with Store(study) as store:
        plan = Plan(dataflow="waiting", slots=1)
        for repeat in range(2):
            store.add_trial(
                Trial(study="mst", executors=1, repeat=repeat, plan=plan, began_s=0, ended_s=1, rows_per_s=None)
            )
    flow.write_text(FLOW.format(rate=", rows=10"))
    words = ["mst", "measure", str(flow), "--at", str(study), "--executors", "1,2", "--budget", "2"]
    with cluster_in(tmp_path / "cluster", workers=1) as cluster:  # fewer workers than requested executors
        assert "has 1 workers" in printed(*words, "--cluster", cluster, fails=True)


def test_a_run_and_a_study_do_not_share_a_directory(tmp_path: Path) -> None:
    flow, run = tmp_path / "flow.py", tmp_path / "run"
    flow.write_text(FLOW.format(rate=", rows=10"))
    study_in(tmp_path / "study", {})
    output = printed("run", str(flow), "--at", str(tmp_path / "study"), fails=True)
    assert "holds a study of dataflow 'waiting', so it cannot hold a run" in output
    with Store(run) as store:
        store.begin_run(RunStart(dataflow="waiting", flow_file=str(flow), pid=1, master="local[2]", started_s=0.0))
    output = printed("mst", "measure", str(flow), "--at", str(run), "--executors", "1,2", fails=True)
    assert "holds a run of dataflow 'waiting', so it cannot hold a study" in output


def test_a_run_on_a_cluster_gets_the_number_of_executors_and_is_resumed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, run, asked = tmp_path / "flow.py", tmp_path / "run", []
    flow.write_text(FLOW.format(rate=", rows_per_s=1"))
    stand_in = types.ModuleType("penstock.engines.spark.engine")

    def no_engine(*_: object, **__: object) -> None:
        raise penstock.PenstockError("no Spark here")

    stand_in.SparkEngine = no_engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setattr(running, "create_policy", asked.append)
    words = ["run", str(flow), "--at", str(run), "--policy", "mst"]
    with cluster_in(tmp_path / "cluster", workers=3) as cluster:
        result = CliRunner().invoke(cli, [*words, "--cluster", cluster, "--executors", "1..5"])
        assert (
            "Up to 5 executors were requested" in result.output
            and "has room for 3; at most 3 are used" in result.output
        )
        result = CliRunner().invoke(cli, [*words, "--cluster", cluster, "--executors", "2..3"])
        assert "were requested" not in result.output
    assert [request.executors for request in asked] == [(1, 3), (2, 3)]
    output = printed("status", str(run))
    assert f"--at {run} --cluster {cluster}'" in output and "--master" not in output


@pytest.mark.long
def test_a_policy_from_a_study_in_the_simulator(tmp_path: Path) -> None:
    study_in(tmp_path / "study", {m: [99.0 * m, 101.0 * m] for m in (1, 2, 3)})
    (tmp_path / "flow.py").write_text(FLOW.format(rate=", rows_per_s=1"))
    costs = {
        "operators": {"wait": {"service_s": {"kind": "fixed", "value": 0.01}}},
        "cluster": {"slots_per_executor": 1},
    }
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    rates = [60.0] * 10 + [250.0] * 10 + [60.0] * 10
    lines = [f"{minute * 60},{rate}" for minute, rate in enumerate(rates)]
    (tmp_path / "trace.csv").write_text("\n".join(["time_s,rate", *lines]))
    words = ["simulate", f"{tmp_path}/flow.py", "--trace", f"{tmp_path}/trace.csv", "--engine", "fluid"]
    words += ["--behaviour", f"{tmp_path}/costs.json", "--slots", "1", "--policy", "mst", "--json"]
    sums = json.loads(printed(*words, "--executors", "1..4", "--mst", f"{tmp_path}/study"))
    assert sums["changes"] >= 2 and sums["rolled_back"] == 0
    # The minimum is three executors for a third of the time and one for the rest: 5/3 of the cost of one.
    assert 1.5 * sums["seconds"] < sums["slot_seconds"] < 2.5 * sums["seconds"]
    assert "Policy 'mst' requires 'executors'" in printed(*words, fails=True)
    words += ["--executors", "1..4", "--mst", f"{tmp_path}/study"]
    (tmp_path / "costs.json").write_text(json.dumps(costs | {"cluster": {"slots_per_executor": 2}}))
    assert "measured with 1 slots per executor, but this run has 2" in printed(*words, fails=True)
    (tmp_path / "flow.py").write_text(FLOW.format(rate=", rows_per_s=1").replace("waiting", "another"))
    assert "is a study of dataflow 'waiting'; give a study of dataflow 'another'" in printed(*words, fails=True)


def test_mistakes_about_clusters_are_reported(tmp_path: Path) -> None:
    assert "No cluster is running" in printed("cluster", "status", "--at", str(tmp_path / "c"), fails=True)
    assert "No cluster is running" in printed("cluster", "stop", "--at", str(tmp_path / "c"), fails=True)
    output = printed("cluster", "start", "--at", str(tmp_path / "c"), "--memory-mb", "100", fails=True)
    assert "Spark requires at least 472 MB" in output
    with pytest.raises(penstock.PenstockError, match="30000 workers was requested; each is a process on this machine"):
        ClusterSize(workers=30_000).check()
    (tmp_path / "a file").touch()
    output = printed("cluster", "start", "--at", str(tmp_path / "a file" / "c"), fails=True)
    assert "cannot be created (Not a directory)" in output
    (tmp_path / "cluster.json").write_text("{}")
    assert "is not a valid record of a cluster" in printed("cluster", "status", "--at", str(tmp_path), fails=True)
    output = printed("run", "flow.py", "--policy", "mst", "--executors", "4..1", fails=True)
    assert "the smaller number comes first" in output
    output = printed("run", "flow.py", "--policy", "mst", "--executors", "1..1000000000", fails=True)
    assert "at most 10,000 replicas" in " ".join(output.split())
    assert "cannot be changed, because the driver runs all tasks" in printed(
        "run", "flow.py", "--executors", "1..4", fails=True
    )
    words = ["run", "flow.py", "--master", "spark://host:7077", "--policy", "mst", "--executors", "1..4"]
    assert "requires the number of cores per executor" in printed(*words, fails=True)


def test_a_dataflow_that_is_measured_writes_nothing() -> None:
    flow = penstock.Dataflow("writes")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows=10))
    rows.stateless("same", lambda df: df).sink("out", penstock.parquet("somewhere"))
    silent = flow.without_output()
    assert silent["out"].sink == penstock.noop() and flow["out"].sink == penstock.parquet("somewhere")
    assert [operator.name for operator in silent.operators] == [operator.name for operator in flow.operators]
