"""A query with endless empty batches is recognised as idle."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.spark.queries.running_query import RunningQuery

READ = {"startOffset": {"row": 5}, "endOffset": {"row": 9}}
AT_END = {"startOffset": {"row": 9}, "endOffset": {"row": 9}}


def query(*batches: dict[str, Any], written: dict[int, int | None], counted: str | None = "op") -> Any:
    reports = []
    for number, batch in enumerate(batches):
        progress = {"batchId": number, "durationMs": {"addBatch": 1}, "sources": [AT_END]} | batch
        reports.append(SimpleNamespace(json=lambda progress=progress: json.dumps(progress)))
    spark = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: reports))
    return SimpleNamespace(query=spark, rows_written=written, compiled=SimpleNamespace(counted=counted))


@pytest.mark.parametrize(
    ("batches", "written", "is_empty"),
    [
        ([{"sources": [READ]}, {}, {}], {0: 4, 1: 0, 2: 0}, True),
        ([{}, {"sources": [READ]}, {}], {0: 0, 1: 0, 2: 0}, False),  # rows were read in one of the last two batches
        ([{}, {}, {}], {0: 0, 1: 0, 2: 3}, False),  # a timer fired or a window closed
        ([{}, {}, {}], {0: 0, 1: 3, 2: 0}, False),
        ([{}], {0: 0}, False),  # only one batch since the start
    ],
)
def test_two_batches_without_rows_are_empty(batches: list[Any], written: dict[int, int | None], is_empty: bool) -> None:
    assert RunningQuery.runs_empty_batches(query(*batches, written=written)) == is_empty


def test_rows_that_the_writer_does_not_count_are_taken_from_the_observations() -> None:
    def observed(rows: int) -> dict[str, Any]:
        return {"observedMetrics": {"__penstock_rows_op": {"rows": rows}, "theirs": {"rows": 7}}}

    theirs: dict[str, Any] = {
        "written": {0: 0, 1: 0},
        "counted": None,
    }  # the return value of a user's sink is not a count
    assert RunningQuery.runs_empty_batches(query(observed(0), observed(0), **theirs))
    assert not RunningQuery.runs_empty_batches(query(observed(2), observed(0), **theirs))
    assert not RunningQuery.runs_empty_batches(query({}, {}, **theirs))  # unknown rows do not count as empty
    to_spark = [{"sink": {"numOutputRows": rows}} for rows in (0, 0, 1)]
    assert RunningQuery.runs_empty_batches(query(*to_spark[:2], written={}))
    assert not RunningQuery.runs_empty_batches(query(*to_spark[1:], written={}))
