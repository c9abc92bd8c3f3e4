"""How queries are started, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.queries.queries import Queries
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.run_directory.committed import Query
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.plan import default_plan, pipelines


def test_what_shuffles_without_state_has_the_replicas_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join with a table too large to be handed to every task: with one partition, one replica would do it all."""
    monkeypatch.setattr(RunningQuery, "start", lambda *_: None)
    flow = penstock.Dataflow("enriched")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=10))
    numbers.stateless("enrich", lambda df: df).sink("out", penstock.memory())
    (pipeline,) = pipelines(flow, default_plan(flow, slots=4))
    confs: dict[str, str] = {}
    context = SimpleNamespace(setLocalProperty=lambda *_: None)
    spark: Any = SimpleNamespace(conf=SimpleNamespace(set=confs.__setitem__), sparkContext=context)
    meter: Any = SimpleNamespace(started=lambda running: None)
    directory = RunDirectory(tmp_path)
    queries = Queries(spark, flow, directory, {}, meter, batch_s=1.0, most_rows=None, sample_every=None)
    query = Query(operators=pipeline.operators, replicas={}, checkpoint="c", opens_at=1, inputs=(), appends_to=None)
    queries.start(query, pipeline, compiled=SimpleNamespace())
    assert confs["spark.sql.shuffle.partitions"] == "4"
