"""Topics on a real broker: loading, measuring, poison records, and missing or recreated topics."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

import penstock
from penstock.apps import wordcount
from penstock.brokers import topics as broker_topics
from penstock.brokers.broker import Broker
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.load_generator import Backlog, ConstantRate, LoadSchedule, RateTrace, load
from penstock.brokers.topics import Topic
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.settings import EngineSettings
from penstock.engines.spark.sources import kafka as kafka_source
from penstock.engines.spark.sources.kafka import KafkaSource
from penstock.measure.window import PipelineWindow, Window
from penstock.store import Store
from penstock.study.mst.design import PlannedTrial
from penstock.study.mst.samples import Saturation
from penstock.study.mst.study import MstStudy
from tests.support.kafka_flows import counting, fill, rows_of, topics
from tests.support.spark_runs import engine_for, plan_of, wait_until, wait_until_failed

pytestmark = pytest.mark.spark


def test_a_poison_record_ends_the_run_or_goes_to_the_dead_letters(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap_servers, cluster = broker.bootstrap_servers, KafkaCluster(bootstrap_servers=broker.bootstrap_servers)
    for topic in ("poison", "poison-dead", "poison-out"):
        Topic(cluster, topic).create(1)
    good = [{"n": n, "at": f"2026-01-01T00:00:{n:02d}Z"} for n in range(20)]
    bad = ['{"n": "seven"}', "no json at all", "[1]", ""]
    fill(bootstrap_servers, "poison", lambda n: [*good[:10], *bad, *good[10:]][n], range(24))

    def flow(**how: Any) -> penstock.Dataflow:
        flow = penstock.Dataflow("poisoned")
        read = flow.source(
            "rows",
            penstock.kafka(
                "poison", bootstrap_servers=bootstrap_servers, format="json", schema="n bigint, at timestamp", **how
            ),
        )
        read.stateless("same", lambda df: df).sink("out", penstock.memory())
        return flow

    engine = engine_for(flow(), spark, tmp_path / "run")
    try:
        engine.start()
        # Either replica may reach its first poison record first.
        assert re.search(
            r"record 1[0-3] of partition 0 of topic 'poison' cannot be read as json", wait_until_failed(engine)
        )
    finally:
        engine.stop()
    engine = engine_for(flow(dead_letter="poison-dead"), spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(engine.idle, engine)
        rows = sorted(engine.rows("out"), key=lambda row: row["n"])
    finally:
        engine.stop()
    assert [row["n"] for row in rows] == list(range(20)) and [row["at"].second for row in rows] == list(range(20))
    assert sum(Topic(cluster, "poison-dead").ends().values()) == len(bad)


def test_mistakes_are_refused_in_one_sentence(
    broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, out = topics(broker.bootstrap_servers, "mistakes", 1)
    with pytest.raises(penstock.PenstockError, match="source 'lines': There is no topic 'nowhere'"):
        engine_for(counting(broker.bootstrap_servers, "nowhere", out), spark, tmp_path / "a").start()
    with pytest.raises(penstock.PenstockError, match="sink 'out': There is no topic 'nowhere'"):
        engine_for(counting(broker.bootstrap_servers, lines, "nowhere"), spark, tmp_path / "b").start()
    monkeypatch.setattr(broker_topics, "_REQUEST_TIMEOUT_S", 2.0)
    with pytest.raises(penstock.PenstockError, match="No Kafka broker answers at '127.0.0.1:1'"):
        engine_for(counting("127.0.0.1:1", lines, out), spark, tmp_path / "c").start()
    flow = penstock.Dataflow("wrong")
    two = flow.source("lines", penstock.kafka(lines, bootstrap_servers=broker.bootstrap_servers))
    two = two.stateless("two", lambda df: df.selectExpr("value", "1 as n"))
    two.sink("out", penstock.kafka(out, bootstrap_servers=broker.bootstrap_servers))
    with pytest.raises(
        penstock.DataflowError, match="writes text, which needs exactly one column, but receives value, n"
    ):
        engine_for(flow, spark, tmp_path / "e").start()
    secret = {"security.protocol": "SASL_SSL", "sasl.password": "env:PENSTOCK_NO_SUCH_SECRET"}
    with pytest.raises(
        penstock.PenstockError, match="the environment, which has no variable 'PENSTOCK_NO_SUCH_SECRET'"
    ):
        engine_for(counting(broker.bootstrap_servers, lines, out, options=secret), spark, tmp_path / "d").start()


def test_a_topic_that_is_shorter_than_the_read_part_is_another_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic seems to be deleted and created again, so its records are not the expected ones."""
    monkeypatch.setattr(kafka_source, "_SHORTENED_TIMEOUT_S", 0.2)
    (tmp_path / "plan.json").write_text('{"generation": 1}')
    options = ReaderOptions(
        name="rows", replicas=1, query="q", opens_at=1, run=tmp_path, batch_s=1.0, max_rows=None
    ).to_spark()
    topic = kafka_source.TopicReading(
        declared=penstock.kafka("t", bootstrap_servers="localhost:1"), id="1", append_times=tmp_path
    )
    reader = kafka_source.KafkaReader(options, topic, pa.schema([("value", pa.string())]))
    reader._ends = SimpleNamespace(poll=lambda: {0: 700})
    fewer = {"0": 0, "1": 0}
    assert reader.latestOffset(fewer, ReadAllAvailable()) == fewer
    start = {"0": 1_000}
    assert reader.latestOffset(start, ReadAllAvailable()) == start  # temporary after a restart of a broker
    time.sleep(0.3)
    for ends in (None, {0: 700}):  # also after another restart
        reader._ends = SimpleNamespace(poll=lambda ends=ends: ends)
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    time.sleep(0.3)
    with pytest.raises(penstock.PenstockError, match="topic 't' ends before records that were already read from it"):
        reader.latestOffset(start, ReadAllAvailable())


