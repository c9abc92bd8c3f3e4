"""What a source costs is what its readers took in this process, whatever they took in those before it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark import costs
from penstock.engines.spark.batches import Batch
from penstock.engines.spark.committed import Query, Use


def test_a_source_of_a_resumed_run_does_not_cost_what_it_cost_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "Stages", lambda spark: SimpleNamespace(busy_s=lambda run_id, batch: None))
    flow = ps.Dataflow("resumed")
    flow.source("in", ps.generate(int, schema="n bigint", rows=10)).sink("out", ps.noop())
    query = Query(
        operators=("in", "out"),
        replicas={},
        checkpoint="out_g1",
        opens_at=1,
        sources={"in": Use(name="in_g1", start={})},
        reads={},
        appends_to=None,
    )
    timings = tmp_path / "timings" / "in_g1"
    timings.mkdir(parents=True)
    (timings / "101").write_text("70.5\n")  # of a process that is gone
    tallies: defaultdict[str, costs.Tally] = defaultdict(costs.Tally)
    measured = costs.Costs(flow, None, tmp_path, tallies)
    measured.started(query)
    (timings / "202").write_text("0.25\n")
    running: Any = SimpleNamespace(query=SimpleNamespace(runId="a"), compiled=SimpleNamespace(timings={}))
    measured.add(query, running, [batch(rows=10)])
    assert list(tallies["in"].samples) == [(10, 0.25)]


def batch(rows: int) -> Batch:
    return Batch(
        number=0,
        ended_s=1.0,
        seconds=1.0,
        phases_s={},
        rows_read={"in": rows},
        rows_out={},
        state_rows=0,
        state_bytes=0,
        update_s=0.0,
        commit_s=0.0,
    )
