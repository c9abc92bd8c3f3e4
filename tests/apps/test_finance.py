from __future__ import annotations

import os
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.apps import finance
from penstock.dataflow import regions
from tests.support.plain_query import collect_stream, compose, write_files
from tests.support.spark_runs import engine_for, wait_until

ROWS = 2_000


def _csv(row: tuple[Any, ...]) -> str:
    return f"{row[0]},{row[1].isoformat()},{row[2]},{row[3]}"


def test_symbols_follow_zipf_and_prices_stay_near_their_middle() -> None:
    trades = [finance.trade(n) for n in range(8_000)]
    assert len({symbol for symbol, *_ in trades}) == finance.SYMBOLS
    first = [price for symbol, _, price, _ in trades if symbol == "KAX"]
    assert len(first) / len(trades) == pytest.approx(1 / sum(1 / r for r in range(1, 65)), rel=0.1)
    assert 950 <= min(first) < 960 < 1040 < max(first) <= 1050
    assert {volume for *_, volume in trades} == set(range(1, 1025))


@pytest.mark.parametrize("make", [lambda n: finance.trade(n, ROWS), finance.quote])
def test_no_row_is_late_in_any_batches(make: Any) -> None:
    latest, latest_window = 0.0, 0.0
    for n in range(ROWS):
        at = make(n)[1].timestamp()
        window = at - at % finance.WINDOW_S
        assert at > latest - finance.WATERMARK_DELAY_S
        assert window > latest_window - finance.JOIN_DELAY_S
        latest, latest_window = max(latest, at), max(latest_window, window)


def test_the_flush_closes_every_window_but_its_own() -> None:
    trades = [finance.trade(n, ROWS) for n in range(ROWS)]
    real, flush = trades[: -finance.FLUSH_ROWS], trades[-finance.FLUSH_ROWS :]
    assert real == [finance.trade(n) for n in range(ROWS - finance.FLUSH_ROWS)]
    ahead = min(row[1] for row in flush) - max(row[1] for row in real)
    assert ahead.total_seconds() > finance.WINDOW_S + finance.WATERMARK_DELAY_S
    # Without the flush the watermark would not reach the end of the last windows, and they would be missing.
    assert finance.oracle(ROWS) > finance.bargains(real, [finance.quote(n) for n in range(ROWS)])


def test_about_four_quotes_in_ten_are_bargains_and_their_index_is_the_fraction_s_floor() -> None:
    matches = finance.oracle(ROWS)
    assert 0.3 < sum(matches.values()) / ROWS < 0.5
    trades = [finance.trade(n) for n in range(ROWS)]
    for symbol, start_ms, _, ask, size, index in list(matches)[::50]:
        mine = [t for t in trades if t[0] == symbol and 0 <= t[1].timestamp() * 1000 - start_ms < 10_000]
        vwap = Fraction(sum(t[2] * t[3] for t in mine), sum(t[3] for t in mine))
        assert vwap > ask
        assert index == (vwap - ask) * size // 1


def test_the_dataflow_has_two_keyed_regions() -> None:
    flow = finance.flow(rows=ROWS)
    flow.check()
    assert [(region.operators, region.keys) for region in regions(flow)] == [
        (("trades",), ()),
        (("vwap",), ("symbol",)),
        (("quotes",), ()),
        (("bucket",), ()),
        (("bargain", "out"), ("symbol",)),
    ]
    assert flow["vwap"].output_mode == flow["bargain"].output_mode == "append"
    source = pickle.loads(pickle.dumps(flow["trades"].source))
    assert source.fn(ROWS - 1) == finance.trade(ROWS - 1, ROWS)
    assert finance.flow("data")["quotes"].source == penstock.backlog(
        "data/quotes*.csv", schema=finance.QUOTES, header=False
    )
    finance.flow().check()


@pytest.mark.spark
def test_in_one_batch_the_bargains_are_the_oracle_s(plain_spark: Any) -> None:
    frames = {
        "trades": plain_spark.createDataFrame([finance.trade(n, ROWS) for n in range(ROWS)], finance.TRADES),
        "quotes": plain_spark.createDataFrame([finance.quote(n) for n in range(ROWS)], finance.QUOTES),
    }
    output = [row.asDict() for row in compose(finance.flow(rows=ROWS), frames).collect()]
    assert finance.check(output, ROWS) == []


@pytest.mark.spark
def test_as_two_streams_the_bargains_are_the_oracle_s_and_the_join_forgets(plain_spark: Any, tmp_path: Path) -> None:
    """Each keyed operator has its own query: in one query, the watermark after `vwap` would wait for itself."""
    flow = finance.flow(rows=ROWS)
    write_files(tmp_path / "trades", (_csv(finance.trade(n, ROWS)) for n in range(ROWS)), [701, 600])
    write_files(tmp_path / "quotes", (_csv(finance.quote(n)) for n in range(ROWS)), [900])
    stream = plain_spark.readStream.option("maxFilesPerTrigger", 1)
    trades = stream.schema(finance.TRADES).csv(str(tmp_path / "trades"))
    channel = tmp_path / "channel"
    channel.mkdir()

    def append(batch: Any, number: int) -> None:
        batch.coalesce(1).write.parquet(str(channel / f"{number:05}"))

    averages = finance.vwap(trades.withWatermark("ts", flow["trades"].watermark.delay))
    collect_stream(averages, tmp_path / "checkpoint_vwap", "append", each=append)
    for number, path in enumerate(sorted(channel.glob("*/*.parquet"))):
        os.utime(path, (1_700_000_000 + number,) * 2)

    states = []
    frames = {
        "vwap": stream.schema(averages.schema).parquet(str(channel / "*")),
        "quotes": stream.schema(finance.QUOTES).csv(str(tmp_path / "quotes")),
    }
    output = collect_stream(compose(flow, frames), tmp_path / "checkpoint_bargain", "append", progress=states.append)
    assert finance.check(output, ROWS) == []
    assert sum(operator["numRowsRemoved"] for state in states for operator in state["stateOperators"]) > 0
    assert sum(operator["numRowsDroppedByWatermark"] for state in states for operator in state["stateOperators"]) == 0


@pytest.mark.spark
def test_files_without_headers_are_read_as_the_rows_that_they_were_made_of(spark: Any, tmp_path: Path) -> None:
    """Times without a zone are UTC in any time zone of the session."""
    trades = [finance.trade(n) for n in range(100)]
    for part in range(2):
        lines = [_csv((symbol, at.replace(tzinfo=None), *rest)) for symbol, at, *rest in trades[part::2]]
        (tmp_path / f"trades_{part}.csv").write_text("\n".join(lines))
    read = penstock.Dataflow("read")
    read.source("trades", finance.flow(str(tmp_path))["trades"].source).sink("out", penstock.memory())
    engine = engine_for(read, spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(engine.idle, engine)
        assert sorted(tuple(row.values()) for row in engine.rows("out")) == sorted(trades)
    finally:
        engine.stop()
