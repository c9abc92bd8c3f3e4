"""`penstock.watch` beside a plain PySpark program: the program does what it did, and gets a recommendation."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.control.watch import Watch
from penstock.engines.spark.watched import WatchedEngine
from penstock.measure.window import PipelineWindow
from penstock.store import DecisionRecord, StoreReader
from tests.support.conditions import eventually
from tests.support.engine_contract import DECIDING_CHECKS

pytestmark = pytest.mark.spark

FILES, LINES = 6, 20


def slowly(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        time.sleep(0.01 * len(frame))
        yield frame


def program(spark: SparkSession, books: Path, at: Path) -> list[Any]:
    """Two queries over the same files, one of them with state, one file a batch."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(books))

    def write(name: str) -> Callable[[DataFrame, int], None]:
        def batch(df: DataFrame, number: int) -> None:
            rows = [row.asDict() for row in df.collect()]
            (at / name).mkdir(parents=True, exist_ok=True)
            (at / name / f"{number}.json").write_text(json.dumps(sorted(rows, key=str)))

        return batch

    counts = lines.groupBy("value").count()
    return [
        counts.writeStream.queryName("counts")
        .outputMode("update")
        .foreachBatch(write("counts"))
        .option("checkpointLocation", str(at / "checkpoints" / "counts"))
        .trigger(availableNow=True)
        .start(),
        lines.mapInPandas(slowly, "value string")
        .writeStream.queryName("copy")
        .foreachBatch(write("copy"))
        .option("checkpointLocation", str(at / "checkpoints" / "copy"))
        .trigger(availableNow=True)
        .start(),
    ]


def what_is_left(at: Path) -> dict[str, Any]:
    """Output and offsets, without what is of the moment."""
    contents: dict[str, Any] = {
        str(path.relative_to(at)): path.read_text() for path in sorted(at.glob("c*/*.json")) if path.is_file()
    }
    for path in sorted(at.glob("checkpoints/*/offsets/[0-9]*")):
        contents[str(path.relative_to(at))] = path.read_text().splitlines()[2:]
    return contents


def confs_of(spark: SparkSession) -> dict[str, str]:
    return dict(spark.conf.getAll.items())


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    for number in range(FILES):
        (folder / f"{number}.txt").write_text("".join(f"word{(number + line) % 7}\n" for line in range(LINES)))
    return folder


