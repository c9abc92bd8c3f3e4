"""The contract of a source: every kind of source passes this suite."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.topics import Topic
from penstock.engines.spark.sources.contract import StreamSource
from penstock.engines.spark.sources.factory import create_source
from tests.support.kafka_flows import fill
from tests.support.stream_reading import ReadingQuery, commit_generation, reader_options

pytestmark = pytest.mark.spark

ROWS, SCHEMA, FILES = 60, "n bigint", 3
READ_BY_PENSTOCK = ["generated", "generated_backlog", "vectorised", "replayed", "replayed_backlog", "files", "kafka"]
PACED = ["generated", "generated_backlog", "vectorised", "replayed", "replayed_backlog"]
WITH_RATE = {"generated", "replayed"}


def declared(kind: str, request: pytest.FixtureRequest, folder: Path) -> Any:
    """Return a source of this kind with the rows 0 to ROWS - 1."""
    folder.mkdir()
    for number in range(FILES):
        rows = range(number * ROWS // FILES, (number + 1) * ROWS // FILES)
        (folder / f"{number}.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in rows))
    pattern = str(folder / "*.json")
    match kind:
        case "generated":
            return penstock.generate(int, schema=SCHEMA, rows=ROWS, rows_per_s=10_000)
        case "generated_backlog":
            return penstock.generate(int, schema=SCHEMA, rows=ROWS)
        case "vectorised":
            return penstock.generate(lambda n: {"n": n}, schema=SCHEMA, rows=ROWS, vectorised=True)
        case "replayed":
            return penstock.replay(pattern, rows_per_s=10_000, schema=SCHEMA)
        case "replayed_backlog":
            return penstock.backlog(pattern, schema=SCHEMA)
        case "files":
            return penstock.files(pattern, schema=SCHEMA)
        case "kafka":
            servers = request.getfixturevalue("broker").bootstrap_servers
            topic = f"contract-{abs(hash(str(folder)))}"
            Topic(KafkaCluster(bootstrap_servers=servers), topic).create(2)
            fill(servers, topic, lambda n: {"n": n}, range(ROWS))
            return penstock.kafka(topic, bootstrap_servers=servers, format="json", schema=SCHEMA)
        case _:
            return penstock.spark_source(lambda spark: spark.readStream.format("rate").load())


def create(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> StreamSource:
    flow = penstock.Dataflow("contract")
    flow.source("rows", declared(kind, request, tmp_path / "input"))
    return create_source(flow["rows"], tmp_path / "sources")


@pytest.fixture(params=READ_BY_PENSTOCK)
def source(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> StreamSource:
    commit_generation(tmp_path, 1)
    source = create(request.param, request, tmp_path)
    source.start_clock()
    return source


@pytest.mark.parametrize("replicas", [1, 4])
def test_every_row_is_read_once_in_the_given_number_of_partitions(
    spark: SparkSession, source: StreamSource, tmp_path: Path, replicas: int
) -> None:
    first = source.first()
    assert not source.has_ended(first)
    with ReadingQuery(spark, source.read, reader_options(tmp_path, "all", replicas), first) as query:
        query.await_rows(ROWS)
    assert sorted(row.n for row in query.rows) == list(range(ROWS)) and query.partitions == {replicas}
    end = source.available()
    assert end is not None and source.has_ended(end)
    assert source.rows_between(end, end) == 0 and source.rows_between(first, end) in (ROWS, None)
    times = source.append_times(first, end)
    assert times and all(at_s > 0 and rows > 0 for at_s, rows in times)
    source.resume(end)  # it continues where it was read to
    source.start_clock()
    assert source.has_ended(end) and source.available() == end


def test_nothing_is_read_before_the_plan_is_committed(
    spark: SparkSession, source: StreamSource, tmp_path: Path
) -> None:
    options = reader_options(tmp_path, "early", 1, opens_at=2)
    with ReadingQuery(spark, source.read, options, source.first()) as query:
        query.await_idle()
        assert query.rows == []
        commit_generation(tmp_path, 2)
        query.await_rows(ROWS)
    assert len(query.rows) == ROWS


@pytest.mark.parametrize("kind", PACED)
def test_a_paced_source_appends_nothing_before_its_clock_starts(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    source = create(kind, request, tmp_path)
    assert source.available() == source.first()
    before_s = time.time()
    source.start_clock()
    assert min(at_s for at_s, _ in source.append_times({"row": 0}, {"row": ROWS}) or []) >= before_s
    source.resume({"row": ROWS // 2})  # the rest is appended after the break, at the same rate
    assert source.available() == {"row": ROWS // 2} and not source.has_ended({"row": ROWS // 2})
    resumed_s = time.time()
    source.start_clock()
    times = source.append_times({"row": ROWS // 2}, {"row": ROWS}) or []
    assert min(at_s for at_s, _ in times) >= resumed_s and sum(rows for _, rows in times) == ROWS // 2


@pytest.mark.parametrize("kind", [*READ_BY_PENSTOCK, "spark"])
def test_a_rate_is_changed_or_refused_with_the_name_of_the_source(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    source = create(kind, request, tmp_path)
    if kind in WITH_RATE:
        source.set_rate(5.0)
    else:
        with pytest.raises(penstock.PenstockError, match="source 'rows' .*rate"):
            source.set_rate(5.0)


@pytest.mark.parametrize("kind", [*READ_BY_PENSTOCK, "spark"])
def test_the_size_of_rows_is_sampled_or_unknown(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    sample = create(kind, request, tmp_path).sample_size(10)
    assert (sample is None) == (kind == "spark")
    # Kafka samples each partition alike, and all records may be in one of them.
    assert sample is None or (sample.rows >= (5 if kind == "kafka" else 10) and sample.bytes > 0)
