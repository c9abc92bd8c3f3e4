"""Selectivity is declared, measured in a window, or measured over all rows; operators without output have none."""

from __future__ import annotations

import penstock
from penstock.engines.spark.metering.batches import RowCounts
from penstock.engines.spark.metering.costs import OperatorSamples
from penstock.engines.spark.metering.meter import _selectivity


def test_a_sink_has_no_selectivity_and_others_keep_theirs_while_nothing_happens() -> None:
    flow = penstock.Dataflow("some")
    rows = flow.source("in", penstock.generate(int, schema="n bigint", rows=10))
    half = rows.stateless("half", lambda df: df.where("n % 2 = 0"))
    half.stateless("told", lambda df: df, selectivity=0.25).sink("out", penstock.noop())
    assert _selectivity(flow["half"], RowCounts(10, 6), OperatorSamples(rows_in=100, rows_out=50)) == 0.6
    assert _selectivity(flow["half"], RowCounts(0, 0), OperatorSamples(rows_in=100, rows_out=50)) == 0.5
    assert _selectivity(flow["told"], RowCounts(10, 6), OperatorSamples(rows_in=100, rows_out=50)) == 0.25
    assert _selectivity(flow["out"], RowCounts(10, None), OperatorSamples(rows_in=100)) is None
    assert _selectivity(flow["out"], RowCounts(0, None), OperatorSamples(rows_in=100)) is None
