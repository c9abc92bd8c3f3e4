"""The loop beside somebody else's program, on an engine in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from memory_engine import MemoryEngine

import penstock as ps
from penstock.control.controller import Controller, Settings
from penstock.control.policies.threshold import Threshold
from penstock.control.watching import Watch
from penstock.store import Run, Store, StoreError, StoreReader


def test_executors_that_come_by_themselves_are_recorded(tmp_path: Path) -> None:
    flow = ps.Dataflow("theirs")
    rows = flow.source("rows", ps.generate(lambda n: n, schema="n bigint", rows_per_s=10))
    rows.rows("same", lambda row: row, "n bigint").sink("out", ps.memory())
    engine = MemoryEngine(flow, tmp_path)

    def begin() -> tuple[MemoryEngine, Store, Controller]:
        store = Store(tmp_path)
        store.begin(Run(dataflow="theirs", flow_file="-", pid=1, master="local[2]", started_s=time.time()))
        return engine, store, Controller(Threshold(), Settings(mode="recommend"), engine, store)

    watch = Watch(begin, every_s=0.02)
    try:
        eventually(lambda: recorded(tmp_path) == (2, 0))
        engine.plan = engine.plan.replace(slots=6)
        eventually(lambda: recorded(tmp_path) == (6, 1))
        time.sleep(0.1)
        assert recorded(tmp_path) == (6, 1)  # once
    finally:
        watch.stop()
    assert watch.error is None
    with StoreReader(tmp_path) as store:
        run = store.last_run()
        assert run is not None and [one.operator for one in run.operators] == ["rows", "same", "out"]  # for the graph


def recorded(at: Path) -> tuple[int | None, int]:
    """Slots that are shown, and how many changes."""
    try:
        with StoreReader(at) as store:
            plan = store.plan()
            return None if plan is None else plan.slots, len(store.plan_changes())
    except StoreError:  # it is only just being made
        return None, 0


def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)
