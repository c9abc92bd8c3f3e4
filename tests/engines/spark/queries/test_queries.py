"""The start of queries, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.executors import FixedExecutors
from penstock.engines.spark.queries.query_runner import QueryRunner
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.run_directory.committed import Query
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.settings import EngineSettings
from penstock.plan import default_plan, pipelines


def test_a_cancelled_start_waits_for_no_query(tmp_path: Path) -> None:
    """Ctrl-C cannot end the JVM of a session that belongs to the user, so the steps of the start end by themselves."""
    flow = penstock.Dataflow("cancelled")
    flow.source("numbers", penstock.generate(int, schema="n bigint", rows=10)).sink("out", penstock.memory())
    plan = default_plan(flow, slots=2)
    (pipeline,) = pipelines(flow, plan)
    context = RunContext(
        spark=SimpleNamespace(),  # type: ignore[arg-type]
        flow=flow,
        directory=RunDirectory(tmp_path),
        sources={},
        settings=EngineSettings(),
        executors=FixedExecutors(2),
    )
    queries = QueryRunner(context, on_start=lambda running: None, on_stop=lambda running: None)
    query = Query(operators=pipeline.operators, replicas={}, checkpoint="c", opens_at=1, inputs=(), appends_to=None)
    running: Any = RunningQuery(query, SimpleNamespace(mode="append"))  # type: ignore[arg-type]
    running._query = SimpleNamespace(isActive=True, status={"message": "Initializing sources"})
    queries.running["c"] = running
    context.start_cancelled.set()
    steps = [
        lambda: queries.compile(query, pipeline),
        lambda: queries.start(query, pipeline, compiled=SimpleNamespace(mode="append")),  # type: ignore[arg-type]
        lambda: queries.await_start(running),
        lambda: queries.await_first_batches([query], plan),
    ]
    for step in steps:
        with pytest.raises(penstock.PenstockError, match="cancelled"):
            step()


def test_shuffles_without_state_have_the_replicas_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join with a table that is too large to broadcast: one replica would do all the work in one partition."""
    monkeypatch.setattr(RunningQuery, "start", lambda *_: None)
    flow = penstock.Dataflow("enriched")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=10))
    numbers.stateless("enrich", lambda df: df).sink("out", penstock.memory())
    (pipeline,) = pipelines(flow, default_plan(flow, slots=4))
    confs: dict[str, str] = {}
    java_context = SimpleNamespace(setLocalProperty=lambda *_: None)
    spark: Any = SimpleNamespace(conf=SimpleNamespace(set=confs.__setitem__), sparkContext=java_context)
    context = RunContext(
        spark=spark,
        flow=flow,
        directory=RunDirectory(tmp_path),
        sources={},
        settings=EngineSettings(),
        executors=FixedExecutors(2),
    )
    started: list[RunningQuery] = []
    queries = QueryRunner(context, on_start=started.append, on_stop=lambda running: None)
    query = Query(operators=pipeline.operators, replicas={}, checkpoint="c", opens_at=1, inputs=(), appends_to=None)
    queries.start(query, pipeline, compiled=SimpleNamespace(mode="append"))
    assert [running.record for running in started] == [query]
    assert confs["spark.sql.shuffle.partitions"] == "4"
