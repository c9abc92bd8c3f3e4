"""Operator costs contain the time of their rows, but not of earlier processes or of empty batches."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.executors import FixedExecutors
from penstock.engines.spark.metering import costs
from penstock.engines.spark.metering.batches import Batch, OperatorState
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.run_directory.committed import Query, SourceInput
from penstock.engines.spark.settings import EngineSettings


def test_a_source_of_a_resumed_run_does_not_cost_what_it_cost_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "StageTimes", lambda spark, from_now: SimpleNamespace(busy_s=lambda run_id, batch: None))
    flow = penstock.Dataflow("resumed")
    flow.source("in", penstock.generate(int, schema="n bigint", rows=10)).sink("out", penstock.noop())
    query = query_of("in", "out")
    timings = tmp_path / "timings" / "in_g1"
    timings.mkdir(parents=True)
    (timings / "101").write_text("70.5\n")  # measured by a process that has ended
    tallies: defaultdict[str, costs.OperatorSamples] = defaultdict(costs.OperatorSamples)
    measured = costs.OperatorCosts(context_of(flow, tmp_path), tallies)
    measured.query_started(query)
    (timings / "202").write_text("0.25\n")
    running: Any = SimpleNamespace(run_id="a", compiled=SimpleNamespace(timings={}))
    measured.add(query, running, [batch(rows=10)])
    assert list(tallies["in"].busy) == [(10, 0.25)]


def test_batches_without_rows_do_not_count_as_cost_per_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers in processing time cause endless empty batches; each takes as long as the only batch with rows."""
    monkeypatch.setattr(costs, "StageTimes", lambda spark, from_now: SimpleNamespace(busy_s=lambda run_id, batch: 2.0))
    flow = penstock.Dataflow("timers")
    rows = flow.source("in", penstock.generate(int, schema="n bigint", rows=10))
    rows.stateless("same", lambda df: df).keyed("kept", lambda df: df, keys=["n"]).sink("out", penstock.noop())
    query = query_of("in", "same", "kept", "out")
    (timings := tmp_path / "timings" / "in_g1").mkdir(parents=True)
    tallies: defaultdict[str, costs.OperatorSamples] = defaultdict(costs.OperatorSamples)
    measured = costs.OperatorCosts(context_of(flow, tmp_path), tallies)
    measured.query_started(query)
    running: Any = SimpleNamespace(run_id="a", compiled=SimpleNamespace(timings={}))

    def add(*batches: Batch, reading_s: float) -> None:
        (timings / "101").write_text(f"{reading_s}\n")
        measured.add(query, running, list(batches))

    empty = batch(rows=0, update_s=0.5)
    add(empty, reading_s=0.0)
    add(empty, batch(rows=10, update_s=0.5), empty, empty, reading_s=0.25)
    for window in range(100):
        add(empty, empty, reading_s=0.25 * (window + 2))
    assert {name: tally.seconds_per_row() for name, tally in tallies.items() if tally.busy} == {
        "in": pytest.approx(0.025),
        "kept": pytest.approx(0.05),
        "same": pytest.approx((2.0 - 0.25 - 0.5) / 10),
    }
    # The time of an unfinished batch is visible before its rows.
    add(empty, reading_s=25.25 + 0.2)
    add(batch(rows=10, update_s=0.5), reading_s=25.25 + 0.25)
    assert tallies["in"].seconds_per_row() == pytest.approx(0.025)


def test_few_rows_behind_a_state_do_not_bear_the_time_of_all_rows_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aggregate of 1,000 rows emits 10: a projection behind it is charged with 10 of 1,010 rows."""
    monkeypatch.setattr(costs, "StageTimes", lambda spark, from_now: SimpleNamespace(busy_s=lambda run_id, batch: 1.01))
    flow = penstock.Dataflow("windows")
    rows = flow.source("in", penstock.generate(int, schema="n bigint", rows=10))
    rows.keyed("kept", lambda df: df, keys=["n"]).stateless("same", lambda df: df).sink("out", penstock.noop())
    tallies: defaultdict[str, costs.OperatorSamples] = defaultdict(costs.OperatorSamples)
    measured = costs.OperatorCosts(context_of(flow, tmp_path), tallies)
    running: Any = SimpleNamespace(run_id="a", compiled=SimpleNamespace(timings={}))
    few = batch(rows=1_000)
    few.rows_out = {"kept": 10, "same": 10}
    query = query_of("in", "kept", "same", "out")
    measured.query_started(query)
    for _ in range(2):  # the first window is left out
        measured.add(query, running, [few])
    assert tallies["same"].seconds_per_row() == pytest.approx(0.001)


def context_of(flow: penstock.Dataflow, run: Path) -> RunContext:
    directory: Any = SimpleNamespace(path=run)
    spark: Any = None
    return RunContext(
        spark=spark, flow=flow, directory=directory, sources={}, settings=EngineSettings(), executors=FixedExecutors(2)
    )


def query_of(*operators: str) -> Query:
    return Query(
        operators=operators,
        replicas={},
        checkpoint="out_g1",
        opens_at=1,
        inputs=(SourceInput(operator="in", name="in_g1", start={}),),
        appends_to=None,
    )


def batch(rows: int, update_s: float = 0.0) -> Batch:
    return Batch(
        number=0,
        ended_s=1.0,
        seconds=1.0,
        phases_s={},
        rows_read={"in": rows},
        rows_out={"same": rows},
        states={"kept": OperatorState(update_s=update_s)},
    )