@pytest.fixture(scope="module")
def alone(plain_spark: SparkSession, books: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The program without a watcher."""
    at = tmp_path_factory.mktemp("alone")
    for query in program(plain_spark, books, at):
        query.awaitTermination()
    return what_is_left(at)


def test_a_watched_program_does_what_it_did(
    plain_spark: SparkSession, books: Path, alone: dict[str, Any], tmp_path: Path
) -> None:
    before = confs_of(plain_spark)
    watched = penstock.watch(plain_spark, at=tmp_path / "watch", executors=(1, 4), window_s=0.2)
    for query in program(plain_spark, books, tmp_path / "program"):
        query.awaitTermination()
    eventually(lambda: rows_seen(tmp_path / "watch") > 0)
    watched.stop()
    assert watched.error is None and not watched.alive
    assert what_is_left(tmp_path / "program") == alone
    assert confs_of(plain_spark) == before
    with StoreReader(tmp_path / "watch") as store:
        run = store.last_run()
        assert run is not None and run.stop_reason == "stopped" and store.decisions()
        assert not store.plan_changes()


def test_what_fails_inside_stays_inside(
    plain_spark: SparkSession, books: Path, alone: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the watcher is broken")

    monkeypatch.setattr(WatchedEngine, "observe", broken)
    inside = penstock.watch(plain_spark, at=tmp_path / "inside", window_s=0.05)
    (tmp_path / "a file").touch()
    nowhere = penstock.watch(plain_spark, at=tmp_path / "a file" / "watch", window_s=0.05)
    for query in program(plain_spark, books, tmp_path / "program"):
        query.awaitTermination()
    eventually(lambda: inside.error is not None and nowhere.error is not None)
    inside.stop()
    nowhere.stop()
    assert "the watcher is broken" in str(inside.error)
    assert what_is_left(tmp_path / "program") == alone
    with StoreReader(tmp_path / "inside") as store:
        assert store.errors() and "the watcher is broken" in store.errors()[0].message


def test_a_local_program_that_is_too_slow_gets_its_sustainable_rate(plain_spark: SparkSession, tmp_path: Path) -> None:
    # 40 ms a row on two slots are 50 rows/s at most, and 80 arrive.
    def wait(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            time.sleep(0.04 * len(frame))
            yield frame

    rates = plain_spark.readStream.format("rate").option("rowsPerSecond", 80).option("numPartitions", 2).load()
    query = (
        rates.mapInPandas(wait, rates.schema)
        .writeStream.queryName("slow")
        .format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    watched: Watch | None = None
    try:
        watched = penstock.watch(plain_spark, at=tmp_path / "watch", executors=(1, 6), window_s=2.0)
        eventually(lambda: any(row.reason_code == "at-limit" for row in decisions(tmp_path / "watch")))
        assert query.isActive
    finally:
        query.stop()
        if watched is not None:
            watched.stop()
    assert all(row.new is None for row in decisions(tmp_path / "watch"))  # a local master has no executors to add
    limit = next(row for row in decisions(tmp_path / "watch") if row.reason_code == "at-limit")
    assert "waiting rows grow" in limit.reason and limit.binding is not None and "2 tasks on 2 slots" in limit.binding
    low = limit.inputs["capacity_low_rows_per_s"]
    assert low is not None and low <= 50.0
    with StoreReader(tmp_path / "watch") as store:
        assert all(query.backlog_rows is None for _, window in store.windows() for query in window.pipelines)


def test_files_jobs_and_crashes_are_counted(plain_spark: SparkSession, tmp_path: Path) -> None:
    """Eight files, one per batch; 65 jobs in each batch; the fourth batch fails."""
    (folder := tmp_path / "files").mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text("word\n" * 50)
    may_end = threading.Event()

    def many_jobs(df: DataFrame, number: int) -> None:
        if number == 3:
            may_end.wait(300)
            raise ValueError(f"batch {number} is broken\nand this is the second line")
        for _ in range(65):
            df.sparkSession.sparkContext.parallelize(range(2), 1).map(lambda n: time.sleep(0.01) or n).collect()
        df.collect()

    lines = plain_spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    stream = lines.writeStream.queryName("files").foreachBatch(many_jobs)
    watched = penstock.watch(plain_spark, at=tmp_path / "watch", window_s=0.5)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        # The files of batch 3 are read, so four of eight are pending.
        eventually(lambda: any(part.backlog_rows == 200 for part in parts(tmp_path / "watch")))
        may_end.set()
        eventually(lambda: any(part.state == "crashed" for part in parts(tmp_path / "watch")))
    finally:
        may_end.set()
        query.stop()
        watched.stop()
    timed = [part for part in parts(tmp_path / "watch") if part.batches and part.busy_s is not None]
    assert timed and all(part.busy_s is not None and part.busy_s / part.batches >= 65 * 0.02 for part in timed)
    (crashed,) = (part for part in parts(tmp_path / "watch") if part.state == "crashed")
    assert crashed.error is not None and crashed.error.startswith("ValueError: batch 3 is broken")
    assert "\n" not in crashed.error
    with StoreReader(tmp_path / "watch") as store:
        (error,) = store.errors()
        assert (error.where, error.message) == ("query 'files'", f"It crashed: {crashed.error}")


def test_arguments_that_make_no_sense_are_refused_at_once(plain_spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(penstock.PenstockError, match="policy='drs' cannot be used by watch"):
        penstock.watch(plain_spark, at=tmp_path, policy="drs")  # type: ignore[arg-type]
    with pytest.raises(penstock.PenstockError) as refused:
        penstock.watch(plain_spark, at=tmp_path, executors=(3, 1))
    assert str(refused.value) == (
        "executors=(3, 1) is invalid; "
        "give the smallest and the largest number of executors, from 1 to 10,000, such as (1, 6)."
    )


def decisions(at: Path) -> list[DecisionRecord]:
    if not (at / "store.sqlite").exists():
        return []
    with StoreReader(at) as store:
        return [row for _, row in store.decisions()]


def parts(at: Path) -> list[PipelineWindow]:
    """Return the queries of all windows."""
    if not (at / "store.sqlite").exists():
        return []
    with StoreReader(at) as store:
        return [part for _, window in store.windows() for part in window.pipelines]


def rows_seen(at: Path) -> int:
    with StoreReader(at) as store:
        return sum(pipeline.rows_in for _, window in store.windows() for pipeline in window.pipelines)


@pytest.mark.parametrize("check", DECIDING_CHECKS)
def test_contract_of_engines(
    check: Callable[[Any, Callable[[], None]], None], spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.readStream.name("contract").format("rate").option("rowsPerSecond", 50).load()
    stream = rows.writeStream.queryName("contract").format("noop")
    query = stream.option("checkpointLocation", str(tmp_path)).start()
    try:
        engine = WatchedEngine(spark)
        engine.attach()
        check(engine, lambda: time.sleep(0.2))
    finally:
        query.stop()
