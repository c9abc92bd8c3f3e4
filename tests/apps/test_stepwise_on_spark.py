"""Twitter sentiment analysis on Spark: the output equals the oracle's, and each tweet is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps.stepwise import twitter_sentiment
from penstock.dataflow import Kind, regions
from tests.support.spark_runs import engine_for, plan_of, play

pytestmark = pytest.mark.spark

ROWS = 300


def test_averages_and_rankings_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    flow = twitter_sentiment.flow(output=penstock.memory(), rows=ROWS, archive=str(archive))
    replicas = {region.name: 1 for region in regions(flow) if region.kind is not Kind.SOURCE} | {"store": 2}
    engine = engine_for(flow, spark, tmp_path / "run", plan_of(flow, replicas, set()), max_batch_rows=200)
    try:
        engine.start()
        play(engine, [])
        assert twitter_sentiment.check(engine.rows("out"), ROWS) == []
    finally:
        engine.stop()
    stored = {json.loads(line)["id"] for file in archive.iterdir() for line in file.read_text().splitlines()}
    assert stored == set(range(ROWS))
