"""`penstock.run` on the engine in memory."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import StoreError
from tests.support.double_flow import double_flow
from tests.support.memory_engine import MemoryEngine

FAST = {"window_s": 0.05}


def test_a_run_processes_all_rows_and_is_changed_while_it_runs(
    engines: list[MemoryEngine], doubling: penstock.Dataflow, tmp_path: Path
) -> None:
    with penstock.run(doubling, at=tmp_path, **FAST) as run:
        assert run.wait_until_idle(timeout_s=300)
        assert run.status().state == "running"
        assert "2 -> 4 replicas" in run.rescale(twice=4).text
        assert run.plan is not None and run.plan.replicas == {"twice": 4}
        assert "cut after twice" in run.cut("twice").text and run.plan.cuts == {"twice"}
        assert "no cut after twice" in run.fuse("twice").text and run.plan.cuts == frozenset()
        assert "5000 rows/s" in run.set_rate("numbers", 5_000).text
        run.apply(run.plan.replace(replicas={"twice": 3}))
    (engine,) = engines
    assert [row["n"] for row in engine.rows] == [2 * number for number in range(50)]
    record = penstock.open_run(tmp_path)
    assert record.status().state == "stopped" and not run.is_running and run.failure is None
    operators = record.operators()
    assert operators[operators.operator == "twice"].rows_in.sum() == 50
    assert [change["twice"] for change in record.plan_changes().replicas] == [4, 4, 4, 3]
    assert list(record.windows().window) == list(range(1, len(record.windows()) + 1))


def test_settings_of_the_policy_change_while_it_runs(engines: list[MemoryEngine], tmp_path: Path) -> None:
    options: dict[str, Any] = {"policy": "drs", "latency_s": 3.0, "warm_up_s": 0.0, "cooldown_s": 0.0, "windows": 2}
    with penstock.run(double_flow(None), at=tmp_path, **options, **FAST) as run:
        text = run.set(latency_s=1.5, cooldown_s=7.0).text
        assert text == "set latency_s=1.5 cooldown_s=7; the next decision uses it"
        before = run.decision_rows()[1]
        while run.decision_rows()[1] <= before:
            time.sleep(0.02)
        inputs = run.decision_rows()[0][-1][1].inputs
        assert (inputs["latency_s"], inputs["cooldown_s"]) == (1.5, 7.0)
        recorded = run.status().run
        assert recorded is not None and recorded.latency_target is not None
        assert recorded.latency_target.seconds == 1.5
        most = run.plan.slots
        assert run.set(max_slots=1).text == "set max_slots=1; the next decision uses it"
        remark = f"No more than {most} are used: the run has {most} slots."
        assert run.set(max_slots=most + 1, release_below_s=0.2).text.endswith(f"the next decision uses it. {remark}")
        with pytest.raises(penstock.RequestError, match=r"latency_s is -1\.0; it must be a finite number above 0"):
            run.set(latency_s=-1.0)
        with pytest.raises(penstock.RequestError, match="No setting is given"):
            run.set()


def test_a_run_without_a_policy_has_no_settings(engines: list[MemoryEngine], tmp_path: Path) -> None:
    with (
        penstock.run(double_flow(None), at=tmp_path, **FAST) as run,
        pytest.raises(penstock.RequestError, match="The run has no policy"),
    ):
        run.set(latency_s=1.5)


def test_a_run_that_stops_when_idle(engines: list[MemoryEngine], doubling: penstock.Dataflow, tmp_path: Path) -> None:
    run = penstock.run(doubling, at=tmp_path, until_idle=True, **FAST)
    assert run.wait(timeout_s=300) and run.stop_reason == "all input is processed"
    assert run.wait_until_idle() and run.stop().ok  # again: nothing happens


def test_two_threads_wait_until_the_run_is_idle(
    engines: list[MemoryEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    can_be_idle = threading.Event()
    idle = MemoryEngine.idle
    monkeypatch.setattr(MemoryEngine, "idle", lambda self: idle(self) and can_be_idle.is_set())
    with penstock.run(double_flow(1), at=tmp_path, **FAST) as run, ThreadPoolExecutor() as pool:
        patient = pool.submit(run.wait_until_idle, 60.0)
        assert not pool.submit(run.wait_until_idle, 0.3).result()  # its end must not end the check for the other one
        can_be_idle.set()
        assert patient.result()


def test_a_stop_ends_the_wait_for_an_idle_run(
    engines: list[MemoryEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryEngine, "idle", lambda self: False)
    run = penstock.run(double_flow(1), at=tmp_path, until_idle=True, **FAST)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(run.wait_until_idle)
        run.stop()
        assert waiting.result() is False and run.wait_until_idle() is False


def test_an_error_of_on_message_leaves_the_directory_free(engines: list[MemoryEngine], tmp_path: Path) -> None:
    def fails(text: str) -> None:
        raise KeyError("message")

    with pytest.raises(KeyError, match="message"):
        penstock.run(double_flow(None), at=tmp_path, on_message=fails, **FAST)
    recorded = penstock.open_run(tmp_path).status()
    assert recorded.state == "stopped" and recorded.run is not None
    assert recorded.run.stop_reason == "KeyError: 'message'"
    penstock.run(double_flow(None), at=tmp_path, **FAST).stop()


def test_ctrl_c_during_the_start_stops_the_run_before_it_is_raised(
    engines: list[MemoryEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = MemoryEngine.start

    def interrupted(self: MemoryEngine) -> None:
        signal.raise_signal(signal.SIGINT)  # handled in the main thread, which waits for the start
        time.sleep(0.2)
        start(self)

    monkeypatch.setattr(MemoryEngine, "start", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            penstock.run(double_flow(None), at=tmp_path, **FAST)
    finally:
        signal.signal(signal.SIGINT, before)
    recorded = penstock.open_run(tmp_path).status().run
    assert recorded is not None and recorded.stop_reason == "interrupted during the start"
    assert not engines[0].running


def test_ctrl_c_cancels_a_start_that_waits(
    engines: list[MemoryEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine notices it between two steps, because the JVM of a user's session cannot be ended."""
    cancelled: list[threading.Event] = []
    create = MemoryEngine.__init__

    def created(self: MemoryEngine, *args: Any, start_cancelled: threading.Event, **kwargs: Any) -> None:
        cancelled.append(start_cancelled)
        create(self, *args, **kwargs)

    def waits(self: MemoryEngine) -> None:
        main = threading.main_thread().ident  # a signal to this thread would not wake the main thread
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        assert cancelled[0].wait(60.0), "the start waits for its end"
        raise penstock.PenstockError("cancelled")

    monkeypatch.setattr(MemoryEngine, "__init__", created)
    monkeypatch.setattr(MemoryEngine, "start", waits)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            penstock.run(double_flow(None), at=tmp_path, **FAST)
    finally:
        signal.signal(signal.SIGINT, before)
    recorded = penstock.open_run(tmp_path).status().run
    assert recorded is not None and recorded.stop_reason == "interrupted during the start"


