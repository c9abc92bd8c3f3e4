"""`penstock.watch` beside a plain PySpark program: the program does what it did, and gets a recommendation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.control.watch import Watch
from penstock.engines.spark.queries.progress import Progress, decode_progress
from penstock.engines.spark.watched import QueryLoad, WatchedEngine, backlog_rows
from penstock.store import StoreReader
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
    found: dict[str, Any] = {
        str(path.relative_to(at)): path.read_text() for path in sorted(at.glob("c*/*.json")) if path.is_file()
    }
    for path in sorted(at.glob("checkpoints/*/offsets/[0-9]*")):
        found[str(path.relative_to(at))] = path.read_text().splitlines()[2:]
    return found


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


def test_a_load_that_is_too_much_gets_a_recommendation(plain_spark: SparkSession, tmp_path: Path) -> None:
    # 40 ms a row on two slots are 50 rows/s at most, and 80 come: two executors of two slots, or more, are needed.
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
        eventually(lambda: bool(recommended(tmp_path / "watch")), timeout_s=500)
        assert query.isActive
    finally:
        query.stop()
        if watched is not None:
            watched.stop()
    assert all(slots >= 4 for slots in recommended(tmp_path / "watch"))


def test_arguments_that_make_no_sense_are_refused_at_once(plain_spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(penstock.PenstockError, match="policy='drs' cannot be used by watch"):
        penstock.watch(plain_spark, at=tmp_path, policy="drs")  # type: ignore[arg-type]
    with pytest.raises(penstock.PenstockError) as refused:
        penstock.watch(plain_spark, at=tmp_path, executors=(3, 1))
    assert str(refused.value) == (
        "executors=(3, 1) is invalid; "
        "give the smallest and the largest number of executors, from 1 to 10,000, such as (1, 6)."
    )


def test_the_backlog_of_a_kafka_source_is_read_from_its_offsets() -> None:
    source = {
        "startOffset": {"topic": {"0": 10, "1": 10}},
        "endOffset": {"topic": {"0": 60, "1": 60}},
        "latestOffset": {"topic": {"0": 100, "1": 90}},
        "numInputRows": 100,
    }
    assert backlog_rows(report({"batchId": 0, "sources": [source]})) == 70
    assert backlog_rows(report({"batchId": 0, "sources": [{"numInputRows": 5}]})) == 0


def report(progress: dict[str, Any]) -> Progress:
    return decode_progress(json.dumps(progress))


def batch(number: int, *, ends_s: float, rows: int, behind: int = 0) -> Progress:
    """Return the progress report of a batch that took one second."""
    timestamp = datetime.fromtimestamp(ends_s - 1.0, UTC).isoformat()
    source = {"startOffset": 0, "endOffset": rows, "latestOffset": rows + behind, "numInputRows": rows}
    took = {"triggerExecution": 1000, "addBatch": 900}
    batch = {"batchId": number, "timestamp": timestamp, "durationMs": took, "numInputRows": rows, "sources": [source]}
    return report(batch)


@pytest.mark.parametrize("trigger_s", [2.0, 60.0, 300.0])
def test_rows_come_between_batches_however_far_apart(trigger_s: float) -> None:
    query, came = QueryLoad(), []
    query.add_batches([batch(0, ends_s=0.0, rows=5_000_000)])  # what had piled up
    for number in range(1, 4):
        for look_s in range(10, int(trigger_s), 10):
            query.add_idle_time((number - 1) * trigger_s + look_s, 10.0)
            came.append(query.arriving_rows_per_s)
        query.add_batches([batch(number, ends_s=number * trigger_s, rows=round(1000 * trigger_s))])
        came.append(query.arriving_rows_per_s)
    assert set(came) <= {0.0, 1000.0} and came[-1] == 1000.0
    assert 0.0 not in came[came.index(1000.0) :]
    query.add_idle_time(4 * 3 * trigger_s + 100, 10.0)
    assert query.arriving_rows_per_s == 0.0


def test_a_backlog_that_grows_has_come_and_one_that_was_there_has_not() -> None:
    query = QueryLoad()
    query.add_batches([batch(0, ends_s=0.0, rows=100, behind=10_000)])
    assert query.arriving_rows_per_s == 0.0
    query.add_batches([batch(1, ends_s=10.0, rows=100, behind=10_400)])
    assert query.arriving_rows_per_s == pytest.approx(50.0)


def recommended(at: Path) -> list[int]:
    if not (at / "store.sqlite").exists():
        return []
    with StoreReader(at) as store:
        return [row.new.slots for _, row in store.decisions() if row.applied == "recommended" and row.new is not None]


def rows_seen(at: Path) -> int:
    with StoreReader(at) as store:
        return sum(one.rows_in for _, window in store.windows() for one in window.pipelines)


def eventually(condition: Callable[[], bool], timeout_s: float = 500.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.1)


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
