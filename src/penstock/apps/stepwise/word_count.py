"""Word count of tweets: parse JSON, split the text into words, and count each word (figure 3 of the paper)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import penstock
from penstock.apps import wordcount
from penstock.apps.comparison import count_differences, last_counts
from penstock.apps.input_output import default_sink, generated
from penstock.apps.stepwise.tweets import WORDS_PER_TWEET, text_of, tweet
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour

PARSE_S, SPLIT_S, COUNT_S = 0.7e-3, 0.3e-3, 0.1e-3  # assumed for one core; a word is counted in COUNT_S


def parse(row: dict[str, Any]) -> dict[str, Any]:
    """Return the text of a tweet.

    >>> parse({"tweet": '{"text": "to be"}'})
    {'value': 'to be'}
    """
    return {"value": text_of(row["tweet"])}


def flow(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> penstock.Dataflow:
    flow = penstock.Dataflow("word_count")
    (
        flow.source("tweets", generated(tweet, "tweet string", rows, rows_per_s))
        .rows("parse", parse, schema="value string")
        .stateless("split", wordcount.split, columns=["word"])
        .keyed("count", wordcount.count, keys=["word"], columns=["word", "count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


def behaviour() -> Behaviour:
    return Behaviour(
        operators={
            "parse": OperatorBehaviour(service_s=Exponential(mean=PARSE_S)),
            "split": OperatorBehaviour(service_s=Exponential(mean=SPLIT_S), selectivity=Fixed(value=WORDS_PER_TWEET)),
            "count": OperatorBehaviour(service_s=Exponential(mean=COUNT_S)),
        }
    )


def oracle(rows: int) -> Counter[str]:
    """Return the count of each word in the first `rows` tweets."""
    return wordcount.count_words(text_of(tweet(n)) for n in range(rows))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return the last count of each word."""
    return last_counts(output, "word")


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return count_differences(oracle(rows), output, "word")
