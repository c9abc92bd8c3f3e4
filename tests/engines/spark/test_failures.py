"""Failures on Spark: the old plan stays in force, no row is lost, and the error names its cause."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.engines.spark.change.changeover import Changeover
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.executors import drift
from penstock.engines.spark.executors.negotiator import ExecutorCounts
from penstock.engines.spark.queries import retries
from penstock.engines.spark.run_directory.committed import Query
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.plan import default_plan
from tests.support.number_flows import failing, numbers
from tests.support.spark_runs import engine_for, rows_read, wait_until, wait_until_failed

pytestmark = pytest.mark.spark


def test_a_failed_change_leaves_the_old_plan_and_every_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [False]
    flow = failing(2_000, broken)
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        before = engine.plan
        cut = penstock.rescaled(flow, before, {"count": 3}).replace(cuts=frozenset({"double"}))

        broken[0] = True  # Spark refuses the query: nothing is stopped
        with pytest.raises(penstock.DataflowError, match="operator 'double': .*nowhere"):
            engine.apply(cut)
        assert engine.plan == before and engine.failure() is None
        broken[0] = False

        def refuse(*_: Any) -> None:
            raise OSError("no space left")

        with (
            monkeypatch.context() as patched
        ):  # the middle of the change: queries are stopped, and state is being repartitioned
            patched.setattr(type(spark._streamingCheckpointManager), "repartition", refuse)
            with pytest.raises(penstock.PenstockError, match="OSError: no space left. The old plan is in force again"):
                engine.apply(cut)
        assert engine.plan == before and engine.failure() is None

        def spoil(changeover: Changeover, *rest: Any) -> Query:
            query = prepare(changeover, *rest)
            for offsets in (tmp_path / "run" / "checkpoints" / query.checkpoint / "offsets").glob("[0-9]*"):
                write_atomically(offsets, b"v9")
            return query

        prepare = Changeover._prepare
        with monkeypatch.context() as patched:  # a query that Spark refuses only after its start
            patched.setattr(Changeover, "_prepare", spoil)
            with pytest.raises(penstock.PenstockError, match="Pipeline 'out' does not start: "):
                engine.apply(cut)
        assert engine.plan == before

        with monkeypatch.context() as patched:  # the last moment before the commit
            patched.setattr("penstock.engines.spark.run_directory.committed.Committed.save", refuse)
            with pytest.raises(penstock.PenstockError, match="The old plan is in force again"):
                engine.apply(cut)
        assert engine.plan == before

        engine.apply(cut)
        assert engine.plan == cut
        wait_until(engine.idle, engine)
        rows = engine.rows("out")
        assert Counter(row["m"] for row in rows) == Counter(2 * n for n in range(2_000))
        assert all(row["count"] == 1 for row in rows)
    finally:
        engine.stop()


def test_an_invalid_plan_does_not_affect_the_run(spark: SparkSession, tmp_path: Path) -> None:
    flow = failing(1_000, [False])
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        before = engine.plan
        for bad, says in (
            (before.replace(slots=7), "The plan has 7 slots, but this run has 2"),
            (before.replace(dataflow="other"), "The plan is for dataflow 'other'"),
            (before.replace(replicas=before.replicas | {"count": 0}), "1 or more"),
        ):
            with pytest.raises(penstock.PlanError, match=says):
                engine.apply(bad)
        assert engine.apply(before).stopped == ()
        wait_until(engine.idle, engine)
        assert len(engine.rows("out")) == 1_000
    finally:
        engine.stop()


def test_a_function_that_fails_at_run_time_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def fail(row: dict[str, int]) -> dict[str, int]:
        if row["n"] == 7:
            raise ValueError("seven is not allowed")
        return row

    flow = penstock.Dataflow("raising")
    numbers(flow, 100).rows("check", fail, schema="n bigint").sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        failure = wait_until_failed(engine)
        assert "Pipeline 'out' failed" in failure and "seven is not allowed" in failure
    finally:
        engine.stop()


def test_lost_executors_are_removed_from_the_plan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "CHECK_INTERVAL_S", 0.0)
    flow = penstock.Dataflow("lonely")
    numbers(flow, 10).rows("work", lambda row: row, schema="n bigint").sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        there = {"one": ExecutorCounts(planned=2, requested=2, registered=("1",))}
        engine._executors = SimpleNamespace(slots_per_executor=1, counts=lambda: there["one"], admit_new=lambda: None)
        engine._drift.patience_s = 0.2
        assert engine.recover() == () and engine.plan.slots == 2  # the executor may return
        wait_until(lambda: engine.plan.slots == 1 or bool(engine.recover()), engine)
        assert engine.plan.slots == 1 and engine.plan.replicas == {"work": 2}
        there["one"] = ExecutorCounts(planned=2, requested=2, registered=("1", "7"))
        wait_until(lambda: "continues with 2 slots instead of 1" in str(engine.recover()), engine)
        assert engine.plan.slots == 2
    finally:
        engine.stop()


def test_a_failed_query_is_restarted_unless_it_makes_no_progress(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first bad row fails once, like a lost worker; the second fails in every attempt."""
    monkeypatch.setattr(retries, "RETRY_DELAYS_S", (0.0, 0.1, 0.2))
    stumbled, healed = tmp_path / "stumbled", tmp_path / "healed"

    def work(row: dict[str, int]) -> dict[str, int]:
        if row["n"] == 700 and not stumbled.exists():
            stumbled.touch()
            raise OSError("a passing error")
        if row["n"] == 1_400 and not healed.exists():
            raise OSError("an error that stays")
        return row

    flow = penstock.Dataflow("falling")
    numbers(flow, 1_500).rows("work", work, schema="n bigint").sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", max_batch_rows=300)
    recoveries: list[str] = []
    try:
        engine.start()
        deadline = time.monotonic() + 400
        while engine.failure() is None and time.monotonic() < deadline:
            recoveries += engine.recover()
            time.sleep(0.05)
        assert [("a passing error" in error, "an error that stays" in error) for error in recoveries] == [
            (True, False),
            *3 * [(False, True)],
        ]
        failure = engine.failure()
        assert failure is not None and "an error that stays; row: {'n': 1400} (4 times at the same batch)" in failure
        healed.touch()
        engine.restart(engine.queries[0])
        comes_to_its_end(engine, rows=1_500)
    finally:
        engine.stop()


