"""Word count, network monitoring and finance with an operator that waits for each row of a source.

The wait stands for work on another machine. Without it, a machine with few cores could not use 16 slots.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import penstock
from penstock.apps import finance as trading
from penstock.apps import netmon, wordcount
from penstock.dataflow import Dataflow
from penstock.dataflow.stream import Stream

WAIT_S = 0.005
LINES = "value string"


def _wait(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_S)
    return row


def _source(flow: Dataflow, name: str, fn: Any, schema: str, rows_per_s: float) -> Stream:
    rows = flow.source(name, penstock.generate(fn, schema=schema, rows_per_s=rows_per_s))
    return rows.rows(f"wait_{name}", _wait, schema=schema)


def word_count(rows_per_s: float) -> Dataflow:
    flow = penstock.Dataflow("waiting_wordcount")
    words = _source(flow, "lines", wordcount.generator, LINES, rows_per_s).stateless(
        "split", wordcount.split, columns=["word"]
    )
    words.keyed("count", wordcount.count, keys=["word"], columns=["word", "count"]).sink("out", penstock.noop())
    return flow


def network_monitoring(rows_per_s: float) -> Dataflow:
    flow = penstock.Dataflow("waiting_netmon")
    counted = ["ip", "window_start", "window_end", "n", "first", "last"]
    (
        _source(flow, "lines", netmon.generator, LINES, rows_per_s)
        .stateless("failures", netmon.failures, columns=["value"])
        .stateless("parse", netmon.parse, columns=["ts", "host", "user", "known", "ip"])
        .watermark("ts", f"{netmon.WATERMARK_DELAY_S} seconds")
        .keyed("attempts", netmon.attempts, keys=["ip"], columns=counted)
        .stateless("cutoff", functools.partial(netmon.cutoff, threshold=netmon.THRESHOLD), columns=counted)
        .sink("out", penstock.noop())
    )
    return flow


def finance(rows_per_s: float) -> Dataflow:
    flow = penstock.Dataflow("waiting_finance")
    key = ["symbol", "window_start"]
    trades = _source(flow, "trades", trading.trade, trading.TRADES, rows_per_s)
    trades.watermark("ts", f"{trading.WATERMARK_DELAY_S} seconds")
    averages = trades.keyed("vwap", trading.vwap, keys=["symbol"], columns=[*key, "turnover", "volume"])
    averages.watermark("window_start", f"{trading.JOIN_DELAY_S} seconds")
    quotes = _source(flow, "quotes", trading.quote, trading.QUOTES, rows_per_s)
    bucketed = quotes.stateless("bucket", trading.bucket, columns=[*key, "ts", "ask", "size"])
    bucketed.watermark("window_start", f"{trading.JOIN_DELAY_S} seconds")
    columns = [*key, "ts", "ask", "size", "index"]
    bargains = flow.keyed("bargain", trading.bargain, keys=["symbol"], inputs=[averages, bucketed], columns=columns)
    bargains.sink("out", penstock.noop())
    return flow
