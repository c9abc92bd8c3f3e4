"""Threads on Spark: exact output with changes of threads that restart no query, and the life of workers' clients."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.engines.spark.engine import SparkEngine
from tests.support import call_flow
from tests.support.killed_runs import check_killed_run
from tests.support.spark_runs import engine_for, rows_read, wait_until

pytestmark = pytest.mark.spark


def observed_calls(engine: SparkEngine, threads: int) -> penstock.measure.window.CallWindow:
    """Return the calls of the first window whose mean number in flight is near the number of threads."""
    observed: list[Any] = []

    def seen() -> bool:
        calls = engine.observe().operator("call").calls
        assert calls is not None and calls.threads == threads
        observed.append(calls)
        return calls.in_flight is not None and 0.6 * threads < calls.in_flight <= threads + 1e-6

    wait_until(seen, engine)
    return observed[-1]


@pytest.mark.parametrize("ordered", [True, "key"])
def test_exact_while_threads_and_replicas_change(spark: SparkSession, tmp_path: Path, ordered: bool | str) -> None:
    flow = call_flow.flow(output=penstock.memory(), rows=6_000, rows_per_s=800, ordered=ordered)
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        before = {query.checkpoint for query in engine.queries}
        observed_calls(engine, 6)
        applied = engine.apply(penstock.rescaled(flow, engine.plan, {"call.threads": 2}))
        assert (applied.changed, applied.stopped) == ("call: 6 -> 2 threads", ())
        calls = observed_calls(engine, 2)
        assert calls.call_s is not None and calls.call_s >= 0.002 and calls.wait_s is not None
        assert {query.checkpoint for query in engine.queries} == before
        engine.apply(penstock.rescaled(flow, engine.plan, {"call": 3, "call.threads": (12, 6, 6)}))
        wait_until(engine.idle, engine)
        assert call_flow.check(engine.rows("out"), 6_000) == []
    finally:
        engine.stop()
    resumed = engine_for(flow, spark, tmp_path / "run")
    try:
        resumed.start()
        assert resumed.plan.threads == {"call": (12, 6, 6)}
    finally:
        resumed.stop()


def test_exact_after_kill_9(spark: SparkSession, tmp_path: Path) -> None:
    killed = check_killed_run(
        "tests.support.call_flow", {}, 2_000, tmp_path / "run", spark, kills=2, seed=3, inside=False
    )
    assert killed


class Connection:
    """A client that writes a file when it is created and deletes it when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"{os.getpid()}-{time.monotonic_ns()}"
        self.file.touch()

    def close(self) -> None:
        self.file.rename(self.file.with_name(f"closed-{self.file.name}"))


def test_no_client_and_no_worker_outlives_a_failed_operator(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("fails")

    def fail(row: dict[str, Any], connection: Connection) -> dict[str, Any]:
        assert connection.file.exists()
        if row["n"] == 400:
            raise ValueError("row 400 is bad")
        return row

    flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=500, rows_per_s=400)).rows(
        "call", fail, "n bigint", threads=4, client=lambda: Connection(tmp_path)
    ).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        deadline = time.monotonic() + 300
        while engine.failure() is None:
            engine.recover()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "operator 'call' failed in" in str(engine.failure()) and "'n': 400" in str(engine.failure())
        assert rows_read(engine) < 500
    finally:
        engine.stop()
    closed = {file.name for file in tmp_path.glob("closed-*")}
    assert closed
    while [file for file in tmp_path.glob("[0-9]*") if psutil.pid_exists(int(file.name.split("-")[0]))]:
        assert time.monotonic() < deadline, "an unused client of a living worker was not closed"
        time.sleep(0.2)
