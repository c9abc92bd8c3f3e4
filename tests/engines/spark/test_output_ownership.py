"""Output of another run is never doubled or deleted without a declaration, on Spark and with a real broker."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.brokers.broker import Broker
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.topics import Topic
from penstock.engines.spark.engine import SparkEngine
from tests.support.kafka_flows import fill, rows_of
from tests.support.number_flows import numbers
from tests.support.spark_runs import engine_for, wait_until, wait_until_failed

pytestmark = pytest.mark.spark


def flow_to(sink: Any, rows: int, *, first: int = 0) -> penstock.Dataflow:
    flow = penstock.Dataflow("numbering")
    numbers(flow, rows).stateless("shift", lambda df: df.selectExpr(f"n + {first} as n")).sink("out", sink)
    return flow


def run(engine: SparkEngine) -> None:
    try:
        engine.start()
        wait_until(engine.idle, engine)
    finally:
        engine.stop()


def written(spark: SparkSession, folder: Path) -> Counter[int]:
    return Counter(row.n for row in spark.read.parquet(str(folder)).collect())


class Interrupted(BaseException):
    """The end of a driver between two steps."""


def test_a_run_that_is_started_again_does_not_double_its_output(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, at = tmp_path / "out", tmp_path / "run"
    run(engine_for(flow_to(penstock.parquet(out), 50), spark, at))
    shutil.rmtree(at)
    with pytest.raises(penstock.PenstockError, match="already contains output of an earlier run in"):
        run(engine_for(flow_to(penstock.parquet(out), 50), spark, at))
    assert written(spark, out) == Counter(range(50))
    # A run that does not start deletes nothing.
    failing = penstock.Dataflow("numbering")

    def refused(df: DataFrame) -> DataFrame:
        return df.select("nowhere")

    numbers(failing, 70).stateless("shift", refused).sink("out", penstock.parquet(out, existing="overwrite"))
    with pytest.raises(penstock.PenstockError, match="nowhere"):
        run(engine_for(failing, spark, at))
    assert written(spark, out) == Counter(range(50))
    # A driver that ends after the claim and before the first batch is started again.
    flow = flow_to(penstock.parquet(out, existing="overwrite"), 70)
    with monkeypatch.context() as patch:
        patch.setattr(SparkEngine, "_commit", lambda *_: (_ for _ in ()).throw(Interrupted()))
        with pytest.raises(Interrupted):
            run(engine_for(flow, spark, at))
    run(engine_for(flow, spark, at))
    assert written(spark, out) == Counter(range(70))
    run(engine_for(flow, spark, at))  # resumed: it deletes nothing, and there is nothing left to do
    assert written(spark, out) == Counter(range(70))
    run(engine_for(flow_to(penstock.parquet(out, existing="append"), 20), spark, tmp_path / "second"))
    assert written(spark, out) == Counter([*range(70), *range(20)])


def test_a_live_run_whose_folder_is_overwritten_stops(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flow = penstock.Dataflow("endless")
    numbers(flow, 100_000, rows_per_s=100).sink("out", penstock.parquet(out))
    first = engine_for(flow, spark, tmp_path / "first")
    try:
        first.start()
        wait_until(lambda: any(out.glob("*.parquet")), first)
        run(engine_for(flow_to(penstock.parquet(out, existing="overwrite"), 50), spark, tmp_path / "second"))
        assert f"was overwritten by the run in '{tmp_path / 'second'}'" in wait_until_failed(first)
    finally:
        first.stop()
    assert written(spark, out) == Counter(range(50))


def test_records_of_another_run_in_a_topic(
    broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    topic = Topic(KafkaCluster(bootstrap_servers=servers), "owned")
    topic.create(2)

    def sink(existing: Any = "error") -> Any:
        return penstock.kafka("owned", bootstrap_servers=servers, format="json", existing=existing)

    def values() -> Counter[int]:
        return Counter(row["n"] for row in rows_of(servers, "owned"))

    run(engine_for(flow_to(sink(), 30), spark, tmp_path / "first"))
    with pytest.raises(penstock.PenstockError) as refused:
        run(engine_for(flow_to(sink(), 30), spark, tmp_path / "second"))
    assert str(refused.value) == (
        f"Sink 'out': topic 'owned' already contains output of the run in '{tmp_path / 'first'}'; give another topic, "
        "or declare the sink with existing='overwrite' to delete that output, or with existing='append' to keep it "
        "beside the new rows."
    )
    run(engine_for(flow_to(sink("append"), 20), spark, tmp_path / "second"))
    assert values() == Counter([*range(30), *range(20)])
    run(engine_for(flow_to(sink(), 30), spark, tmp_path / "first"))  # resumed
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    with pytest.raises(penstock.PenstockError, match="of which .*copy' is a copy"):
        run(engine_for(flow_to(sink(), 30), spark, tmp_path / "copy"))
    third = flow_to(sink("overwrite"), 10, first=1000)
    with monkeypatch.context() as patch:
        patch.setattr(Topic, "delete_all_records", lambda _: (_ for _ in ()).throw(Interrupted()))
        with pytest.raises(Interrupted):
            run(engine_for(third, spark, tmp_path / "third"))
    with pytest.raises(penstock.PenstockError, match="the earlier rows of this run are gone"):
        run(engine_for(flow_to(sink("append"), 20), spark, tmp_path / "second"))
    run(engine_for(third, spark, tmp_path / "third"))
    run(engine_for(third, spark, tmp_path / "third"))
    assert values() == Counter(range(1000, 1010))


def test_a_live_run_whose_topic_is_overwritten_stops(broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    topic = Topic(KafkaCluster(bootstrap_servers=servers), "taken")
    topic.create(1)
    fill(servers, "taken", lambda n: f'{{"n": {n}}}', range(5))
    flow = penstock.Dataflow("endless")
    endless = numbers(flow, 100_000, rows_per_s=100)
    with pytest.raises(penstock.PenstockError, match="topic 'taken' already contains records; give another topic"):
        run(engine_for(flow_to(penstock.kafka("taken", bootstrap_servers=servers, format="json"), 1), spark, tmp_path))
    endless.sink("out", penstock.kafka("taken", bootstrap_servers=servers, format="json", existing="append"))
    first = engine_for(flow, spark, tmp_path / "first")
    sink = penstock.kafka("taken", bootstrap_servers=servers, format="json", existing="overwrite")
    try:
        first.start()
        wait_until(lambda: topic.ends()[0] > 10, first)
        run(engine_for(flow_to(sink, 10, first=1_000_000), spark, tmp_path / "second"))
        assert f"was overwritten by the run in '{tmp_path / 'second'}'" in wait_until_failed(first)
    finally:
        first.stop()
    assert Counter(row["n"] for row in rows_of(servers, "taken")) == Counter(range(1_000_000, 1_000_010))
