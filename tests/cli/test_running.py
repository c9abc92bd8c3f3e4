"""Commands against a real `penstock run` in another process, on the engine in memory."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.dataflow import PenstockError
from penstock.store import StoreReader, owner
from tests.support.double_flow import DOUBLE_FLOW as FLOW

PENSTOCK = [sys.executable, "-m", "tests.support.penstock_in_memory"]


def eventually(what: Callable[[], object], seconds: float = 300.0) -> None:
    give_up = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < give_up, "the condition was not met in time"
        time.sleep(0.02)


def penstock(*arguments: object, code: int = 0) -> str:
    """Run a command in this process for a run in another process, and return its output or its error."""
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert isinstance(result.exception, PenstockError) if code else result.exception is None, result.output
    return str(result.exception) if code else result.output


class Running:
    def __init__(self, tmp_path: Path) -> None:
        self.at = tmp_path / "run"
        self.flow = tmp_path / "double.py"
        self.flow.write_text(FLOW.format(rows=None, rate=200))
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [*PENSTOCK, "run", str(self.flow), "--at", str(self.at), "--window-s", "0.1", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        before = self.windows()
        eventually(lambda: self.windows() > before)
        return self.process

    def windows(self) -> int:
        try:
            with StoreReader(self.at) as reader:
                return len(reader.windows())
        except Exception:  # does not exist yet
            return 0


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    if running.process is not None:
        running.process.kill()
        running.process.communicate()


def test_a_run_is_shown_changed_and_stopped_by_commands(running: Running, tmp_path: Path) -> None:
    process, at = running.start(), running.at
    status = json.loads(penstock("status", at, "--json"))
    assert (status["state"], status["run"]["pid"], status["plan"]["replicas"]) == ("running", process.pid, {"twice": 2})
    assert "twice: 2 -> 4 replicas" in penstock("rescale", at, "twice=4")
    status = json.loads(penstock("status", at, "--json"))
    assert status["plan"]["replicas"] == {"twice": 4}
    assert [change["outcome"] for change in status["plan_changes"]] == ["ok"]
    assert "cut after twice" in penstock("cut", at, "twice")
    assert json.loads(penstock("status", at, "--json"))["plan"]["cuts"] == ["twice"]
    assert "no cut after twice" in json.loads(penstock("fuse", at, "twice", "--json"))["text"]
    assert "The plan has no cut after 'twice'" in penstock("fuse", at, "twice", code=1)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(status["plan"] | {"slots": 8}))
    assert "slots: 2 -> 8" in json.loads(penstock("apply", at, plan, "--json"))["text"]
    assert "numbers now appends 5000 rows/s" in penstock("rate", at, "numbers=5000")
    assert "'thrice', which is not an operator of dataflow 'double'" in penstock("rescale", at, "thrice=4", code=1)
    assert f"Process {process.pid} is running in" in penstock("run", running.flow, "--at", at, code=1)
    text = penstock("status", at)
    assert "running as process" in text and "twice" in text and "rescale twice=4: ok" in text and "thrice" in text
    assert penstock("stop", at) == "stopped\n"
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("Starting double in") and f"resume with: penstock run {running.flow} --at {at}" in out
    assert "stopped at" in penstock("status", at)
    assert "No run is active" in penstock("stop", at, code=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_says_how_to_resume(running: Running, number: signal.Signals) -> None:
    process = running.start()
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert f"Stopped ({number.name}); resume with: penstock run" in out
    with StoreReader(running.at) as reader:
        run = reader.last_run()
    assert run is not None and run.stop_reason == number.name


def test_after_kill_9_the_store_is_read_and_the_run_resumes(running: Running) -> None:
    process = running.start()
    process.kill()
    process.communicate()
    assert owner(running.at) is None
    assert ": killed; resume with" in penstock("status", running.at)
    assert "No run is active" in penstock("rescale", running.at, "twice=4", code=1)
    process = running.start("--json")  # takes over the stale lock
    penstock("stop", running.at)
    out, _ = process.communicate(timeout=300)
    windows = [json.loads(line) for line in out.splitlines()]
    totals = [window["operators"][0]["rows_in_total"] for window in windows]
    assert totals == sorted(totals)
    with StoreReader(running.at) as reader:
        assert len(reader.runs()) == 2
        kept = [window.operators[0].rows_in_total or 0 for _, window in reader.windows()]
    assert kept == sorted(kept)  # the run continued at its position


def test_until_idle_quiet_and_plan(running: Running, tmp_path: Path) -> None:
    running.flow.write_text(FLOW.format(rows=50, rate=1000))
    plan = tmp_path / "plan.json"
    plan.write_text('{"dataflow": "double", "replicas": {"twice": 3}, "slots": 3}')
    arguments = [
        "run",
        running.flow,
        "--at",
        running.at,
        "--window-s",
        "0.1",
        "--until-idle",
        "--quiet",
        "--plan",
        plan,
    ]
    done = subprocess.run([*PENSTOCK, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with StoreReader(running.at) as reader:
        assert sum(window.operator("twice").rows_in or 0 for _, window in reader.windows()) == 50
        plan_in_force = reader.plan()
    assert plan_in_force is not None and plan_in_force.replicas == {"twice": 3}


def test_a_plan_that_does_not_fit_is_refused_before_anything_starts(running: Running, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"dataflow": "other", "slots": 3}')
    assert "The plan is for dataflow 'other'" in penstock(
        "run", running.flow, "--at", running.at, "--plan", plan, code=1
    )
    assert not running.at.exists()


def test_waiting_for_an_endless_source_is_refused(running: Running) -> None:
    """The source is a generator without a number of rows, or a DataFrame of the user."""
    asked = ("run", running.flow, "--at", running.at, "--until-idle")
    assert "Source 'numbers' never ends" in penstock(*asked, code=1)
    source = "penstock.spark_source(lambda spark: spark.readStream.format('rate').load())"
    declared = f"penstock.Dataflow('own')\nflow.source('rates', {source}).sink('out', penstock.noop())"
    running.flow.write_text(f"import penstock\nflow = {declared}\n")
    assert "Source 'rates' never ends" in penstock(*asked, code=1)


def test_following_ends_with_the_run(running: Running) -> None:
    running.start()
    follower = subprocess.Popen(
        [*PENSTOCK, "status", running.at, "--follow", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    first = json.loads(follower.stdout.readline())
    penstock("stop", running.at)
    rest, _ = follower.communicate(timeout=300)
    ends = [first["end_s"], *(json.loads(line)["end_s"] for line in rest.splitlines())]
    assert ends == sorted(set(ends))
    with StoreReader(running.at) as reader:
        assert ends[-1] == reader.windows(last=1)[0][1].end_s


def test_a_live_table_on_a_terminal(running: Running) -> None:
    running.flow.write_text(FLOW.format(rows=100, rate=200))
    mine, theirs = pty.openpty()
    command = [*PENSTOCK, "run", str(running.flow), "--at", str(running.at), "--window-s", "0.1", "--until-idle"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            chunk = os.read(mine, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(mine)
    assert process.wait(300) == 0
    text = seen.decode()
    assert "rows/s in" in text and "twice" in text and "Stopped (all input is processed)" in text
    assert "\x1b[" in text  # updated in place, not appended
