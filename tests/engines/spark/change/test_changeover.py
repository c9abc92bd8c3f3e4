"""State that a plan change transfers, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.change.changeover import Changeover
from penstock.engines.spark.change.query_changes import QueryChanges, QueryStart
from penstock.engines.spark.executors import FixedExecutors
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.run_directory.committed import Query, SourceInput
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.settings import EngineSettings
from penstock.plan import default_plan, pipelines


@pytest.mark.parametrize("keeps", [True, False])
def test_only_existing_state_is_repartitioned(tmp_path: Path, keeps: bool) -> None:
    """The function of a keyed operator may keep no state, and Spark cannot repartition missing state."""
    flow = penstock.Dataflow("stateless_after_all")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=10))
    numbers.keyed("same", lambda df: df, keys=["n"]).sink("out", penstock.memory())
    (pipeline,) = pipelines(flow, default_plan(flow, slots=3))
    predecessor = Query(
        operators=pipeline.operators,
        replicas=dict.fromkeys(pipeline.operators, 2),
        checkpoint="out_g1",
        opens_at=1,
        inputs=(SourceInput(operator="numbers", name="numbers_g1", start={"row": 0}),),
        appends_to=None,
    )
    checkpoint = tmp_path / "checkpoints" / "out_g1"
    for kind in ("offsets", "commits", *["state"] * keeps):
        (checkpoint / kind).mkdir(parents=True)
    (checkpoint / "commits" / "0").touch()
    start = QueryStart(pipeline=pipeline, channels={}, predecessor=predecessor, reuses_checkpoint=False)
    asked: list[int] = []
    repartition = SimpleNamespace(repartition=lambda path, count: asked.append(count))
    spark: Any = SimpleNamespace(_streamingCheckpointManager=repartition)
    changes = QueryChanges(keep=(), stop=(predecessor,), start=(start,), channels={}, generation=2)
    context = RunContext(
        spark=spark,
        flow=flow,
        directory=RunDirectory(tmp_path),
        sources={},
        settings=EngineSettings(),
        executors=FixedExecutors(2),
    )
    queries: Any = None
    change = Changeover(context, queries, changes, None)
    draft = change._draft(start)
    query = change._prepare(start, draft, {"out_g1": {"numbers": {"row": 7}}})
    assert query.inputs == predecessor.inputs
    assert asked == ([3] if keeps else [])
