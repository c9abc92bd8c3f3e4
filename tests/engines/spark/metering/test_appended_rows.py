"""The input rate counts the rows that a source appends while its queries run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.executors import FixedExecutors
from penstock.engines.spark.metering import costs
from penstock.engines.spark.metering.meter import QueryMeter
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.run_directory.committed import Committed
from penstock.engines.spark.settings import EngineSettings


class Appending:
    """A source whose end is set by the test."""

    end = 0

    def available(self) -> dict[str, int]:
        return {"row": self.end}

    def rows_between(self, start: dict[str, int], end: dict[str, int]) -> int:
        return end["row"] - start["row"]


def test_a_resumed_source_that_goes_back_to_the_rows_that_were_read_has_no_negative_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "StageTimes", lambda spark, from_now: SimpleNamespace(refresh=lambda: None))
    flow = penstock.Dataflow("resumed")
    flow.source("in", penstock.generate(int, schema="n bigint", rows_per_s=100)).sink("out", penstock.noop())
    source, directory, spark = Appending(), SimpleNamespace(path=tmp_path), None
    source.end = 5_000  # appended before the stop; 400 rows of them were read
    parts: dict[str, Any] = {"spark": spark, "directory": directory, "sources": {"in": source}}
    context = RunContext(
        **parts,
        flow=flow,
        settings=EngineSettings(),
        executors=FixedExecutors(2),
    )
    meter = QueryMeter(context)
    source.end = 400
    meter.begin()
    source.end = 600
    plan = penstock.default_plan(flow)
    window = meter.window(Committed(generation=1, plan=plan, shape="", queries=(), channels={}, endpoints={}), {})
    assert window.external_rows_per_s is not None
    assert round(window.external_rows_per_s * (window.end_s - window.start_s)) == 200
