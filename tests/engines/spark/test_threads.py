"""Threads on Spark: exact output with changes of threads that restart no query, and the life of workers' clients."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.queries import retries
from tests.support import call_flow
from tests.support.killed_runs import check_killed_run
from tests.support.spark_runs import engine_for, plan_of, play, rows_read, wait_until

pytestmark = pytest.mark.spark


def observed_calls(engine: SparkEngine, threads: int) -> penstock.measure.window.CallWindow:
    """Return the calls of the first window whose mean number in flight is near the number of threads, at most 6."""
    observed: list[Any] = []

    def seen() -> bool:
        calls = engine.observe().operator("call").calls
        assert calls is not None and calls.threads == threads
        assert calls.in_flight is None or calls.in_flight <= 6 + 1e-6  # the threads before and after the change
        observed.append(calls)
        return calls.in_flight is not None and 0.6 * threads < calls.in_flight <= threads + 1e-6

    wait_until(seen, engine)
    return observed[-1]


@pytest.mark.parametrize(("order", "coroutines"), [(0, 0), (1, 1)])
def test_exact_while_threads_and_replicas_change(
    spark: SparkSession, tmp_path: Path, order: int, coroutines: int
) -> None:
    flow = call_flow.flow(output=penstock.memory(), rows=6_000, rows_per_s=800, order=order, coroutines=coroutines)
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


def check_order(spark: SparkSession, at: Path, order: int, coroutines: int) -> None:
    """Check output and order with an expired timeout, retries, and a change of threads in the middle."""
    rows = 700
    flow = call_flow.flow_with_positions(
        output=penstock.memory(), rows=rows, rows_per_s=300, order=order, coroutines=coroutines
    )
    engine = engine_for(flow, spark, at, plan_of(flow, {"call": 1}, set()))
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"call.threads": 12})])
        output = engine.rows("out")
        assert call_flow.differences_of_squares(output, rows) is None
        assert (call_flow.disordered(output, same_key=False) == 0) == (order == 0)
        assert (call_flow.disordered(output, same_key=True) == 0) == (order <= 1)
    finally:
        engine.stop()


@pytest.mark.parametrize(("order", "coroutines"), [(0, 1), (1, 0), (2, 0)])
def test_results_have_the_declared_order(spark: SparkSession, tmp_path: Path, order: int, coroutines: int) -> None:
    check_order(spark, tmp_path / "run", order, coroutines)


def test_exact_after_kill_9_during_a_plan_change(spark: SparkSession, tmp_path: Path) -> None:
    how = {"order": 2, "coroutines": 1}
    killed = check_killed_run(
        "tests.support.call_flow", how, 2_000, tmp_path / "run", spark, kills=1, seed=3, inside=True
    )
    assert killed


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("coroutines", [0, 1])
@pytest.mark.parametrize("order", range(len(call_flow.ORDERS)))
def test_soak_of_every_order(spark: SparkSession, tmp_path: Path, order: int, coroutines: int) -> None:
    check_order(spark, tmp_path / "ordered", order, coroutines)
    how = {"order": order, "coroutines": coroutines}
    for inside in (False, True):
        at = tmp_path / f"{inside}" / "run"
        assert check_killed_run("tests.support.call_flow", how, 2_000, at, spark, kills=3, seed=order, inside=inside)


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


class LineServer:
    """A service on loopback that answers lines after its release, and notices the end of each connection."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.open: Counter[int] = Counter()  # connections by process
        self._lock = threading.Lock()
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                pid = int(self.rfile.readline())
                with server._lock:
                    server.open[pid] += 1
                with contextlib.suppress(OSError):
                    while line := self.rfile.readline():
                        if server.released.is_set():
                            self.wfile.write(line)
                        else:
                            threading.Thread(target=self.later, args=(line,), daemon=True).start()
                with server._lock:
                    server.open[pid] -= 1

            def later(self, line: bytes) -> None:
                server.released.wait()
                with contextlib.suppress(OSError, ValueError):
                    self.wfile.write(line)

        self._tcp = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._tcp.daemon_threads = True
        self.port = self._tcp.server_address[1]
        threading.Thread(target=self._tcp.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._tcp.shutdown()
        self._tcp.server_close()


class LineClient:
    """A connection for each thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._own = threading.local()

    def ask(self, line: str) -> str:
        if not hasattr(self._own, "file"):
            self._own.file = socket.create_connection(("127.0.0.1", self._port)).makefile("rw")
            self._own.file.write(f"{os.getpid()}\n")
        self._own.file.write(f"{line}\n")
        self._own.file.flush()
        answer: str = self._own.file.readline()
        if not answer:
            raise ConnectionError("the service has gone")
        return answer.strip()


def test_no_connection_outlives_a_killed_worker_and_the_output_is_exact(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_DELAYS_S", tuple(delay_s / 40 for delay_s in retries.RETRY_DELAYS_S))
    server = LineServer()
    port = server.port
    flow = penstock.Dataflow("asks")

    def ask(row: dict[str, Any], client: LineClient) -> dict[str, Any]:
        return {"n": int(client.ask(str(row["n"])))}

    flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=200)).rows(
        "call", ask, "n bigint", threads=4, ordered=False, client=lambda: LineClient(port)
    ).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", plan_of(flow, {"call": 1}, set()))
    try:
        engine.start()
        wait_until(lambda: max(server.open.values(), default=0) == 4, engine)
        (worker,) = [pid for pid, count in server.open.items() if count]
        psutil.Process(worker).kill()
        wait_until(lambda: not server.open[worker] and not is_alive(worker), engine)
        server.released.set()
        wait_until(engine.idle, engine)
        assert sorted(row["n"] for row in engine.rows("out")) == list(range(200))
    finally:
        engine.stop()
        server.close()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
