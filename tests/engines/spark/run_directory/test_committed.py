"""The committed plan on disk: sources and channels that a query reads stay distinct."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dataflow.edge import Edge
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.run_directory.committed import ChannelInput, Committed, Query, SourceInput
from penstock.plan import Plan

EDGE = Edge("split", "count")
QUERY = Query(
    operators=("rows", "count", "out"),
    replicas={"count": 2, "out": 2},
    checkpoint="out_g1",
    opens_at=1,
    inputs=(
        SourceInput(operator="rows", name="rows_g1", start={"row": 3}),
        ChannelInput(edge=EDGE, folder="split_g1", name="split_to_count_g1", start={"entry": 0}),
    ),
    appends_to=None,
)


def test_a_committed_plan_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    plan = Plan(dataflow="f", cuts=frozenset({"split"}), replicas={"split": 1, "count": 2}, slots=2)
    committed = Committed(
        generation=1, plan=plan, shape="x", queries=(QUERY,), channels={"split": "split_g1"}, endpoints={}
    )
    assert Committed.load(tmp_path) is None
    committed.save(tmp_path)
    assert Committed.load(tmp_path) == committed


def test_an_input_is_found_by_its_source_operator_or_its_edge() -> None:
    assert QUERY.input("rows") == QUERY.inputs[0] and QUERY.input(EDGE) == QUERY.inputs[1]
    assert QUERY.find_input("split") is None and QUERY.find_input(Edge("count", "split")) is None
    assert QUERY.channels_read == {EDGE: "split_g1"}


def test_a_damaged_plan_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text("{")
    with pytest.raises(PenstockError, match="plan.json' is not a valid committed plan"):
        Committed.load(tmp_path)
