"""The contract of a channel: every implementation passes this suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.channels import Channel, EmbeddedChannel, KafkaChannel, open_channel
from tests.support.stream_reading import ReadingQuery, commit_generation, reader_options

pytestmark = pytest.mark.spark

Create = Callable[[pytest.FixtureRequest, Path, str], Channel]


def embedded(request: pytest.FixtureRequest, folder: Path, schema: str) -> Channel:
    return EmbeddedChannel.create(folder, schema)


def kafka(request: pytest.FixtureRequest, folder: Path, schema: str) -> Channel:
    cluster = KafkaCluster(bootstrap_servers=request.getfixturevalue("broker").bootstrap_servers)
    return KafkaChannel.create(folder, schema, cluster=cluster, keys=("s.s",), groups=4)


IMPLEMENTATIONS: list[Create] = [embedded, kafka]


def rows(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop, numPartitions=3).selectExpr("id as n", "cast(id as string) as `s.s`")


def folder(run: Path) -> Path:
    return run / "channels" / "c"


@pytest.fixture(params=IMPLEMENTATIONS)
def channel(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Channel:
    commit_generation(tmp_path, 1)
    create: Create = request.param
    return create(request, folder(tmp_path), rows(spark, 0, 1).schema.json())


def test_a_key_is_appended_once(spark: SparkSession, channel: Channel) -> None:
    assert channel.append(rows(spark, 0, 10), "q.00000000") == 10
    assert channel.append(rows(spark, 10, 15), "q.00000001") == 5
    assert channel.append(rows(spark, 10, 15), "q.00000001") == 5  # the batch ran again
    assert channel.rows_between(channel.first(), channel.end()) == 15
    appends = channel.appends_between(channel.first(), channel.end())
    assert [(append.key, append.rows) for append in appends] == [("q.00000000", 10), ("q.00000001", 5)]
    assert all(append.bytes > 0 and append.at_s > 0 for append in appends)


@pytest.mark.parametrize("replicas", [1, 5])
def test_every_row_is_read_once_in_the_given_number_of_partitions(
    spark: SparkSession, channel: Channel, tmp_path: Path, replicas: int
) -> None:
    for number in range(3):
        channel.append(rows(spark, 10 * number, 10 * number + 10), f"q.{number:08d}")
    options = reader_options(tmp_path, "all", replicas)
    with ReadingQuery(spark, channel.read, options, channel.first()) as query:
        query.await_rows(30)
    assert sorted(row.n for row in query.rows) == list(range(30)) and query.partitions == {replicas}


def test_a_reader_starts_in_the_middle_and_rows_that_were_read_can_be_deleted(
    spark: SparkSession, channel: Channel, tmp_path: Path
) -> None:
    channel.append(rows(spark, 0, 10), "q.00000000")
    middle = channel.end()
    channel.append(rows(spark, 10, 20), "q.00000001")
    channel.delete_before(middle)
    with ReadingQuery(spark, channel.read, reader_options(tmp_path, "rest", 2), middle) as query:
        query.await_rows(10)
    assert sorted(row.n for row in query.rows) == list(range(10, 20))
    channel.delete_before(channel.end())
    assert channel.append(rows(spark, 10, 20), "q.00000001") == 10  # the channel still knows its key
    channel.append(rows(spark, 20, 25), "q.00000002")
    assert channel.end() == {"entry": 3}
    assert channel.rows_between({"entry": 2}, channel.end()) == 5


def test_an_idle_channel_object_sees_what_others_appended_and_deleted(
    spark: SparkSession, channel: Channel, tmp_path: Path
) -> None:
    channel.append(rows(spark, 0, 5), "q.00000000")
    idle = open_channel(folder(tmp_path))
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
    options = reader_options(tmp_path, "order", replicas)
    with ReadingQuery(spark, channel.read, options, channel.first()) as query:
        query.await_rows(300)
    for key in {row["s.s"] for row in query.rows}:
        assert [row.n for row in query.rows if row["s.s"] == key] == [n for n in range(300) if str(n % 7) == key]


def test_nothing_is_read_before_the_plan_is_committed(spark: SparkSession, channel: Channel, tmp_path: Path) -> None:
    channel.append(rows(spark, 0, 10), "q.00000000")
    options = reader_options(tmp_path, "early", 1, opens_at=2)
    with ReadingQuery(spark, channel.read, options, channel.first()) as query:
        query.await_idle()
        assert query.rows == []
        commit_generation(tmp_path, 2)
        query.await_rows(10)
    assert len(query.rows) == 10


def test_an_available_channel_can_be_deleted_twice(spark: SparkSession, channel: Channel) -> None:
    channel.append(rows(spark, 0, 5), "q.00000000")
    channel.check_available()
    channel.delete_rows()
    channel.delete_rows()  # a crash may interrupt the deletion of a run's files
