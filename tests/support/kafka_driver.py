"""A driver process that tests kill: it runs an app from topic to topic through cuts in Kafka, under random
plan changes, until it is killed."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.settings import EngineSettings
from tests.support.kafka_flows import APPS
from tests.support.spark_runs import random_plan


def main(app: str, at: str, bootstrap_servers: str, lines: str, out: str, seed: int) -> None:
    flow = APPS[app][0](bootstrap_servers, lines, out)
    chance = random.Random(seed)
    kafka = KafkaCluster(bootstrap_servers=bootstrap_servers)
    settings = EngineSettings(batch_s=0.3, max_batch_rows=150, kafka=kafka)
    engine = SparkEngine(flow, at, master="local[2]", settings=settings)
    engine.start()
    (Path(at) / "alive").touch()
    while True:
        engine.apply(random_plan(flow, chance))
        time.sleep(chance.uniform(0.0, 2.0))


if __name__ == "__main__":
    main(*sys.argv[1:6], seed=int(sys.argv[6]))
