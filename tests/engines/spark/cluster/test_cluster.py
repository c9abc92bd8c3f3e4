"""A real cluster of processes: executors start, stop and are killed during a run, and the output is exact."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.dataflow import Dataflow
from penstock.dataflow.sinks import Sink
from penstock.engines.spark import cluster
from penstock.engines.spark.cluster import ClusterError, ClusterSize, SparkCluster, daemons
from penstock.engines.spark.cluster.record import ClusterRecord
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.executors import ExecutorsError, FixedExecutors, negotiator_of
from penstock.engines.spark.jvm import ExecutorAllocation
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.session import session
from penstock.plan import default_plan
from penstock.store import StoreReader
from tests.support.conditions import eventually
from tests.support.spark_runs import engine_for, rows_read, wait_until

pytestmark = pytest.mark.spark

KEYS = 20
WORKERS = 3  # each executor takes seconds of CPU time to start


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    asked = ClusterSize(workers=WORKERS, slots=1, memory_mb=512)
    with cluster.start(tmp_path_factory.mktemp("cluster"), asked, ends_with_process=True, patience_s=1200) as started:
        yield started


@pytest.fixture(scope="module")
def on_cluster(up: SparkCluster) -> Iterator[SparkSession]:
    spark = session(up.master, "penstock cluster tests", up.confs)
    yield spark
    spark.stop()


def waited(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.002)
    return {"key": row["n"] % 20}


def counting(
    output: Sink | None = None, *, wait: Callable[[dict[str, Any]], dict[str, Any]] = waited, rows_per_s: float = 60.0
) -> Dataflow:
    """A source that appends rows until the rate is set to 0."""
    flow = penstock.Dataflow("counting")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=rows_per_s))
    keys = numbers.rows("wait", wait, schema="key bigint")
    keys.keyed("count", lambda df: df.groupBy("key").count(), keys=["key"]).sink("out", output or penstock.memory())
    return flow


def started(spark: SparkSession, at: Path, slots: int, **how: Any) -> SparkEngine:
    flow = counting()
    plan = default_plan(flow, slots=slots)
    engine = engine_for(flow, spark, at, plan, **how)
    engine.start()
    wait_until(lambda: rows_read(engine) > 0, engine)
    return engine


def resized(engine: SparkEngine, executors: int) -> penstock.Plan:
    """Return the plan with this number of executors and replicas."""
    plan = penstock.rescaled(engine.flow, engine.plan, {"wait": executors, "count": executors})
    return plan.replace(slots=executors)


def reads_on(engine: SparkEngine) -> None:
    before = rows_read(engine)
    wait_until(lambda: rows_read(engine) > before, engine)


def check_exact(engine: SparkEngine) -> None:
    """Assert that each appended row is counted once: the last counts equal those of a batch over the same rows."""
    engine.set_rate("numbers", 0.0)

    def is_through() -> bool:
        """Return whether all appended rows are in committed batches. Their counts were written before each commit."""
        checkpoints = [Checkpoint(engine.run / "checkpoints" / query.checkpoint) for query in engine.queries]
        has_backlog = [pipeline.backlog_rows for pipeline in engine.observe().pipelines] != [0]
        return not has_backlog and not any(checkpoint.interrupted() for checkpoint in checkpoints)

    wait_until(is_through, engine)
    expected = Counter(n % KEYS for n in range(rows_read(engine)))
    assert last_counts(engine.rows("out")) == expected


def last_counts(rows: Iterable[dict[str, Any]]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for row in rows:
        counts[row["key"]] = max(counts[row["key"]], row["count"])
    return counts


def mount_namespaces_work() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def worker_without(folder: Path, up: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a worker whose processes see an empty disk in place of `folder`, as on another machine."""
    popen = subprocess.Popen
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", lambda command, **how: popen([*hide, *command], **how))
        worker = daemons.start_worker(up.at, "apart", up.record.size, master=up.master)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


