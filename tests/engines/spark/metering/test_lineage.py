"""The rows that batches read are known even if Spark has purged their offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.engines.spark.executors import FixedExecutors
from penstock.engines.spark.metering.lineage import Lineage
from penstock.engines.spark.queries.progress import Progress, decode_progress
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.run_directory.committed import Query, SourceInput
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.settings import EngineSettings

START_IDS = {"left": 1_700_000_000_001, "right": 1_700_000_000_002}


def offset(name: str, row: int) -> dict[str, int]:
    return {"row": row, "start_id": START_IDS[name]}


def progress(batch: int) -> dict[str, Any]:
    """Return a progress report; its sources have no names and are in the order of the plan, not of the checkpoint."""
    sources = [
        {"startOffset": offset(name, size * batch) if batch else None, "endOffset": offset(name, size * (batch + 1))}
        for name, size in (("right", 10), ("left", 7))
    ]
    return {"batchId": batch, "sources": sources}


def report(progress: dict[str, Any]) -> Progress:
    return decode_progress(json.dumps(progress))


def lineage(run: Path, kept: range) -> Lineage:
    offsets = run / "checkpoints" / "out_g1" / "offsets"
    offsets.mkdir(parents=True)
    for batch in kept:
        lines = [
            f"{name}_g1:{json.dumps(offset(name, size * (batch + 1)))}" for name, size in (("left", 7), ("right", 10))
        ]
        (offsets / str(batch)).write_text("\n".join(["v2", "{}", *lines]))
    query = Query(
        operators=("left", "right", "out"),
        replicas={},
        checkpoint="out_g1",
        opens_at=1,
        inputs=tuple(SourceInput(operator=name, name=f"{name}_g1", start={"row": 0}) for name in START_IDS),
        appends_to=None,
    )
    context = RunContext(
        spark=None,
        flow=None,
        directory=RunDirectory(run),
        sources={},
        settings=EngineSettings(),
        executors=FixedExecutors(2),
    )
    lineage = Lineage(context)
    lineage.add_query(query)
    return lineage


def test_batches_whose_offsets_are_purged_are_counted_by_their_progress(tmp_path: Path) -> None:
    known = lineage(tmp_path, kept=range(100, 200))
    assert known.ranges("out_g1", 3) is None
    known.add_progress("out_g1", [report(progress(batch)) for batch in range(200)])
    for batch in (0, 3, 99, 100, 101, 199):  # the offsets before batch 100 are purged
        assert known.ranges("out_g1", batch) == {
            "left": ({"row": 7 * batch}, {"row": 7 * batch + 7}),
            "right": ({"row": 10 * batch}, {"row": 10 * batch + 10}),
        }


def test_indistinguishable_sources_are_not_guessed(tmp_path: Path) -> None:
    known = lineage(tmp_path, kept=range(199, 200))
    other = progress(3)
    other["sources"][0]["endOffset"]["start_id"] = 5  # a batch of an earlier start
    known.add_progress("out_g1", [report(other)])
    assert known.ranges("out_g1", 3) is None