def comes_to_its_end(engine: SparkEngine, rows: int) -> None:
    """Assert that the output contains each row once."""
    wait_until(engine.idle, engine)
    assert Counter(row["n"] for row in engine.rows("out")) == Counter(range(rows))


def test_a_committed_plan_stays_if_the_old_one_cannot_be_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = penstock.Dataflow("cluttered")
    numbers(flow, 900, rows_per_s=300).stateless("same", lambda df: df).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")

    def fails(*_: Any, **__: Any) -> None:
        raise PermissionError("not yours")

    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        with monkeypatch.context() as broken:
            broken.setattr(RunDirectory, "delete_unused", fails)
            engine.apply(penstock.rescaled(flow, engine.plan, {"same": 1}))
        assert engine.generation == 2
        comes_to_its_end(engine, rows=900)
    finally:
        engine.stop()


def test_a_failed_change_can_be_repeated(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query of the first attempt runs an empty batch and is stopped; the second query has the same name."""
    flow = penstock.Dataflow("again")
    first = numbers(flow, 900, rows_per_s=200).stateless("first", lambda df: df)
    first.stateless("second", lambda df: df).sink("out", penstock.memory())
    whole = default_plan(flow, slots=2)
    engine = engine_for(flow, spark, tmp_path / "run", whole.replace(cuts=frozenset({"first"})))
    commit = SparkEngine._commit

    def fails(engine: SparkEngine, *rest: Any) -> None:
        offsets = engine.run / "checkpoints" / "out_g2" / "offsets"
        deadline = time.monotonic() + 400
        while not any(offsets.glob("0")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        raise OSError("a passing error")

    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        monkeypatch.setattr(SparkEngine, "_commit", fails)
        with pytest.raises(penstock.PenstockError, match="a passing error. The old plan is in force again"):
            engine.apply(whole)
        monkeypatch.setattr(SparkEngine, "_commit", commit)
        assert engine.generation == 1
        engine.apply(whole)
        comes_to_its_end(engine, rows=900)
    finally:
        engine.stop()
