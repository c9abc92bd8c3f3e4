"""The contract of a channel: every implementation passes this suite."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.channels import Channel, EmbeddedChannel, KafkaChannel, open_channel
from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.reading.offsets import save_start_offsets
from penstock.engines.spark.reading.reader import ReaderOptions

pytestmark = pytest.mark.spark

Make = Callable[[pytest.FixtureRequest, Path, str], Channel]


def embedded(request: pytest.FixtureRequest, folder: Path, schema: str) -> Channel:
    return EmbeddedChannel.create(folder, schema, None)


def kafka(request: pytest.FixtureRequest, folder: Path, schema: str) -> Channel:
    cluster = KafkaCluster(bootstrap_servers=request.getfixturevalue("broker").bootstrap_servers)
    return KafkaChannel.create(folder, schema, None, cluster=cluster, keys=("s.s",), groups=4)


MAKERS: list[Make] = [embedded, kafka]


def rows(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop, numPartitions=3).selectExpr("id as n", "cast(id as string) as `s.s`")


@pytest.fixture(params=MAKERS)
def channel(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Channel:
    (tmp_path / PLAN_FILE).write_text('{"generation": 1}')
    return request.param(request, tmp_path / "channels" / "c", rows(spark, 0, 1).schema.json())


def options(run: Path, query: str, replicas: int, opens_at: int = 1) -> ReaderOptions:
    return ReaderOptions(
        name="c", replicas=replicas, query=query, opens_at=opens_at, run=run, batch_s=2.0, max_rows=None
    )


def read(
    spark: SparkSession, channel: Channel, run: Path, query: str, start: dict[str, int], replicas: int, expected: int
) -> tuple[list[int], set[int]]:
    """All rows from an offset on, and the numbers of partitions that they came in."""
    save_start_offsets(run, query, {"c": start})
    found: list[int] = []
    partitions: set[int] = set()

    def keep(df: DataFrame, number: int) -> None:
        partitions.add(df.rdd.getNumPartitions())
        found.extend(row.n for row in df.collect())

    df = channel.read(spark, options(run, query, replicas))
    stream = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(run / query)).start()
    try:
        deadline = time.monotonic() + 60
        while len(found) < expected and time.monotonic() < deadline:
            assert stream.exception() is None
            time.sleep(0.05)
    finally:
        stream.stop()
    return sorted(found), partitions


def test_a_key_is_appended_once(spark: SparkSession, channel: Channel) -> None:
    assert channel.append(rows(spark, 0, 10), "q.00000000") == 10
    assert channel.append(rows(spark, 10, 15), "q.00000001") == 5
    assert channel.append(rows(spark, 10, 15), "q.00000001") == 5  # the batch ran again
    assert channel.rows_between(channel.first(), channel.end()) == 15
    assert [(one.key, one.rows) for one in channel.appends_between(channel.first(), channel.end())] == [
        ("q.00000000", 10),
        ("q.00000001", 5),
    ]


@pytest.mark.parametrize("replicas", [1, 5])
def test_readers_get_every_row_in_exactly_so_many_partitions(
    spark: SparkSession, channel: Channel, tmp_path: Path, replicas: int
) -> None:
    for number in range(3):
        channel.append(rows(spark, 10 * number, 10 * number + 10), f"q.{number:08d}")
    found, partitions = read(spark, channel, tmp_path, "all", channel.first(), replicas, 30)
    assert found == list(range(30)) and partitions == {replicas}


def test_a_reader_may_start_in_the_middle_and_what_is_read_may_be_forgotten(
    spark: SparkSession, channel: Channel, tmp_path: Path
) -> None:
    channel.append(rows(spark, 0, 10), "q.00000000")
    middle = channel.end()
    channel.append(rows(spark, 10, 20), "q.00000001")
    channel.delete_before(middle)
    assert read(spark, channel, tmp_path, "rest", middle, 2, 10)[0] == list(range(10, 20))
    channel.delete_before(channel.end())
    assert channel.append(rows(spark, 10, 20), "q.00000001") == 10  # its key is still known
    channel.append(rows(spark, 20, 25), "q.00000002")
    assert channel.end() == {"entry": 3}
    assert channel.rows_between({"entry": 2}, channel.end()) == 5


def test_one_that_stood_idle_goes_on_behind_what_others_appended_and_forgot(
    spark: SparkSession, channel: Channel
) -> None:
    channel.append(rows(spark, 0, 5), "q.00000000")
    idle = open_channel(channel.folder)
    assert idle.end() == {"entry": 1}
    for number in range(1, 4):
        channel.append(rows(spark, 10 * number, 10 * number + 10), f"q.{number:08d}")
    channel.delete_before(channel.end())
    assert idle.append(rows(spark, 40, 47), "q.00000004") == 7
    assert idle.end() == channel.end() == {"entry": 5}
    assert channel.rows_between({"entry": 4}, channel.end()) == 7


@pytest.mark.parametrize("replicas", [3, 6])
def test_rows_of_a_key_keep_their_order(spark: SparkSession, channel: Channel, tmp_path: Path, replicas: int) -> None:
    for number in range(3):
        keyed = spark.range(100 * number, 100 * number + 100, numPartitions=1)
        channel.append(keyed.selectExpr("id as n", "cast(id % 7 as string) as `s.s`"), f"q.{number:08d}")
    save_start_offsets(tmp_path, "order", {"c": channel.first()})
    found: list[Any] = []
    df = channel.read(spark, options(tmp_path, "order", replicas))
    stream = df.writeStream.foreachBatch(lambda df, number: found.extend(df.collect()))
    query = stream.option("checkpointLocation", str(tmp_path / "order")).start()
    try:
        deadline = time.monotonic() + 60
        while len(found) < 300 and time.monotonic() < deadline:
            assert query.exception() is None
            time.sleep(0.05)
    finally:
        query.stop()
    for key in {row["s.s"] for row in found}:
        assert [row.n for row in found if row["s.s"] == key] == [n for n in range(300) if str(n % 7) == key]


def test_nothing_is_read_before_the_plan_is_committed(spark: SparkSession, channel: Channel, tmp_path: Path) -> None:
    channel.append(rows(spark, 0, 10), "q.00000000")
    save_start_offsets(tmp_path, "early", {"c": channel.first()})
    seen: list[Any] = []
    df = channel.read(spark, options(tmp_path, "early", 1, opens_at=2))
    stream = df.writeStream.foreachBatch(lambda df, number: seen.extend(df.collect()))
    query = stream.option("checkpointLocation", str(tmp_path / "early")).start()
    try:
        deadline = time.monotonic() + 60
        while "Waiting" not in query.status["message"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert seen == []
        (tmp_path / PLAN_FILE).write_text('{"generation": 2}')
        while len(seen) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(seen) == 10
    finally:
        query.stop()
