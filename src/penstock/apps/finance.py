"""Finance: find quotes that ask less than the recent average price of a share.

Kahveci and Gedik, "Joker", JPDC 2020, section 5.4. One branch computes the volume-weighted average price (VWAP) of
trades by symbol and window. The other branch reads quotes. Their join gives a bargain index for each profitable quote.
There are two sources and two operators keyed by symbol.

Prices are whole cents and volumes are whole shares. A VWAP is kept as the fraction turnover / volume, so results are
exact and do not depend on the order of addition. Event time follows the row number and is out of order by less than the
delay of the watermark, so no row is late. The last trades of a finite stream are far in the future: they move the
watermark past all earlier windows, and their own window stays open.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink, generated_or_files
from penstock.apps.seeded_random import random_bits, zipf_table
from penstock.dataflow.sinks import Sink

WINDOW_S = 10
WATERMARK_DELAY_S = 10
DISORDER_MS = 4_000  # less than the delay of the watermark
ROW_EVERY_MS = 20  # event time between two rows of a source, independent of the arrival rate
# The join uses the start of windows: two starts differ by up to one window more than the times of the quotes.
JOIN_DELAY_S = 20
FLUSH_ROWS = 3
SYMBOLS = 64
TRADES = "symbol string, ts timestamp, price bigint, volume bigint"
QUOTES = "symbol string, ts timestamp, ask bigint, size bigint"
_FLUSH_AHEAD_MS = 24 * 3600 * 1000
_FLUSH_SYMBOL = "FLUSH"
_TRADE_SEED, _QUOTE_SEED = 0x74726164, 0x71756F74
_START = datetime(2026, 1, 1, 14, 30, tzinfo=UTC)

# Symbol and its mean price in cents.
_LISTED = zipf_table([(f"{'KLMNPRST'[i // 8]}{'ABCDEFGH'[i % 8]}X", 1_000 + 487 * i) for i in range(SYMBOLS)], bits=10)

Trade = tuple[str, datetime, int, int]
Quote = tuple[str, datetime, int, int]


def trade(n: int, rows: int | None = None) -> Trade:
    """Return trade n: symbol, time, price in cents (within 5 % of its mean), shares. The last trades flush the windows.

    >>> symbol, at, price, volume = trade(0)
    >>> symbol, at.isoformat(), price, volume
    ('KAX', '2026-01-01T14:30:02.365000+00:00', 1038, 112)
    """
    bits = random_bits(n, _TRADE_SEED)
    if rows is not None and n >= rows - FLUSH_ROWS:
        return _FLUSH_SYMBOL, _START + timedelta(milliseconds=rows * ROW_EVERY_MS + _FLUSH_AHEAD_MS), 1, 1
    symbol, middle = _LISTED[bits & 0x3FF]
    price = middle + middle * ((bits >> 24 & 0x3FF) - 512) // 10_240
    return symbol, _time(n, bits), price, 1 + (bits >> 34 & 0x3FF)


def quote(n: int) -> Quote:
    """Return quote n: symbol, time, asked price in cents (within 5 % of 1 % above the mean), shares.

    >>> symbol, at, ask, size = quote(0)
    >>> symbol, at.isoformat(), ask, size
    ('KAX', '2026-01-01T14:30:01.958000+00:00', 1026, 63)
    """
    bits = random_bits(n, _QUOTE_SEED)
    symbol, middle = _LISTED[bits & 0x3FF]
    ask = middle + middle * ((bits >> 24 & 0x3FF) - 410) // 10_240
    return symbol, _time(n, bits), ask, 1 + (bits >> 34 & 0x1FF)


def _time(n: int, bits: int) -> datetime:
    return _START + timedelta(milliseconds=n * ROW_EVERY_MS + (bits >> 10 & 0x3FFF) % DISORDER_MS)


def vwap(trades: DataFrame) -> DataFrame:
    """Return turnover and volume by symbol and window. The VWAP is turnover / volume."""
    return (
        trades.groupBy(F.window("ts", f"{WINDOW_S} seconds"), "symbol")
        .agg(F.sum(F.col("price") * F.col("volume")).alias("turnover"), F.sum("volume").alias("volume"))
        .select("symbol", F.col("window.start").alias("window_start"), "turnover", "volume")
    )


def bucket(quotes: DataFrame) -> DataFrame:
    """Add the start of the window of each quote, so that both sides of the join have the same key columns."""
    seconds = F.unix_seconds("ts")
    start = F.timestamp_seconds(seconds - F.pmod(seconds, F.lit(WINDOW_S)))
    return quotes.select("symbol", start.alias("window_start"), "ts", "ask", "size")


def bargain(vwap: DataFrame, quotes: DataFrame) -> DataFrame:
    """Return index = (VWAP - ask) * size in whole cents for profitable quotes: turnover > ask * volume."""
    gain = F.col("turnover") - F.col("ask") * F.col("volume")
    return (
        vwap.join(quotes, ["symbol", "window_start"])
        .where(gain > 0)
        .withColumn("gain", gain)
        .select("symbol", "window_start", "ts", "ask", "size", F.expr("gain * size div volume").alias("index"))
    )


def flow(
    input: str | None = None,
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> penstock.Dataflow:
    """Return the dataflow on `rows` generated trades and as many quotes, each at `rows_per_s`.

    `input` is a folder with files trades*.csv and quotes*.csv without headers, which replace the generated rows.
    """
    flow = penstock.Dataflow("finance")

    def source(name: str, fn: Any, schema: str) -> Any:
        files = None if input is None else str(Path(input) / f"{name}*.csv")
        return generated_or_files(fn, schema, input=files, rows=rows, rows_per_s=rows_per_s)

    trades = flow.source("trades", source("trades", functools.partial(trade, rows=rows), TRADES))
    trades.watermark("ts", f"{WATERMARK_DELAY_S} seconds")
    averages = trades.keyed("vwap", vwap, keys=["symbol"], columns=["symbol", "window_start", "turnover", "volume"])
    # The join drops a window when the watermarks of both sides have passed it.
    averages.watermark("window_start", f"{JOIN_DELAY_S} seconds")
    quotes = flow.source("quotes", source("quotes", quote, QUOTES))
    bucketed = quotes.stateless("bucket", bucket, columns=["symbol", "window_start", "ts", "ask", "size"])
    bucketed.watermark("window_start", f"{JOIN_DELAY_S} seconds")
    profitable = flow.keyed(
        "bargain",
        bargain,
        keys=["symbol"],
        inputs=[averages, bucketed],
        columns=["symbol", "window_start", "ts", "ask", "size", "index"],
    )
    profitable.sink("out", default_sink(output, rows))
    return flow


Bargain = tuple[str, int, int, int, int, int]  # symbol, window start in ms, time in ms, ask, size, index


def oracle(rows: int) -> Counter[Bargain]:
    """Return the bargains in `rows` trades and as many quotes. Two equal quotes are two bargains."""
    return bargains([trade(n, rows) for n in range(rows)], [quote(n) for n in range(rows)])


def bargains(trades: Iterable[Trade], quotes: Iterable[Quote]) -> Counter[Bargain]:
    """Return the expected output of these rows: quotes below the VWAP of a window that the watermark has passed.

    >>> at = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(60)]
    >>> trades = [("A", at[1], 100, 1), ("A", at[9], 200, 3), ("A", at[40], 1, 1)]  # (100 + 600) / 4 = 175
    >>> bargains(trades, [("A", at[0], 170, 2), ("A", at[9], 175, 2), ("B", at[0], 1, 1), ("A", at[41], 0, 1)])
    Counter({('A', 1767225600000, 1767225600000, 170, 2, 10): 1})
    """
    sums: dict[tuple[str, int], list[int]] = {}
    latest_ms = 0
    for symbol, at, price, volume in trades:
        at_ms = epoch_ms(at)
        window_sums = sums.setdefault((symbol, at_ms // (WINDOW_S * 1000)), [0, 0])
        window_sums[0] += price * volume
        window_sums[1] += volume
        latest_ms = max(latest_ms, at_ms)
    expected: Counter[Bargain] = Counter()
    for symbol, at, ask, size in quotes:
        window = epoch_ms(at) // (WINDOW_S * 1000)
        turnover, volume = sums.get((symbol, window), (0, 0))
        is_closed = (window + 1) * WINDOW_S * 1000 <= latest_ms - WATERMARK_DELAY_S * 1000
        if is_closed and turnover > ask * volume:
            index = (turnover - ask * volume) * size // volume
            expected[symbol, window * WINDOW_S * 1000, epoch_ms(at), ask, size, index] += 1
    return expected


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Bargain]:
    """Return the rows of the sink, with times in milliseconds."""
    return Counter(
        (row["symbol"], epoch_ms(row["window_start"]), epoch_ms(row["ts"]), row["ask"], row["size"], row["index"])
        for row in output
    )


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
