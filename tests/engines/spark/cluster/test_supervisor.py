"""If the starter of a cluster ends before the cluster is ready, no process remains."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from penstock.engines.spark.cluster import ClusterError, ClusterSize, daemons, running, start, status, stop, supervisor
from penstock.engines.spark.cluster.record import ClusterRecord, Daemon, SupervisorSettings
from penstock.store.lock import Owner
from tests.support.conditions import eventually


def supervisors(at: Path) -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if str(at) in process.cmdline()]


def test_an_interrupted_start_leaves_no_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        deadline = time.monotonic() + 100
        while not supervisors(tmp_path):  # its process may not show its command yet
            assert time.monotonic() < deadline
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.engines.spark.cluster.cluster.time.sleep", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            start(tmp_path, ClusterSize())
        assert not supervisors(tmp_path)
    finally:
        for process in supervisors(tmp_path):
            process.kill()


@pytest.fixture
def signals() -> Iterator[None]:
    """A supervisor has its own process, so it can handle its signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_a_cluster_ends_if_its_starter_is_killed_before_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def sleeping(*_: Any, **__: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "60"]))
        return started[-1]

    monkeypatch.setattr(daemons, "start_master", sleeping)
    monkeypatch.setattr(supervisor, "workers_alive", lambda _: None)  # the master is not ready yet
    monkeypatch.setattr(supervisor, "_CHECK_INTERVAL_S", 0.01)
    gone = subprocess.Popen(["true"])
    killed = Owner(pid=gone.pid, create_time_s=psutil.Process(gone.pid).create_time())
    gone.wait()
    supervisor.Supervisor(tmp_path, SupervisorSettings(size=ClusterSize(), starter=killed, outlives_starter=True)).run()
    assert [process.poll() for process in started] == [-signal.SIGTERM]


def test_an_unregistered_executor_ends_with_its_cluster_and_no_other_process_does(tmp_path: Path) -> None:
    inside, beside = tmp_path / "cluster" / "work" / "worker-0" / "app" / "1", tmp_path / "cluster" / "worked"
    for folder in (inside, beside):
        folder.mkdir(parents=True)
    left, other = (subprocess.Popen(["sleep", "60"], cwd=folder) for folder in (inside, beside))
    try:
        stop(tmp_path / "cluster")
        assert left.poll() is not None
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


def test_a_directory_with_a_blank_in_its_name_is_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: given.update(env))
    at = tmp_path / 'my "runs"'
    daemons.start_master(at, port=1, web_port=2)
    # Spark's launcher splits words like a shell.
    assert shlex.split(given["SPARK_MASTER_OPTS"])[1:] == [f"-Dspark.deploy.recoveryDirectory={at}/recovery"]


def test_a_copied_directory_has_no_cluster(tmp_path: Path) -> None:
    """Starting or stopping a cluster in the copy does not end the original cluster."""
    with subprocess.Popen(["sleep", "60"]) as theirs:
        process = Owner(pid=theirs.pid, create_time_s=psutil.Process(theirs.pid).create_time())
        ClusterRecord(
            size=ClusterSize(workers=1),
            master="spark://127.0.0.1:1",
            web_port=1,
            supervisor=process,
            daemons=(Daemon(name="master", process=process),),
            ready=True,
        ).save(tmp_path)
        (tmp_path / "lock").write_bytes(msgspec.json.encode(process))
        with pytest.raises(ClusterError, match="No cluster is running"):
            running(tmp_path)
        stop(tmp_path)
        assert theirs.poll() is None
        theirs.kill()


@pytest.mark.spark
def test_nothing_outlives_a_starter_or_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    at = tmp_path / "cluster"
    code = (
        "import sys, time; from pathlib import Path; from penstock.engines.spark import cluster; "
        "cluster.start(Path(sys.argv[1]), cluster.ClusterSize(workers=1, slots=1), ends_with_process=True, patience_s=1200); "
        "time.sleep(600)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code, str(at)])
    try:
        eventually(lambda: (record := ClusterRecord.load(at)) is not None and record.ready)
        with pytest.raises(ClusterError, match="A cluster is already running in"):
            start(at, ClusterSize())
        record = ClusterRecord.load(at)
        assert record is not None
        processes = [psutil.Process(entry.process.pid) for entry in record.daemons]
        assert len(processes) == 2
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        eventually(lambda: not record.supervisor.alive() and not any(process.is_running() for process in processes))
    finally:
        starter.kill()
        starter.wait()
    with pytest.raises(ClusterError, match="No cluster is running"):
        status(at)
    up = start(at, ClusterSize(workers=1, slots=1), patience_s=1200)
    children = [psutil.Process(entry.process.pid) for entry in up.record.daemons]
    os.kill(up.record.supervisor.pid, signal.SIGKILL)
    psutil.Process(up.record.supervisor.pid).wait()
    eventually(lambda: not any(process.is_running() for process in children))
    stop(at)
