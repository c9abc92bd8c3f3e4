"""The loop beside somebody else's program, on an engine in memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import penstock
from penstock.control.controller import Controller, Settings
from penstock.control.policies.threshold import Threshold
from penstock.control.watch import Watch, WatchedProgram
from penstock.measure.window import Window
from penstock.store import ErrorRecord, RunStart, Store, StoreError, StoreReader
from tests.support.conditions import eventually
from tests.support.memory_engine import MemoryEngine


def test_executors_that_come_by_themselves_are_recorded(tmp_path: Path) -> None:
    engine, watch = watched(tmp_path, Store)
    try:
        eventually(lambda: recorded(tmp_path) == (2, 0))
        engine.plan = engine.plan.replace(slots=6)
        eventually(lambda: recorded(tmp_path) == (6, 1))
        before = windows(tmp_path)
        eventually(lambda: windows(tmp_path) > before + 3)
        assert recorded(tmp_path) == (6, 1)  # once
    finally:
        watch.stop()
    assert watch.error is None
    with StoreReader(tmp_path) as store:
        run = store.last_run()
        assert run is not None and [declared.operator for declared in run.operators] == [
            "rows",
            "same",
            "out",
        ]  # for the graph


class Full(Store):
    """On a disk that has no room for a while."""

    full = False

    def add_window(self, window: Window) -> int:
        self._room()
        return super().add_window(window)

    def add_error(self, error: ErrorRecord) -> None:
        self._room()
        super().add_error(error)

    def end_run(self, *, at_s: float, reason: str) -> None:
        self._room()
        super().end_run(at_s=at_s, reason=reason)

    def _room(self) -> None:
        if self.full:
            raise StoreError("database or disk is full")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_is_outlived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, watch = watched(tmp_path, Full)
    eventually(lambda: windows(tmp_path) > 0)
    monkeypatch.setattr(Full, "full", True)
    eventually(lambda: len(caplog.records) > 50 or not watch.alive)  # more than the errors after which it gives up
    before = windows(tmp_path)
    monkeypatch.setattr(Full, "full", False)
    eventually(lambda: windows(tmp_path) > before or not watch.alive)
    assert watch.alive
    monkeypatch.setattr(Full, "full", True)
    watch.stop()
    assert watch.error == "StoreError: database or disk is full" and not watch.alive


def test_a_passing_error_of_the_session_check_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(engine: MemoryEngine) -> str | None:
        raise ConnectionError("the session does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(MemoryEngine, "failure", fails)
        _, watch = watched(tmp_path, Store)
        eventually(lambda: watch.error is not None)
    eventually(lambda: windows(tmp_path) > 0 or not watch.alive)
    assert watch.alive and watch.error == "ConnectionError: the session does not answer"
    watch.stop()


def watched(at: Path, opened: type[Store]) -> tuple[MemoryEngine, Watch]:
    flow = penstock.Dataflow("theirs")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10))
    rows.rows("same", lambda row: row, schema="n bigint").sink("out", penstock.memory())
    engine = MemoryEngine(flow, at)

    def begin() -> WatchedProgram:
        store = opened(at)
        store.begin_run(
            RunStart(dataflow="theirs", kind="watch", flow_file="-", pid=1, master="local[2]", started_s=time.time())
        )
        engine.start()
        controller = Controller(Threshold(), Settings(mode="recommend"), engine, store)
        return WatchedProgram(engine=engine, store=store, controller=controller, ended=lambda: engine.failure())

    return engine, Watch(begin, window_s=0.02)


def windows(at: Path) -> int:
    try:
        with StoreReader(at) as store:
            return len(store.windows())
    except StoreError:  # it is only just being made
        return 0


def recorded(at: Path) -> tuple[int | None, int]:
    """Slots that are shown, and how many changes."""
    try:
        with StoreReader(at) as store:
            plan = store.plan()
            return None if plan is None else plan.slots, len(store.plan_changes())
    except StoreError:  # it is only just being made
        return None, 0
