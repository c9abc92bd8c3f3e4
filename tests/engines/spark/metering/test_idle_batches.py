"""A query whose batches go on for ever is at rest once they bring nothing in and nothing out."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.spark.metering.batches import turns_over_nothing

READ = {"startOffset": {"row": 5}, "endOffset": {"row": 9}}
AT_END = {"startOffset": {"row": 9}, "endOffset": {"row": 9}}


def query(*batches: dict[str, Any], written: dict[int, int | None], counted: str | None = "op") -> Any:
    told = []
    for number, batch in enumerate(batches):
        progress = {"batchId": number, "durationMs": {"addBatch": 1}, "sources": [AT_END]} | batch
        told.append(SimpleNamespace(json=lambda progress=progress: json.dumps(progress)))
    spark = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: told))
    return SimpleNamespace(query=spark, written=written, compiled=SimpleNamespace(counted=counted))


@pytest.mark.parametrize(
    ("batches", "written", "rests"),
    [
        ([{"sources": [READ]}, {}, {}], {0: 4, 1: 0, 2: 0}, True),
        ([{}, {"sources": [READ]}, {}], {0: 0, 1: 0, 2: 0}, False),  # what came in is two batches old at least
        ([{}, {}, {}], {0: 0, 1: 0, 2: 3}, False),  # a timer has rung, a window has closed
        ([{}, {}, {}], {0: 0, 1: 3, 2: 0}, False),
        ([{}], {0: 0}, False),  # the first of a start
    ],
)
def test_two_batches_without_rows_are_rest(batches: list[Any], written: dict[int, int | None], rests: bool) -> None:
    assert turns_over_nothing(query(*batches, written=written)) == rests


def test_rows_that_nobody_counts_where_they_are_written_are_told_by_what_was_observed() -> None:
    def seen(rows: int) -> dict[str, Any]:
        return {"observedMetrics": {"__penstock_rows_op": {"rows": rows}, "theirs": {"rows": 7}}}

    theirs: dict[str, Any] = {"written": {0: 0, 1: 0}, "counted": None}  # whatever a user's sink returns is no count
    assert turns_over_nothing(query(seen(0), seen(0), **theirs))
    assert not turns_over_nothing(query(seen(2), seen(0), **theirs))
    assert not turns_over_nothing(query({}, {}, **theirs))  # not known: not at rest
    to_spark = [{"sink": {"numOutputRows": rows}} for rows in (0, 0, 1)]
    assert turns_over_nothing(query(*to_spark[:2], written={}))
    assert not turns_over_nothing(query(*to_spark[1:], written={}))