@pytest.mark.skipif(not mount_namespaces_work(), reason="unshare --mount is not permitted here")
def test_an_executor_that_cannot_access_the_run_directory_or_the_output_is_not_used(
    up: SparkCluster, on_cluster: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    rejected = f"cannot access the run directory '{runs / 'run'}': a file that the driver wrote there is not visible"
    engine = started(on_cluster, runs / "run", WORKERS, executor_patience_s=240.0)
    try:
        with worker_without(runs, up, monkeypatch):
            wait_until(lambda: cluster.status(up.at).workers_alive == WORKERS + 1, engine)
            with pytest.raises(ExecutorsError, match=rejected):
                engine.apply(resized(engine, WORKERS + 1))
            assert engine.plan.slots == WORKERS
            # An executor that joins without a change of the plan is released before a batch with its tasks is committed.
            ExecutorAllocation(on_cluster).request_total(WORKERS + 1)
            reports: list[str] = []
            wait_until(lambda: rejected in str(reports.extend(engine.recover()) or reports), engine)
            reads_on(engine)
            check_exact(engine)
            engine.stop()
            flow = counting(penstock.parquet(runs / "out"))  # the run directory itself is on a disk that all share
            plan = default_plan(flow, slots=WORKERS + 1)
            new = engine_for(flow, on_cluster, tmp_path / "shared", plan, executor_patience_s=240.0)
            with pytest.raises(ExecutorsError, match=f"cannot access the output folder '{runs / 'out'}'"):
                new.start()
    finally:
        engine.stop()


def tasks_done(spark: SparkSession) -> dict[str, int]:
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True).iterator()
    tasks = {}
    while executors.hasNext():
        executor = executors.next()
        tasks[executor.id()] = executor.completedTasks()
    return tasks


def daemon(up: SparkCluster, name: str) -> psutil.Process:
    record = ClusterRecord.load(up.at)
    assert record is not None
    return psutil.Process(next(entry.process.pid for entry in record.daemons if entry.name == name))


def executor_processes(up: SparkCluster) -> list[psutil.Process]:
    executors = []
    for number in range(WORKERS):
        for process in daemon(up, f"worker-{number}").children():
            with suppress(psutil.NoSuchProcess):  # for example a zombie of the script that started this worker
                if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                    executors.append(process)
    return executors


def test_executors_and_replicas_grow_and_shrink_together_and_every_row_counts_once(
    up: SparkCluster, on_cluster: SparkSession, tmp_path: Path
) -> None:
    engine = started(on_cluster, tmp_path / "run", 1)
    try:
        (first,) = engine.executors.counts().registered
        three = resized(engine, 3)
        applied = engine.apply(three)
        assert applied.plan == engine.plan == three and "slots: 1 -> 3" in applied.changed
        counts = engine.executors.counts()
        assert (counts.planned, counts.requested, len(counts.registered)) == (3, 3, 3)
        before = tasks_done(on_cluster)

        def all_work() -> bool:
            now = tasks_done(on_cluster)
            return all(now[executor] > before[executor] for executor in counts.registered)

        wait_until(all_work, engine)
        two = resized(engine, 2)
        assert engine.apply(two).plan == engine.plan == two
        left = engine.executors.counts()
        assert len(left.registered) == 2 and first in left.registered  # the newest executors stop
        eventually(lambda: len(executor_processes(up)) == 2)
        reads_on(engine)
        only = engine.plan.replace(slots=3)  # a change of executors alone restarts no query
        assert engine.apply(only).stopped == ()
        assert len(engine.executors.counts().registered) == 3
        check_exact(engine)
    finally:
        engine.stop()


