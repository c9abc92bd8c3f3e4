"""Nexmark on Spark: random plan changes while rows flow, and the output is that of the oracle."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps import nexmark
from penstock.apps.nexmark import winning_bids
from penstock.apps.nexmark.settings import NexmarkSettings
from tests.support.nexmark_runs import SMALL
from tests.support.plain_query import collect_stream, compose, write_files
from tests.support.spark_runs import engine_for, play, random_plan

pytestmark = pytest.mark.spark

ROWS = 2_000
# One query of each shape: a join without a watermark, a join with two aggregates behind it, an aggregate of an
# aggregate, an aggregate before a join, and session windows. The others run in tests/soak.
QUERIES = [nexmark.q3, nexmark.q4, nexmark.q5, nexmark.q8, nexmark.q11]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__.rpartition(".")[2])
def test_output_is_exact_after_a_random_plan_change(spark: SparkSession, tmp_path: Path, query: ModuleType) -> None:
    flow = query.flow(output=penstock.memory(), rows=ROWS, rows_per_s=1_000, **SMALL)
    engine = engine_for(flow, spark, tmp_path, max_batch_rows=300)
    try:
        engine.start()
        play(engine, [random_plan(flow, random.Random(query.__name__))])
        assert query.check(engine.rows("out"), ROWS, **SMALL) == []
    finally:
        engine.stop()


def test_an_auction_closes_when_the_watermark_behind_the_join_reaches_its_end(plain_spark: Any, tmp_path: Path) -> None:
    """The oracles of queries 4 and 6 state which auctions are closed at the end, to the millisecond."""
    settings = NexmarkSettings(**SMALL)
    closed = datetime(2026, 1, 1, 12, tzinfo=UTC)
    second, longest = timedelta(seconds=1), timedelta(milliseconds=settings.max_auction_ms)
    disorder = timedelta(milliseconds=settings.disorder_ms)
    ends = [closed + timedelta(milliseconds=ms) for ms in (-1, 0, 1)]
    opened = [(auction, 5, 10, end - second, end) for auction, end in enumerate(ends)]
    placed = [(auction, 100 + auction, end - second) for auction, end in enumerate(ends)]
    # The last rows move both watermarks to `closed` plus the longest duration of an auction.
    last = closed + 2 * longest + disorder
    opened.append((9, 5, 10, last - second, last))
    placed.append((9, 1, closed + longest + disorder))

    def output(flow: penstock.Dataflow, name: str) -> list[int]:
        schemas = {
            "opened": "auction bigint, seller bigint, category bigint, opens timestamp, expires timestamp",
            "placed": "auction bigint, price bigint, date_time timestamp",
        }
        frames = {}
        for operator, rows in (("opened", opened), ("placed", placed)):
            lines = [",".join(v.isoformat() if isinstance(v, datetime) else str(v) for v in row) for row in rows]
            folder = write_files(tmp_path / name / operator, lines, [3])
            frames[operator] = (
                plain_spark.readStream.option("maxFilesPerTrigger", 1).schema(schemas[operator]).csv(str(folder))
            )
        rows = collect_stream(compose(flow, frames), tmp_path / name / "checkpoint", "append")
        return sorted(row["auction"] for row in rows)

    winners = penstock.Dataflow("winners")
    winning_bids.stream(winners, 1, None, settings).sink("out", penstock.memory())
    # The oracles expect the auctions with `expires <= closed_ms`, which is one millisecond before `closed`.
    assert output(winners, "winners") == [0]
    assert output(nexmark.q6.flow(rows=1, **SMALL), "q6") == [0]
