"""Word count of tweets with an operator that waits 1 ms for each tweet. Its result is that of `word_count`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import penstock
from penstock.apps import wordcount
from penstock.apps.input_output import default_sink, generated
from penstock.apps.stepwise import word_count
from penstock.apps.stepwise.tweets import tweet
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour

WAIT_S = 0.001


def wait(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_S)
    return row


def flow(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> penstock.Dataflow:
    flow = penstock.Dataflow("waiting_word_count")
    (
        flow.source("tweets", generated(tweet, "tweet string", rows, rows_per_s))
        .rows("parse", word_count.parse, schema="value string")
        .rows("wait", wait, schema="value string")
        .stateless("split", wordcount.split, columns=["word"])
        .keyed("count", wordcount.count, keys=["word"], columns=["word", "count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


def behaviour() -> Behaviour:
    known = word_count.behaviour()
    return known.replace(operators=known.operators | {"wait": OperatorBehaviour(service_s=Fixed(value=WAIT_S))})


def oracle(rows: int) -> Counter[str]:
    return word_count.oracle(rows)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return word_count.actual(output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return word_count.check(output, rows)