def test_a_killed_executor_and_a_killed_worker_are_replaced_and_nothing_is_lost(
    up: SparkCluster, on_cluster: SparkSession, tmp_path: Path
) -> None:
    engine = started(on_cluster, tmp_path / "run", 2)
    try:
        before = set(engine.executors.counts().registered)
        executor_processes(up)[0].kill()
        wait_until(lambda: before != set(now := engine.executors.counts().registered) and len(now) == 2, engine)
        reads_on(engine)
        victim = executor_processes(up)[0].parent()
        assert victim is not None
        before = set(engine.executors.counts().registered)
        victim.kill()
        wait_until(lambda: before != set(now := engine.executors.counts().registered) and len(now) == 2, engine)
        eventually(lambda: cluster.status(up.at).is_healthy)  # the worker was restarted
        reads_on(engine)
        check_exact(engine)
    finally:
        engine.stop()


def test_a_plan_uses_the_available_executors_and_a_failed_one_releases_them(
    up: SparkCluster, on_cluster: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = started(on_cluster, tmp_path / "run", WORKERS)
    engine.executors.patience_s = 3.0  # type: ignore[attr-defined]
    try:
        applied = engine.apply(engine.plan.replace(slots=5))
        assert engine.plan.slots == applied.plan.slots == WORKERS
        assert "5 slots were requested and 3 are available" in applied.changed
        counts = engine.executors.counts()
        assert (counts.planned, counts.requested, len(counts.registered)) == (5, WORKERS, WORKERS)

        engine.executors.patience_s = 240.0  # type: ignore[attr-defined]
        engine.apply(resized(engine, 1))
        before = engine.plan

        def refuse(*_: Any) -> None:
            raise OSError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr("penstock.engines.spark.run_directory.committed.Committed.save", refuse)
            with pytest.raises(penstock.PenstockError, match="The old plan is in force again"):
                engine.apply(resized(engine, 2))
        assert engine.plan == before
        assert len(engine.executors.counts().registered) == 1
        check_exact(engine)
    finally:
        engine.stop()


def test_executors_lost_during_their_warm_up_are_not_waited_for_endlessly(
    up: SparkCluster, on_cluster: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    executors = negotiator_of(on_cluster, patience_s=240.0)
    executors.resize(1)
    negotiator_of(on_cluster, patience_s=240.0, warms_up=False).resize(2)  # a cold executor registers
    executors.patience_s = 5.0  # type: ignore[attr-defined]

    def lost(*_: Any) -> Iterator[Any]:  # a frozen executor: none of its tasks ends
        time.sleep(600.0)
        return iter([])

    monkeypatch.setattr("penstock.engines.spark.executors.warm_up._task", lambda _: lost)
    assert executors.resize(2) == 2
    executors.patience_s = 240.0  # type: ignore[attr-defined]
    assert executors.resize(1) == 1  # no job still occupies its slots


def test_a_run_continues_without_the_master_and_can_be_resized_when_it_returns(
    up: SparkCluster, on_cluster: SparkSession, tmp_path: Path
) -> None:
    engine = started(on_cluster, tmp_path / "run", 2)
    try:
        daemon(up, "master").kill()
        reads_on(engine)
        assert len(engine.executors.counts().registered) == 2
        eventually(lambda: cluster.status(up.at).is_healthy and bool(cluster.status(up.at).runs))
        engine.apply(resized(engine, 3))
        assert len(engine.executors.counts().registered) == 3
        check_exact(engine)
    finally:
        engine.stop()


def test_a_watched_program_gets_the_executors_that_its_load_needs_and_keeps_no_others(
    on_cluster: SparkSession, tmp_path: Path
) -> None:
    def slowly(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """A slot serves 100 rows/s."""
        for frame in frames:
            time.sleep(0.01 * len(frame))
            yield frame

    def query(name: str, rows_per_s: int) -> Any:
        stream = on_cluster.readStream.name(name).format("rate")
        rows = stream.options(rowsPerSecond=rows_per_s, numPartitions=4).load()
        waits = rows.mapInPandas(slowly, rows.schema).writeStream.queryName(name).format("noop")
        return waits.option("checkpointLocation", str(tmp_path / name)).start()

    negotiator_of(on_cluster, warms_up=False).resize(1)
    watched = penstock.watch(on_cluster, at=tmp_path / "watch", executors=(1, 3), mode="active", window_s=1.0)
    small, large = query("small", 10), query("large", 150)
    try:
        eventually(lambda: executors_of(on_cluster) > 1 or not large.isActive)
        large.stop()
        eventually(lambda: executors_of(on_cluster) == 1 or not small.isActive)
        assert small.isActive and small.exception() is None and watched.error is None
    finally:
        watched.stop()
        small.stop()
        large.stop()
    with StoreReader(tmp_path / "watch") as store:
        done = [row.reason_code for _, row in store.decisions() if row.applied == "ok"]
    assert {"shortage", "release"} <= set(done), done


def long_waited(row: dict[str, Any]) -> dict[str, Any]:
    """A slot serves 10 rows/s at most."""
    time.sleep(0.1)
    return {"key": row["n"] % KEYS}


def test_drs_requests_executors_for_a_rising_load_and_releases_them_when_it_falls(
    on_cluster: SparkSession, tmp_path: Path
) -> None:
    flow = counting(wait=long_waited, rows_per_s=2.0)
    negotiator_of(on_cluster, warms_up=False).resize(1)
    with penstock.run(
        flow,
        at=tmp_path / "run",
        spark=on_cluster,
        plan=default_plan(flow, slots=1),
        policy="drs",
        mode="active",
        executors=(1, 3),
        executor_cores=1,
        latency_s=10.0,
        release_below_s=8.0,
        window_s=1.0,
        windows=2,
        warm_up_s=1.0,
        cooldown_s=5.0,
        batch_s=0.5,
    ) as run:

        def slots_changed() -> list[int]:
            """Return by how much each applied decision changed the slots."""
            rows = [row for _, row in run.decision_rows(changes_only=True)[0] if row.applied == "ok"]
            return [row.new.slots - row.old.slots for row in rows if row.new is not None]

        def waits_until(condition: Callable[[], bool]) -> None:
            eventually(lambda: condition() or not run.is_running)
            assert run.is_running, run.stop_reason

        def is_through() -> bool:
            """Return whether all appended rows are in committed batches."""
            window = run.status().window
            if window is None or window.external_rows_per_s != 0.0 or window.operator("numbers").backlog_rows != 0:
                return False
            return not any(Checkpoint(at).interrupted() for at in (run.directory / "checkpoints").iterdir())

        waits_until(lambda: bool(run.rows("out")))
        run.set_rate("numbers", 25.0)  # more than one executor serves
        waits_until(lambda: any(change > 0 for change in slots_changed()))
        waits_until(lambda: executors_of(on_cluster) > 1)
        run.set_rate("numbers", 2.0)
        waits_until(lambda: any(change < 0 for change in slots_changed()))
        waits_until(lambda: (plan := run.plan) is not None and executors_of(on_cluster) == plan.slots < WORKERS)
        run.set_rate("numbers", 0.0)
        waits_until(is_through)
    window = run.status().window  # the last one, from the end of the run
    assert window is not None
    appended = window.operator("numbers").rows_in_total
    assert appended and last_counts(run.rows("out")) == Counter(n % KEYS for n in range(appended))


def executors_of(spark: SparkSession) -> int:
    return len(negotiator_of(spark, warms_up=False).counts().registered)


def test_a_local_master_refuses_other_executors_and_says_what_to_do() -> None:
    executors = FixedExecutors(2)
    assert executors.resize(2) == 2
    with pytest.raises(penstock.PlanError, match="The plan has 4 slots, but this run has 2"):
        executors.resize(4)
    with pytest.raises(
        ExecutorsError,
        match="3 executors were requested, but a local master is a single process.*penstock cluster start",
    ):
        executors.request(3)
    with pytest.raises(ClusterError, match="0 workers with 2 slots each"):
        ClusterSize(workers=0).check()