def test_an_error_in_the_block_stops_the_run_and_is_raised(engines: list[MemoryEngine], tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), penstock.run(double_flow(None), at=tmp_path, **FAST):
        raise ZeroDivisionError
    assert not engines[0].running
    recorded = penstock.open_run(tmp_path).status().run
    assert recorded is not None and recorded.stop_reason == "stopped by ZeroDivisionError in the program"


def test_a_run_is_resumed_from_a_file(engines: list[MemoryEngine], tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text("from tests.support.double_flow import double_flow\nflow = double_flow(None)\n")
    with penstock.run(str(file), at=tmp_path / "run", **FAST) as first:
        assert not first.is_resumed and str(file) in (first.resume_command() or "")
    with penstock.run(f"{file}:flow", at=tmp_path / "run", **FAST) as second:
        assert second.is_resumed


def test_a_failed_run_raises_in_wait_and_at_the_end_of_the_block(engines: list[MemoryEngine], tmp_path: Path) -> None:
    with (
        pytest.raises(penstock.RunFailedError, match="the disk is full.*then run the Python program again"),
        penstock.run(double_flow(None), at=tmp_path, **FAST) as run,
    ):
        engines[0].failed = "the disk is full"
        with pytest.raises(penstock.RunFailedError, match="the disk is full"):
            run.wait(timeout_s=300)
        assert run.failure == "the disk is full"


def test_the_failure_of_a_run_from_a_file_names_the_command_that_resumes_it(
    engines: list[MemoryEngine], tmp_path: Path
) -> None:
    file = tmp_path / "flow.py"
    file.write_text("from tests.support.double_flow import double_flow\nflow = double_flow(None)\n")
    run = penstock.run(str(file), at=tmp_path / "run", **FAST)
    engines[0].failed = "the disk is full"
    command = f"penstock run {file} --at {tmp_path / 'run'} --master 'local[2]'"
    with pytest.raises(penstock.RunFailedError, match=re.escape(f"resume with: {command}")):
        run.wait(timeout_s=300)


def test_an_error_of_the_start_is_raised_and_leaves_the_directory_free(
    engines: list[MemoryEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: MemoryEngine) -> None:
        raise penstock.PenstockError("Spark does not start.")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryEngine, "start", fails)
        with pytest.raises(penstock.PenstockError, match="Spark does not start"):
            penstock.run(double_flow(None), at=tmp_path, **FAST)
    penstock.run(double_flow(None), at=tmp_path, **FAST).stop()


def test_an_error_of_the_callback_is_raised_in_wait(engines: list[MemoryEngine], tmp_path: Path) -> None:
    def fails(window: object, plan: object) -> None:
        raise KeyError("callback")

    run = penstock.run(double_flow(None), at=tmp_path, on_window=fails, **FAST)
    with pytest.raises(KeyError, match="callback"):
        run.wait(timeout_s=300)
    assert not engines[0].running and run.failure == "KeyError: 'callback'"


def test_a_directory_has_one_run_at_a_time(engines: list[MemoryEngine], tmp_path: Path) -> None:
    with penstock.run(double_flow(None), at=tmp_path, **FAST), pytest.raises(StoreError, match="is running in"):
        penstock.run(double_flow(None), at=tmp_path, **FAST)


def test_waiting_for_a_source_that_never_ends_is_refused(engines: list[MemoryEngine], tmp_path: Path) -> None:
    with penstock.run(double_flow(None), at=tmp_path, **FAST) as run:
        with pytest.raises(penstock.PenstockError, match="Source 'numbers' never ends"):
            run.wait_until_idle()
        assert run.wait(timeout_s=0.0) is False
    with pytest.raises(penstock.PenstockError, match="Source 'numbers' never ends"):
        penstock.run(double_flow(None), at=tmp_path / "other", until_idle=True)
    assert not (tmp_path / "other").exists()


def test_the_program_keeps_its_signal_handlers(engines: list[MemoryEngine], tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with penstock.run(double_flow(None), at=tmp_path, **FAST):
        assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "magic"}, "There is no policy 'magic'; the policies are auto, drs"),
        ({"policy": "drs"}, "requires a latency target, a limit, or both"),
        ({"policy": "ds2", "latency_s": 1.0}, "'ds2' has no latency target; use policy 'auto' or 'drs'"),
        ({"policy": "ds2", "mst_study": "study"}, "'ds2' uses no throughput study; use policy 'mst'"),
        ({"policy": "ds2", "profile": "study"}, "'ds2' uses no profile; use policy 'stepwise'"),
        ({"policy": "stepwise"}, "requires 'profile': the directory of a study by 'penstock profile'"),
        ({"policy": "curves"}, "requires 'curves': the directory of a study by 'penstock curves', or a file"),
        ({"policy": "ds2", "curves": "study"}, "'ds2' uses no performance curves; use policy 'curves'"),
        ({"profile": "study"}, "Without a policy nothing uses the profile"),
        ({"policy": "mst"}, "'mst' requires 'executors'"),
        ({"policy": "drs", "latency_s": -1.0}, "latency_s is -1.0; it must be a finite number above 0"),
        ({"policy": "drs", "latency_s": 1.0, "mode": "on"}, "There is no mode 'on'"),
        ({"policy": "mst", "executors": (4, 1)}, "the smallest number comes first"),
        ({"quantile": 0.95}, "Without a policy nothing uses the quantile;"),
        ({"policy": "auto"}, "requires a latency target, a limit, or both"),
        ({"window_s": 0.0}, "window_s is 0.0"),
        ({"spark": object(), "master": "local[4]"}, "A Spark session has its own master"),
        ({"bootstrap_servers": "localhost:9092"}, "require the channel 'kafka'"),
        ({"channel": "kafka"}, "requires bootstrap servers"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_starts(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(penstock.OptionError, match=message):
        penstock.run(double_flow(None), at=tmp_path / "run", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_policy_decides_and_its_decisions_are_a_table(engines: list[MemoryEngine], tmp_path: Path) -> None:
    with penstock.run(
        double_flow(500), at=tmp_path, policy="threshold", mode="active", warm_up_s=0.0, windows=2, **FAST
    ) as run:
        run.wait_until_idle(timeout_s=300)
    decisions = run.decisions()
    # The engine in memory measures no cost per row, so the policy can only hold.
    assert set(decisions.kind) == {"hold"} and set(decisions.policy) == {"threshold"}
    assert len(run.decisions(changes_only=True)) == 0 and len(run.decisions(last=1)) == 1


def test_it_is_shown_in_a_shell_and_in_a_notebook(engines: list[MemoryEngine], tmp_path: Path) -> None:
    with penstock.run(double_flow(None), at=tmp_path, **FAST) as run:
        assert repr(run).startswith(f"<Run '{tmp_path}': double, running, ")
        assert "<td>running</td>" in run._repr_html_()
    assert ": double, stopped, " in repr(penstock.open_run(tmp_path))


def test_importing_penstock_is_light_and_starts_nothing() -> None:
    heavy = ("pyspark", "numba", "matplotlib", "pandas", "scipy", "rich")
    program = (
        f"import sys, threading, penstock; print([m for m in {heavy} if m in sys.modules], threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] 1"


def test_a_program_that_ends_without_stop_stops_its_run(tmp_path: Path) -> None:
    program = f"""
import sys
import tests.support.penstock_in_memory as memory
sys.modules[memory.stand_in.__name__] = memory.stand_in
import penstock
from tests.support.double_flow import double_flow
penstock.run(double_flow(None), at={str(tmp_path)!r}, window_s=0.05)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    recorded = penstock.open_run(tmp_path).status().run
    assert recorded is not None and recorded.stop_reason == "the program ended"