def test_a_deleted_or_recreated_topic_is_another_topic(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_topics, "_DELETED_AFTER_S", 0.5)
    monkeypatch.setattr(kafka_source, "_RETRY_INTERVAL_S", 0.1)
    topic = Topic(KafkaCluster(bootstrap_servers=broker.bootstrap_servers), "again")
    topic.create(2)
    Topic(topic.cluster, "another").create(2)
    fill(broker.bootstrap_servers, "again", str, range(10))

    def source(name: str = "again") -> KafkaSource:
        schema = StructType([StructField("value", StringType())])
        return KafkaSource("rows", tmp_path, schema, penstock.kafka(name, bootstrap_servers=broker.bootstrap_servers))

    def error_of(ask: Callable[[], object]) -> str:
        try:
            return str(ask())
        except penstock.PenstockError as error:
            return str(error)

    running = source()
    running.first()
    source().resume({})
    with pytest.raises(
        penstock.PenstockError, match="topic 'another' at .* is not the topic 'again' that this run has read"
    ):
        source("another").resume({})
    topic.delete()
    deadline = time.monotonic() + 500
    while "Topic 'again' was deleted at" not in (error := error_of(running.available)):  # at first the topic may return
        assert time.monotonic() < deadline, error
    topic.create(1)
    fill(broker.bootstrap_servers, "again", str, range(20))
    with pytest.raises(
        penstock.PenstockError, match="topic 'again' at .* was deleted and created again while it was read"
    ):
        running.available()
    with pytest.raises(
        penstock.PenstockError, match="topic 'again' at .* is not the topic 'again' that this run has read"
    ):
        source().resume({})


