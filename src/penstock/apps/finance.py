"""Finance: quotes that ask less than what the share has just been traded for.

Kahveci and Gedik, "Joker", JPDC 2020, section 5.4: one branch averages trades, weighted by volume (VWAP), by symbol
and window; the other brings quotes; joined, they give a bargain index for each profitable quote. Two sources, two
regions keyed by symbol.

Prices are whole cents and volumes whole shares. A VWAP is kept as the fraction turnover / volume, so that results
are exact and do not depend on the order of addition. Event time comes from the row number and is out of order by
less than the watermark's delay: no row is late. The last trades of a finite stream lie far in the future and push
the watermark past all windows before them; their own window stays open.
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
DELAY_S = 10  # of the watermark
DISORDER_MS = 4_000  # less than the delay
ROW_EVERY_MS = 20  # of event time, in each source, whatever the rate of arrival
# Of the join, on the start of windows: those of two quotes differ by a window more than their times do.
JOIN_DELAY_S = 20
FLUSH_ROWS = 3
SYMBOLS = 64
TRADES = "symbol string, ts timestamp, price bigint, volume bigint"
QUOTES = "symbol string, ts timestamp, ask bigint, size bigint"
_FLUSH_AHEAD_MS = 24 * 3600 * 1000
_FLUSH_SYMBOL = "FLUSH"
_TRADE_SEED, _QUOTE_SEED = 0x74726164, 0x71756F74
_START = datetime(2026, 1, 1, 14, 30, tzinfo=UTC)

# Symbol and the price, in cents, about which it moves.
_LISTED = zipf_table([(f"{'KLMNPRST'[i // 8]}{'ABCDEFGH'[i % 8]}X", 1_000 + 487 * i) for i in range(SYMBOLS)], bits=10)

Trade = tuple[str, datetime, int, int]
Quote = tuple[str, datetime, int, int]


def trade(n: int, rows: int | None = None) -> Trade:
    """Trade n: symbol, time, price in cents (within 5 % of its middle), shares; the last of `rows` are the flush.

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
    """Quote n: symbol, time, asked price in cents (1 % above the middle, within 5 %), shares.

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
    """Turnover and volume by symbol and window; the VWAP is the one by the other."""
    return (
        trades.groupBy(F.window("ts", f"{WINDOW_S} seconds"), "symbol")
        .agg(F.sum(F.col("price") * F.col("volume")).alias("turnover"), F.sum("volume").alias("volume"))
        .select("symbol", F.col("window.start").alias("window_start"), "turnover", "volume")
    )


def bucket(quotes: DataFrame) -> DataFrame:
    """The window of each quote as a plain column: both sides of the join have then one kind of key."""
    seconds = F.unix_seconds("ts")
    start = F.timestamp_seconds(seconds - F.pmod(seconds, F.lit(WINDOW_S)))
    return quotes.select("symbol", start.alias("window_start"), "ts", "ask", "size")


def bargain(vwap: DataFrame, quotes: DataFrame) -> DataFrame:
    """index = (VWAP - ask) * size, in whole cents, where that is above nothing: turnover > ask * volume."""
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
    """The dataflow on `rows` generated trades and as many quotes, each at `rows_per_s`.

    `input` is a folder with files trades*.csv and quotes*.csv, without headers, to read in place of them.
    """
    flow = penstock.Dataflow("finance")

    def source(name: str, fn: Any, schema: str) -> Any:
        files = None if input is None else str(Path(input) / f"{name}*.csv")
        return generated_or_files(fn, schema, input=files, rows=rows, rows_per_s=rows_per_s)

    trades = flow.source("trades", source("trades", functools.partial(trade, rows=rows), TRADES))
    trades.watermark("ts", f"{DELAY_S} seconds")
    averages = trades.keyed("vwap", vwap, keys=["symbol"], columns=["symbol", "window_start", "turnover", "volume"])
    # The join forgets a window when both sides are past it; the side that is behind holds the watermark back.
    averages.watermark("window_start", f"{JOIN_DELAY_S} seconds")
    quotes = flow.source("quotes", source("quotes", quote, QUOTES))
    bucketed = quotes.stateless("bucket", bucket, columns=["symbol", "window_start", "ts", "ask", "size"])
    bucketed.watermark("window_start", f"{JOIN_DELAY_S} seconds")
    found = flow.keyed(
        "bargain",
        bargain,
        keys=["symbol"],
        inputs=[averages, bucketed],
        columns=["symbol", "window_start", "ts", "ask", "size", "index"],
    )
    found.sink("out", default_sink(output, rows))
    return flow


Bargain = tuple[str, int, int, int, int, int]  # symbol, window start in ms, time in ms, ask, size, index


def oracle(rows: int) -> Counter[Bargain]:
    """The bargains in `rows` trades and as many quotes; two equal quotes are two bargains."""
    return bargains([trade(n, rows) for n in range(rows)], [quote(n) for n in range(rows)])


def bargains(trades: Iterable[Trade], quotes: Iterable[Quote]) -> Counter[Bargain]:
    """What must come out for these rows: quotes below the VWAP of a window that the watermark has passed.

    >>> at = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(60)]
    >>> trades = [("A", at[1], 100, 1), ("A", at[9], 200, 3), ("A", at[40], 1, 1)]  # (100 + 600) / 4 = 175
    >>> bargains(trades, [("A", at[0], 170, 2), ("A", at[9], 175, 2), ("B", at[0], 1, 1), ("A", at[41], 0, 1)])
    Counter({('A', 1767225600000, 1767225600000, 170, 2, 10): 1})
    """
    sums: dict[tuple[str, int], list[int]] = {}
    latest_ms = 0
    for symbol, at, price, volume in trades:
        at_ms = epoch_ms(at)
        of_window = sums.setdefault((symbol, at_ms // (WINDOW_S * 1000)), [0, 0])
        of_window[0] += price * volume
        of_window[1] += volume
        latest_ms = max(latest_ms, at_ms)
    found: Counter[Bargain] = Counter()
    for symbol, at, ask, size in quotes:
        window = epoch_ms(at) // (WINDOW_S * 1000)
        turnover, volume = sums.get((symbol, window), (0, 0))
        closed = (window + 1) * WINDOW_S * 1000 <= latest_ms - DELAY_S * 1000
        if closed and turnover > ask * volume:
            index = (turnover - ask * volume) * size // volume
            found[symbol, window * WINDOW_S * 1000, epoch_ms(at), ask, size, index] += 1
    return found


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Bargain]:
    """The rows of the sink, with times as milliseconds."""
    return Counter(
        (row["symbol"], epoch_ms(row["window_start"]), epoch_ms(row["ts"]), row["ask"], row["size"], row["index"])
        for row in output
    )


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """How the output differs from the oracle's: bargains that are missing, wrong, or there too often."""
    return differences(oracle(rows), actual(output))
