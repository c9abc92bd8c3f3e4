"""Twitter sentiment analysis: store tweets, detect their language, average their sentiment, and rank their hashtags.

Figure 10 of the paper has eleven operators, the source included, in a tree of eight stages. Here `store` is the file
writer, `place_average` and `average` compute the averages, and the operators from `hashtags` to `publish` rank the
most frequent hashtags of a sliding window. All windows are in event time.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink, generated
from penstock.apps.stepwise import lexicon
from penstock.apps.stepwise.languages import detected_language
from penstock.apps.stepwise.multilingual_tweets import DISTINCT_TAGS, PLACES, WATERMARK_DELAY_S, generator
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour

WINDOW_S, SLIDE_S = 10, 5  # the averages are over windows of WINDOW_S that do not overlap
TOP = 5  # hashtags of a ranking
PARTS = 4  # partial rankings per window
COLUMNS = ("window_end", "name", "rank", "value")
# Operators whose output is given by their windows and not by the number of rows that arrive.
TYPES = dict.fromkeys(("place_average", "average", "tag_count", "leaders", "ranking"), "logic-dependent")


def store(row: dict[str, Any], archive: str | None) -> dict[str, Any]:
    """Append a tweet to a file of this process in the folder `archive`, or write it to no file.

    A tweet that is processed again after a failure is written again.
    """
    path = Path(os.devnull) if archive is None else Path(archive) / f"tweets-{os.getpid()}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{row['tweet']}\n")
    return row


def language(row: dict[str, Any]) -> dict[str, Any]:
    """Parse a tweet and add its language, which is detected from the words that are not hashtags."""
    tweet = json.loads(row["tweet"])
    words = " ".join(word for word in tweet["text"].split() if not word.startswith("#"))
    return {
        "at": datetime.fromisoformat(tweet["created_at"]),
        "place": tweet["place"],
        "language": detected_language(words),
        "text": tweet["text"],
    }


def sentiment(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the sentiment of an English tweet."""
    if row["language"] != "en":
        return None
    return {"at": row["at"], "place": row["place"], "score": lexicon.sentiment(row["text"])}


def place_average(scores: DataFrame) -> DataFrame:
    """Return the sum and the number of the scores of each place and window."""
    return scores.groupBy(F.window("at", f"{WINDOW_S} seconds"), "place").agg(
        F.sum("score").alias("total"), F.count("*").alias("n")
    )


def average(places: DataFrame) -> DataFrame:
    """Return the mean score of each window over all places."""
    sums = places.groupBy("window").agg(F.sum("total").alias("total"), F.sum("n").alias("n"))
    return sums.selectExpr(
        "window.end as window_end", "'sentiment' as name", "0 as rank", "cast(total as double) / n as value"
    )