def test_a_load_is_exact(broker: Broker) -> None:
    cluster = KafkaCluster(bootstrap_servers=broker.bootstrap_servers)
    Topic(cluster, "load").create(2)
    loads: list[tuple[LoadSchedule, float, int]] = [
        (Backlog(20_000), math.inf, 20_000),
        (ConstantRate(4_000.0, 1_000), math.inf, 1_000),
        (ConstantRate(4_350.0, None), 0.1, 435),
        (RateTrace((1_000.0, 0.0, 3_000.0), interval_s=0.2), math.inf, 800),
        (RateTrace((500.0, 3_000.0), interval_s=0.2), 0.3, 400),
    ]
    for schedule, seconds, rows in loads:
        before = sum(Topic(cluster, "load").ends().values())
        assert load(Topic(cluster, "load"), wordcount.generator, schedule, limit_s=seconds).rows == rows
        assert sum(Topic(cluster, "load").ends().values()) - before == rows
    assert Topic(cluster, "load").create(8) == 2  # it exists already
    before = sum(Topic(cluster, "load").ends().values())
    with pytest.raises(
        penstock.PenstockError,
        match=r"Row 7 cannot be computed: ZeroDivisionError: .* The 7 rows before it are in the topic",
    ):
        load(Topic(cluster, "load"), lambda n: 7 // (7 - n), Backlog(10))
    assert sum(Topic(cluster, "load").ends().values()) - before == 7


BATCH_ROWS, BATCHES = 250, 16
BATCH_S, ROW_S = 0.1, 0.001


class KnownCostEngine(SparkEngine):
    """Its batches are run by Spark, but its windows report that each took 100 ms and 1 ms per row."""

    def observe(self) -> Window:
        window = super().observe()
        return msgspec.structs.replace(window, pipelines=tuple(map(self._with_known_cost, window.pipelines)))

    def _with_known_cost(self, pipeline: PipelineWindow) -> PipelineWindow:
        if not pipeline.batches:
            return pipeline
        assert pipeline.batch_s is not None and pipeline.batch_s > 0
        return msgspec.structs.replace(pipeline, batch_s=BATCH_S + ROW_S * pipeline.rows_in / pipeline.batches)


class BatchClock:
    """A clock that waits for the next batch of an engine, however long it takes, instead of for an interval."""

    def __init__(self) -> None:
        self.engine: SparkEngine | None = None
        self._read: tuple[SparkEngine, object] | None = None
        self._now_s = 0.0

    def time(self) -> float:
        return self._now_s

    monotonic = time

    def sleep(self, seconds: float, /) -> None:
        engine, before = self.engine, self._read
        assert engine is not None
        wait_until(lambda: (self._position(engine) not in (before, None)) or engine.idle(), engine)
        self._read = self._position(engine)
        self._now_s += seconds

    def _position(self, engine: SparkEngine) -> tuple[SparkEngine, object] | None:
        (query,) = engine.queries
        position = engine.position(query, query.input("lines"))
        return (engine, position) if position else None


def test_a_preloaded_topic_is_read_again_until_the_samples_converge_and_nothing_is_written(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    lines, out = topics(broker.bootstrap_servers, "mst", 2)
    fill(broker.bootstrap_servers, lines, wordcount.generator, range(BATCHES * BATCH_ROWS))
    flow = counting(broker.bootstrap_servers, lines, out).without_output()
    plan = plan_of(flow, {"split": 2, "count": 2}, set())
    settings = EngineSettings(max_batch_rows=BATCH_ROWS, batch_s=3600.0)  # all batches are full, however slow they are
    clock, readings = BatchClock(), list[SparkEngine]()

    def fresh(planned: PlannedTrial, run: int) -> SparkEngine:
        clock.engine = KnownCostEngine(flow, tmp_path / f"run-{run}", spark=spark, plan=plan, settings=settings)
        readings.append(clock.engine)
        return clock.engine

    saturation = Saturation(window_s=2.0, warm_up=1, max_windows=200, n=8, k=7)
    with Store(tmp_path / "store") as store:
        study = MstStudy(
            app="wordcount", fresh=fresh, store=store, clock=clock, saturation=saturation, slots_per_executor=plan.slots
        )
        study.run([1])
        (trial,) = store.trials()
    assert trial.converged and trial.reason is None, trial
    assert len(trial.samples) >= saturation.n
    assert trial.rows_per_s == pytest.approx(BATCH_ROWS / (BATCH_S + ROW_S * BATCH_ROWS), rel=saturation.tolerance)
    # A sample needs five batches, except for the last one of a reading: 16 batches are at most four samples.
    assert len(readings) >= len(trial.samples) / 4 > 1
    assert rows_of(broker.bootstrap_servers, out) == []


def test_a_broker_is_started_loaded_and_stopped_by_commands(broker: Broker, tmp_path: Path) -> None:
    def penstock(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "penstock.cli", *words]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def output_of(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, err
        return out, err

    try:
        both = [penstock("broker", "start") for _ in range(2)]
        errors = [process.communicate(timeout=300)[1] for process in both]
        assert sorted(process.returncode for process in both) == [0, 1], errors
        assert "A broker already runs in" in "".join(errors) and ", at 127.0.0.1" in "".join(errors), errors
        running = json.loads(output_of(penstock("broker", "status", "--json"))[0])
        rows = ["load", "lines", "--rows", "penstock.apps.wordcount", "--json"]
        loaded = json.loads(output_of(penstock(*rows, "--rate", "2000", "--seconds", "0.5", "--partitions", "4"))[0])
        assert loaded["rows"] == 1_000
        assert (
            "already exists with 4 partitions" in output_of(penstock(*rows, "--backlog", "50", "--partitions", "8"))[1]
        )
        topic = Topic(KafkaCluster(bootstrap_servers=running["bootstrap_servers"]), "lines")
        assert sum(topic.ends().values()) == 1_050
        endless = penstock(*rows, "--rate", "500")
        while sum(topic.ends().values()) < 1_100 and endless.poll() is None:
            time.sleep(0.05)
        endless.send_signal(signal.SIGTERM)
        assert json.loads(output_of(endless)[0])["rows"] == sum(topic.ends().values()) - 1_050 > 0
    finally:
        stopped = output_of(penstock("broker", "stop"))[0]
    assert running["bootstrap_servers"] in stopped and not psutil.pid_exists(running["pid"])
    output_of(penstock("broker", "status"), code=1)
