"""Nexmark query 6, average selling price by seller: the mean of the last 10 closed auctions of each seller.

A row is emitted for each closed auction. Auctions count in the order in which they close; equal times are ordered by
auction. The mean is rounded down to a whole number.

Flink SQL cannot express this query (FLINK-19059). In Structured Streaming, the last ten prices are the state of a
`transformWithState` processor. Rows may arrive in another order than they close, so the processor keeps them until the
watermark has passed their time. The timers of Spark fire when the watermark is greater than the time, not equal to it:
an auction whose end equals the last watermark stays open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink
from penstock.apps.nexmark import winning_bids
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.sinks import Sink

AUCTIONS = 10
SCHEMA = "seller bigint, auction bigint, expires_ms bigint, average bigint"


class LastTen(StatefulProcessor):
    """Keeps the closed auctions of a seller until the watermark has passed them, and the last ten prices."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._waiting = handle.getMapState("waiting", "expires_ms bigint, auction bigint", "price bigint")
        self._last = handle.getValueState("last", "prices array<bigint>")

    def handleInputRows(  # noqa: N802 - Spark's names
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            columns = (frame[name].tolist() for name in ("expires_ms", "auction", "price"))
            for expires_ms, auction, price in zip(*columns, strict=True):
                self._waiting.updateValue((expires_ms, auction), (price,))
                self._handle.registerTimer(expires_ms)
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Emit the mean for each auction that the watermark has passed, in order. Later timers find nothing left."""
        passed_ms = max(expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentWatermarkInMs() - 1)
        closed = sorted((*auction, *price) for auction, price in self._waiting.iterator() if auction[0] <= passed_ms)
        before = self._last.get()
        last = [] if before is None else list(before[0])
        rows = []
        for expires_ms, auction, price in closed:
            self._waiting.removeKey((expires_ms, auction))
            last = [*last, price][-AUCTIONS:]
            rows.append((key[0], auction, expires_ms, sum(last) // len(last)))
        if rows:
            self._last.update((last,))
            yield pd.DataFrame(rows, columns=["seller", "auction", "expires_ms", "average"])

    def close(self) -> None:
        pass


def averages(winners: DataFrame) -> DataFrame:
    """Apply the processor. Times are numbers there, because pandas receives timestamps in the zone of the session."""
    numbered = winners.withColumn("expires_ms", F.unix_millis("expires"))
    means = numbered.groupBy("seller").transformWithStateInPandas(LastTen(), SCHEMA, "Append", "EventTime")
    return means.selectExpr("seller", "auction", "timestamp_millis(expires_ms) as expires", "average")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q6")
    winners = winning_bids.stream(flow, rows, rows_per_s, NexmarkSettings(**settings))
    means = winners.keyed("averages", averages, keys=["seller"], columns=["seller", "auction", "expires", "average"])
    means.sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int, int, int]  # seller, auction, end of the auction in ms, mean price


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the mean after each auction that closed before the last watermark."""
    prices: dict[int, list[int]] = {}
    expected: Counter[Row] = Counter()
    for winner in winning_bids.winners(rows, NexmarkSettings(**settings)):
        prices.setdefault(winner.seller, []).append(winner.price)
        latest = prices[winner.seller][-AUCTIONS:]
        expected[winner.seller, winner.auction, winner.expires_ms, sum(latest) // len(latest)] += 1
    return expected


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((row["seller"], row["auction"], epoch_ms(row["expires"]), row["average"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