def hashtags(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each hashtag of a tweet.

    >>> [row["tag"] for row in hashtags({"at": None, "text": "rain #rain1 and #moon2"})]
    ['#rain1', '#moon2']
    """
    return ({"at": row["at"], "tag": word} for word in row["text"].split() if word.startswith("#"))


def tag_count(tags: DataFrame) -> DataFrame:
    """Return the number of occurrences of each hashtag in each window, and the partial ranking to which it belongs."""
    windows = F.window("at", f"{WINDOW_S} seconds", f"{SLIDE_S} seconds")
    counts = tags.groupBy(windows, "tag").agg(F.count("*").alias("n"))
    return counts.selectExpr("window", f"crc32(cast(tag as binary)) % {PARTS} as part", "tag", "n")


def leaders(counts: DataFrame) -> DataFrame:
    """Return the most frequent hashtags of each part of a window."""
    first = F.slice(F.sort_array(F.collect_list(F.struct((-F.col("n")).alias("minus_n"), "tag"))), 1, TOP)
    return counts.groupBy("window", "part").agg(first.alias("leaders"))


def ranking(parts: DataFrame) -> DataFrame:
    """Merge the partial rankings of a window. Hashtags with equal counts are in the order of the alphabet."""
    merged = F.slice(F.sort_array(F.flatten(F.collect_list("leaders"))), 1, TOP)
    return parts.groupBy("window").agg(merged.alias("leaders"))


def publish(rankings: DataFrame) -> DataFrame:
    """Return one row per hashtag of a ranking."""
    places = rankings.select(F.col("window.end").alias("window_end"), F.posexplode("leaders").alias("place", "leader"))
    return places.selectExpr(
        "window_end", "leader.tag as name", "place + 1 as rank", "cast(-leader.minus_n as double) as value"
    )


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, archive: str | None = None
) -> penstock.Dataflow:
    """Return the dataflow. `archive` is the folder in which tweets are stored; None writes them to no file."""
    if archive is not None:
        Path(archive).mkdir(parents=True, exist_ok=True)
    flow = penstock.Dataflow("twitter_sentiment")
    delay = f"{WATERMARK_DELAY_S} seconds"
    tweets = (
        flow.source("tweets", generated(functools.partial(generator, rows=rows), "tweet string", rows, rows_per_s))
        .rows("store", functools.partial(store, archive=archive), schema="tweet string")
        .rows("language", language, schema="at timestamp, place string, language string, text string")
    )
    averages = (
        tweets.rows("sentiment", sentiment, schema="at timestamp, place string, score bigint")
        .watermark("at", delay)
        .keyed("place_average", place_average, keys=["place"], columns=["window", "place", "total", "n"])
        .keyed("average", average, keys=["window"], columns=COLUMNS)
    )
    ranked = (
        tweets.rows("hashtags", hashtags, schema="at timestamp, tag string")
        .watermark("at", delay)
        .keyed("tag_count", tag_count, keys=["tag"], columns=["window", "part", "tag", "n"])
        .keyed("leaders", leaders, keys=["window", "part"], columns=["window", "part", "leaders"])
        .keyed("ranking", ranking, keys=["window"], columns=["window", "leaders"])
        .stateless("publish", publish, columns=COLUMNS)
    )
    flow.sink("out", default_sink(output, rows), inputs=[averages, ranked])
    return flow


def behaviour() -> Behaviour:
    """Return assumed costs for one core, with the selectivities of the generated tweets.

    Windows close with the time: their results do not depend on the number of tweets that arrive.
    """

    def costs(milliseconds: float, selectivity: float = 1.0, period_s: float | None = None) -> OperatorBehaviour:
        service = Exponential(mean=milliseconds / 1e3)
        return OperatorBehaviour(service_s=service, selectivity=Fixed(value=selectivity), period_s=period_s)

    return Behaviour(
        operators={
            "store": costs(0.06),
            "language": costs(0.3),
            "sentiment": costs(0.05, 0.5),
            "place_average": costs(0.1, len(PLACES), WINDOW_S),
            "average": costs(0.1, 1, WINDOW_S),
            "hashtags": costs(0.02, 1.5),
            "tag_count": costs(0.1, DISTINCT_TAGS, SLIDE_S),
            "leaders": costs(0.1, PARTS, SLIDE_S),
            "ranking": costs(0.1, 1, SLIDE_S),
            "publish": costs(0.02, TOP),
        }
    )


Row = tuple[int, str, int, float]  # end of the window in ms, name, rank, value


def oracle(rows: int) -> Counter[Row]:
    """Return the averages and rankings of all windows that the watermark has passed."""
    tweets = [language({"tweet": generator(n, rows)}) for n in range(rows)]
    scores: dict[int, list[int]] = {}
    tags: dict[int, Counter[str]] = {}
    latest_ms = 0
    for tweet in tweets:
        at_ms = epoch_ms(tweet["at"])
        latest_ms = max(latest_ms, at_ms)
        if tweet["language"] == "en":
            scores.setdefault(_end_ms(at_ms, WINDOW_S), []).append(lexicon.sentiment(tweet["text"]))
        first_ms = _end_ms(at_ms, SLIDE_S)
        for end_ms in range(first_ms, first_ms + WINDOW_S * 1000, SLIDE_S * 1000):
            tags.setdefault(end_ms, Counter()).update(word for word in tweet["text"].split() if word[0] == "#")
    closed_ms = latest_ms - WATERMARK_DELAY_S * 1000
    expected: Counter[Row] = Counter()
    for end_ms, values in scores.items():
        if end_ms <= closed_ms:
            expected[end_ms, "sentiment", 0, sum(values) / len(values)] += 1
    for end_ms, counts in tags.items():
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]
        if end_ms <= closed_ms:
            expected.update((end_ms, tag, rank, float(n)) for rank, (tag, n) in enumerate(ranked, start=1))
    return expected


def _end_ms(at_ms: int, every_s: int) -> int:
    """Return the first end of a window after a time, if one ends every `every_s` seconds."""
    return (at_ms // (every_s * 1000) + 1) * every_s * 1000


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((epoch_ms(row["window_end"]), row["name"], row["rank"], row["value"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
