"""Kafka as source, sink and channel on a real broker: exact output after failures of the driver and the broker."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps import wordcount
from penstock.brokers.broker import Broker
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.topics import Topic
from penstock.control.controller import Controller, Settings
from penstock.control.policies.ds2 import Ds2
from penstock.engines.spark.sinks.kafka import KafkaSink
from penstock.engines.spark.sources.factory import row_bytes
from penstock.engines.spark.storage import row_files
from penstock.store import Store
from tests.support.kafka_flows import APPS, ROWS, counting, fill, rows_of, topics, wrong_counts
from tests.support.spark_runs import engine_for, plan_of, play, random_plan, wait_until

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("app", ["wordcount", "netmon"])
def test_exact_from_topic_to_topic_after_a_kill(broker: Broker, spark: SparkSession, tmp_path: Path, app: str) -> None:
    """The driver that is killed has a session of its own; this process resumes the run."""
    flow, line, partitions, wrong = APPS[app]
    lines, out = topics(broker.bootstrap_servers, f"kill-{app}", partitions)
    fill(broker.bootstrap_servers, lines, line, range(ROWS))
    chance = random.Random(len(app))
    run, words = tmp_path / "run", [app, str(tmp_path / "run"), broker.bootstrap_servers, lines, out]
    with (tmp_path / "driver.log").open("ab") as log:
        command = [sys.executable, "-m", "tests.support.kafka_driver", *words, str(chance.randrange(10**6))]
        driver = subprocess.Popen(command, stderr=log)
        try:
            while driver.poll() is None and not (run / "alive").exists():
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 5.0))
        finally:
            driver.kill()
            code = driver.wait()
    assert code == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-3000:]
    kafka = KafkaCluster(bootstrap_servers=broker.bootstrap_servers)
    engine = engine_for(flow(broker.bootstrap_servers, lines, out), spark, run, max_batch_rows=500, kafka=kafka)
    try:
        engine.start()
        play(engine, [random_plan(engine.flow, chance)])
    finally:
        engine.stop()
    assert wrong(rows_of(broker.bootstrap_servers, out)) == []


def test_an_unavailable_broker_is_waited_for(broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    lines, out = topics(broker.bootstrap_servers, "away", 3)
    flow = counting(broker.bootstrap_servers, lines, out)
    cut = plan_of(flow, {"split": 2, "count": 2}, {"split"})
    fill(broker.bootstrap_servers, lines, wordcount.generator, range(ROWS // 2))
    engine = engine_for(
        flow,
        spark,
        tmp_path / "run",
        cut,
        max_batch_rows=100,
        kafka=KafkaCluster(bootstrap_servers=broker.bootstrap_servers),
    )
    down, observed, attempted = threading.Event(), threading.Event(), threading.Event()

    def restart_broker() -> None:
        broker.stop()
        down.set()
        observed.wait()
        while not (tmp_path / "run" / "intent.json").exists() and not attempted.wait(0.05):
            pass  # the broker returns during the change of the plan, or after it has failed
        broker.start()

    try:
        engine.start()
        wait_until(lambda: engine.position(engine.queries[0], engine.queries[0].input("lines")), engine)
        outage = threading.Thread(target=restart_broker)
        outage.start()
        down.wait()
        with Store(tmp_path / "store") as store:
            controller = Controller(Ds2(), Settings(mode="active", warm_up_s=0), engine, store)
            with pytest.raises(penstock.PenstockError) as unobserved:
                engine.observe()
            assert str(unobserved.value) == f"source 'lines': no Kafka broker answers at '{broker.bootstrap_servers}'"
            decision = controller.decide(None, number=None, at_s=time.time())
            assert decision is not None and decision.kind == "hold"
        observed.set()
        changed = plan_of(flow, {"split": 1, "count": 3}, {"lines", "split"})
        try:
            engine.apply(changed)
        except penstock.PenstockError:  # the broker returns late, so the old plan stays in force
            attempted.set()
            outage.join()
            assert engine.plan == cut
            engine.apply(changed)
        outage.join()
        fill(broker.bootstrap_servers, lines, wordcount.generator, range(ROWS // 2, ROWS))
        wait_until(engine.idle, engine)
        assert engine.plan.replicas["count"] == 3
        window = engine.observe()
        assert window.operator("lines").rows_in_total == ROWS and window.operator("lines").backlog_rows == 0
    finally:
        observed.set()
        attempted.set()
        engine.stop()
    assert wrong_counts(rows_of(broker.bootstrap_servers, out)) == []


def test_a_sink_continues_after_its_broker_was_unavailable_between_batches(broker: Broker, tmp_path: Path) -> None:
    """The client never finds the coordinator again, and it has no time limit."""
    topic = Topic(KafkaCluster(bootstrap_servers=broker.bootstrap_servers), f"between-{time.time_ns()}")
    topic.create(2)
    sink = KafkaSink(
        penstock.kafka(topic.name, bootstrap_servers=broker.bootstrap_servers),
        "between",
        tmp_path / "aside",
        is_stopping=lambda: False,
    )

    def publish(number: int) -> None:
        rows = pa.RecordBatch.from_pydict(
            {"key": [b"k"] * 3, "value": [b"%d" % (3 * number + index) for index in range(3)]}
        )
        sink._publish([row_files.write_row_file(tmp_path / "rows.arrow", [rows], rows.schema)], f"q.{number:08d}")

    publish(0)
    broker.stop()
    time.sleep(5)
    broker.start()
    for number in (1, 2, 2):  # Spark repeats a batch that it has not committed
        publish(number)
    assert sorted(rows_of(broker.bootstrap_servers, topic.name)) == list(range(9))


BY_HAND = """
import penstock
from penstock.apps import wordcount


