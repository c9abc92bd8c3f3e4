"""Random outages of the broker during random plan changes: no row is lost or duplicated."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.brokers.broker import Broker
from penstock.brokers.cluster import KafkaCluster
from tests.support.kafka_flows import APPS, ROWS, fill, rows_of, topics
from tests.support.spark_runs import engine_for, random_plan, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]

OUTAGES = int(os.environ.get("SOAK_OUTAGES", "8"))


def outage(broker: Broker, kind: str, seconds: float) -> None:
    """Interrupt the process of the broker, which is the only child of its supervisor."""
    assert broker._supervisor is not None
    (jvm,) = psutil.Process(broker._supervisor.pid).children()
    if kind == "frozen":
        jvm.suspend()
        time.sleep(seconds)
        jvm.resume()
        return
    if kind == "killed":
        jvm.kill()
    broker.stop()
    time.sleep(seconds)
    broker.start()


@pytest.mark.parametrize("app", ["wordcount", "netmon"])
def test_random_outages_lose_no_row(broker: Broker, spark: SparkSession, tmp_path: Path, app: str) -> None:
    seed = int(os.environ.get("SOAK_SEED", str(int(time.time()))))
    print(f"SOAK_SEED={seed}")
    chance = random.Random(seed)
    make, line, partitions, wrong = APPS[app]
    lines, out = topics(broker.bootstrap_servers, f"outages-{app}-{seed}", partitions)
    flow = make(broker.bootstrap_servers, lines, out)
    cluster = KafkaCluster(bootstrap_servers=broker.bootstrap_servers)
    engine = engine_for(flow, spark, tmp_path / "run", max_batch_rows=50, kafka=cluster)
    try:
        engine.start()
        for number in range(OUTAGES):
            fill(broker.bootstrap_servers, lines, line, range(number * ROWS // OUTAGES, (number + 1) * ROWS // OUTAGES))
            kind, seconds = chance.choice(["stopped", "killed", "frozen"]), chance.uniform(0.0, 30.0)
            away = threading.Thread(target=outage, args=(broker, kind, seconds))
            time.sleep(chance.uniform(0.0, 3.0))
            away.start()
            plan = random_plan(flow, chance)
            try:
                engine.apply(plan)
            except penstock.PenstockError as error:  # the old plan stays in force
                print(f"{kind} for {seconds:.0f} s: {error}")
                assert engine.plan != plan
            away.join()
        wait_until(engine.idle, engine)
    finally:
        engine.stop()
    assert wrong(rows_of(broker.bootstrap_servers, out)) == []
