"""What a change of plan hands on, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.change.changeover import Changeover
from penstock.engines.spark.change.query_changes import Begin, Change
from penstock.engines.spark.run_directory.committed import Query, SourceInput
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.plan import default_plan, pipelines


@pytest.mark.parametrize("keeps", [True, False])
def test_only_what_is_there_is_repartitioned(tmp_path: Path, keeps: bool) -> None:
    """The function of a keyed operator may keep no state, and Spark refuses to repartition none."""
    flow = penstock.Dataflow("stateless_after_all")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=10))
    numbers.keyed("same", lambda df: df, keys=["n"]).sink("out", penstock.memory())
    (pipeline,) = pipelines(flow, default_plan(flow, slots=3))
    heir = Query(
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
    begin = Begin(pipeline=pipeline, channels={}, heir_of=heir, in_place=False)
    asked: list[int] = []
    repartition = SimpleNamespace(repartition=lambda path, count: asked.append(count))
    spark: Any = SimpleNamespace(_streamingCheckpointManager=repartition)
    todo = Change(keep=(), stop=(heir,), begin=(begin,), channels={}, generation=2)
    change = Changeover(spark, flow, RunDirectory(tmp_path), {}, None, before=None, todo=todo, patience_s=1.0)
    draft = change._draft(begin)
    query = change._prepare(begin, draft, {"out_g1": {"numbers": {"row": 7}}})
    assert query.inputs == heir.inputs
    assert asked == ([3] if keeps else [])