def lines(spark):
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", {bootstrap_servers!r})
    records = kafka.option("subscribe", {lines!r}).option("startingOffsets", "earliest").load()
    return records.selectExpr("cast(value as string) value")


flow = penstock.Dataflow("by_hand")
words = flow.source("lines", penstock.spark_source(lines)).stateless("split", wordcount.split)
words.keyed("count", wordcount.count, keys=["word"]).sink("out", penstock.kafka({out!r}, bootstrap_servers={bootstrap_servers!r}, format="json", key="word"))
"""


def test_a_source_by_hand_reads_through_the_connector_of_spark(broker: Broker, tmp_path: Path) -> None:
    lines, out = topics(broker.bootstrap_servers, "by-hand", 3)
    fill(broker.bootstrap_servers, lines, wordcount.generator, range(ROWS))
    (tmp_path / "flow.py").write_text(BY_HAND.format(bootstrap_servers=broker.bootstrap_servers, lines=lines, out=out))
    penstock = [sys.executable, "-m", "penstock.cli"]
    jars = subprocess.run([*penstock, "broker", "connector"], capture_output=True, text=True, check=True).stdout.strip()
    with (tmp_path / "run.log").open("wb") as log:
        run = [*penstock, "run", "flow.py", "--at", "run", "--conf", f"spark.jars={jars}"]
        driver = subprocess.Popen(run, cwd=tmp_path, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 400
            while wrong_counts(rows_of(broker.bootstrap_servers, out)) and time.monotonic() < deadline:
                assert driver.poll() is None, (tmp_path / "run.log").read_text()[-3000:]
                time.sleep(0.2)
            driver.send_signal(signal.SIGINT)
            assert driver.wait(timeout=300) == 0, (tmp_path / "run.log").read_text()[-3000:]
        finally:
            if driver.poll() is None:
                driver.kill()
                driver.wait()
    assert wrong_counts(rows_of(broker.bootstrap_servers, out)) == []


def test_rows_that_were_read_from_a_cut_are_deleted(broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    lines, out = topics(broker.bootstrap_servers, "deleted", 1)
    flow = counting(broker.bootstrap_servers, lines, out)
    fill(broker.bootstrap_servers, lines, wordcount.generator, range(ROWS))
    cluster = KafkaCluster(bootstrap_servers=broker.bootstrap_servers)
    written = [wordcount.generator(n) for n in range(ROWS)]
    assert row_bytes(flow, tmp_path / "sources") == pytest.approx(len("".join(written).encode()) / ROWS, rel=0.1)
    others = set(Topic(cluster, lines)._admin().list_topics(timeout=60).topics)
    plan = plan_of(flow, {"split": 1, "count": 1}, {"split"})
    engine = engine_for(flow, spark, tmp_path / "run", plan, max_batch_rows=500, kafka=cluster)
    try:
        engine.start()
        wait_until(engine.idle, engine)
        latency = engine.observe().latency
        assert latency is not None and latency.rows == ROWS  # computed from the timestamps of the records
        names = Topic(cluster, lines)._admin().list_topics(timeout=60).topics
        (cut,) = [Topic(cluster, name) for name in set(names) - others if name.endswith("-split_g1")]
        left = sum(cut.ends().values())
        wait_until(lambda: left - sum(cut.starts().values()) < left / 2, engine)  # all but the last append
        engine.apply(plan_of(flow, {"split": 1, "count": 1}, set()))
        engine.apply(plan_of(flow, {"split": 1, "count": 2}, set()))  # deletes rows of the plan before the last one
        wait_until(lambda: cut.name not in cut._admin().list_topics(timeout=60).topics, engine)
    finally:
        engine.stop()
    assert wrong_counts(rows_of(broker.bootstrap_servers, out)) == []
