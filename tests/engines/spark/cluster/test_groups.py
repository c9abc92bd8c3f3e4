"""Executor groups on a real cluster: tasks stay in their group, and a change of groups loses no row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark import cluster
from penstock.engines.spark.cluster import ClusterSize, SparkCluster
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.executors import ExecutorsError, FixedExecutors
from penstock.engines.spark.jvm import StatusStore, executors_of_tasks
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.session import session
from penstock.plan import ExecutorGroup, default_plan
from tests.support.spark_runs import engine_for, rows_read, wait_until

KEYS = 20
WORKERS = 4
WAITING = ExecutorGroup(operators=("wait",), slots=1)
COUNTING = ExecutorGroup(operators=("count",), slots=1)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    asked = ClusterSize(workers=WORKERS, slots=1, memory_mb=512)
    with cluster.start(tmp_path_factory.mktemp("cluster"), asked, ends_with_process=True, patience_s=1200) as started:
        yield started


@pytest.fixture(scope="module")
def on_cluster(up: SparkCluster) -> Iterator[SparkSession]:
    spark = session(up.master, "penstock group tests", up.confs)
    yield spark
    spark.stop()


def this_task() -> int:
    task = TaskContext.get()
    assert task is not None
    return task.taskAttemptId()


def waited(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": row["n"] % KEYS, "task": this_task()}


def counted(df: DataFrame) -> DataFrame:
    task = F.udf(this_task, "bigint").asNondeterministic()
    counts = df.groupBy("key").agg(F.count("*").alias("count"), F.max("task").alias("wait_task"))
    return counts.withColumn("count_task", task())


def counting() -> Dataflow:
    flow = penstock.Dataflow("counting")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=60))
    keys = numbers.rows("wait", waited, schema="key bigint, task bigint")
    keys.keyed("count", counted, keys=["key"]).sink("out", penstock.memory())
    return flow


def reads_on(engine: SparkEngine) -> None:
    before = rows_read(engine)
    wait_until(lambda: rows_read(engine) > before, engine)


def kill(up: SparkCluster, executor: str) -> None:
    """Kill the process of an executor."""
    for daemon in up.record.daemons:
        for process in psutil.Process(daemon.process.pid).children():
            with suppress(psutil.NoSuchProcess):
                command = process.cmdline()
                if "--executor-id" in command and command[command.index("--executor-id") + 1] == executor:
                    process.kill()
                    return
    raise AssertionError(f"executor {executor} has no process")


@pytest.mark.spark
def test_groups_run_their_operators_only_and_no_change_of_groups_loses_a_row(
    up: SparkCluster, on_cluster: SparkSession, tmp_path: Path
) -> None:
    flow = counting()
    shared = default_plan(flow, slots=1)
    engine = engine_for(flow, on_cluster, tmp_path / "run", shared, executor_patience_s=240.0)
    engine.start()
    try:
        reads_on(engine)
        store = StatusStore(on_cluster)
        grouped = shared.replace(slots=3, groups={"waiting": WAITING, "counting": COUNTING})
        applied = engine.apply(grouped)
        assert applied.plan == engine.plan == penstock.plan.validated(flow, grouped)
        first_job = store.next_job()
        counts = engine.executors.counts()
        assert [len(ids) for ids in (counts.shared, *counts.groups.values())] == [1, 1, 1]

        def rows_of_tasks() -> list[tuple[str, str]]:
            """Return the executors that ran the operators for each row of a result since the change."""
            stages = {stage for job in store.jobs_since(first_job) for stage in job.stage_ids}
            ran = executors_of_tasks(on_cluster, stages)
            tasks = [(row["wait_task"], row["count_task"]) for row in engine.rows("out")]
            return [(ran[wait], ran[count]) for wait, count in tasks if wait in ran and count in ran]

        wait_until(lambda: len(rows_of_tasks()) > KEYS, engine)
        (waiting,), (counting_,) = counts.groups["waiting"], counts.groups["counting"]
        assert set(rows_of_tasks()) == {(waiting, counting_)}

        kill(up, waiting)
        wait_until(lambda: len(now := engine.executors.counts().groups["waiting"]) == 1 and now != (waiting,), engine)
        reads_on(engine)
        now = engine.executors.counts()
        assert (now.shared, now.groups["counting"]) == (counts.shared, counts.groups["counting"])

        before = engine.plan
        larger = ExecutorGroup(operators=("wait",), slots=3)
        engine.executors.patience_s = 3.0  # type: ignore[attr-defined]
        with pytest.raises(ExecutorsError, match="Group 'waiting' has . of its 3 executors"):
            engine.apply(before.replace(slots=5, groups=before.groups | {"waiting": larger}))
        engine.executors.patience_s = 240.0  # type: ignore[attr-defined]
        assert engine.plan == before
        reads_on(engine)

        engine.stop()
        engine = engine_for(flow, on_cluster, tmp_path / "run", executor_patience_s=240.0)
        engine.start()
        assert engine.plan == before
        reads_on(engine)

        engine.apply(shared.replace(slots=2))
        counts = engine.executors.counts()
        assert len(counts.registered) == 2 and not counts.groups and counts.surplus == 0
        reads_on(engine)
        engine.set_rate("numbers", 0.0)

        def is_through() -> bool:
            checkpoints = [Checkpoint(engine.run / "checkpoints" / query.checkpoint) for query in engine.queries]
            has_backlog = [pipeline.backlog_rows for pipeline in engine.observe().pipelines] != [0]
            return not has_backlog and not any(checkpoint.interrupted() for checkpoint in checkpoints)

        wait_until(is_through, engine)
        last: Counter[int] = Counter()
        for row in engine.rows("out"):
            last[row["key"]] = max(last[row["key"]], row["count"])
        assert last == Counter(n % KEYS for n in range(rows_read(engine)))
    finally:
        engine.stop()


def test_a_local_master_refuses_groups_and_says_what_to_do() -> None:
    with pytest.raises(penstock.PlanError, match=r"groups of executors \(waiting\), but a local master.*cluster start"):
        FixedExecutors(2).check_groups({"waiting": WAITING})
