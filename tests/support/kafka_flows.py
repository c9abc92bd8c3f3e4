"""Word count and network monitoring from one topic to another, and functions to fill and read topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import penstock
from penstock.apps import netmon, wordcount
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.load_generator import Backlog, load
from penstock.brokers.records import Span, records
from penstock.brokers.topics import Topic
from penstock.dataflow import Dataflow

ROWS = 2_000


def counting(bootstrap_servers: str, lines: str, out: str, **how: Any) -> Dataflow:
    flow = penstock.Dataflow("wordcount")
    words = flow.source("lines", penstock.kafka(lines, bootstrap_servers=bootstrap_servers, **how)).stateless(
        "split", wordcount.split
    )
    counted = words.keyed("count", wordcount.count, keys=["word"])
    counted.sink("out", penstock.kafka(out, bootstrap_servers=bootstrap_servers, format="json", key="word"))
    return flow


def monitoring(bootstrap_servers: str, lines: str, out: str) -> Dataflow:
    flow = penstock.Dataflow("netmon")
    failed = flow.source("lines", penstock.kafka(lines, bootstrap_servers=bootstrap_servers)).stateless(
        "failures", netmon.failures
    )
    parsed = failed.stateless("parse", netmon.parse).watermark("ts", f"{netmon.WATERMARK_DELAY_S} seconds")
    counted = parsed.keyed("attempts", netmon.attempts, keys=["ip"])
    counted.stateless("diff", lambda df: netmon.diff(netmon.cutoff(df, 1), 1)).sink(
        "out", penstock.kafka(out, bootstrap_servers=bootstrap_servers, format="json", key="ip")
    )
    return flow


def wrong_counts(rows: list[dict[str, Any]]) -> list[str]:
    return wordcount.check(rows, ROWS)


def wrong_attacks(rows: list[dict[str, Any]]) -> list[str]:
    times = ("window_start", "window_end")
    read = [row | {name: datetime.fromisoformat(row[name]) for name in times} for row in rows]
    return netmon.check(read, ROWS, threshold=1)


# The dataflow, the lines of its topic, the number of partitions, and the check of the output. Network monitoring needs
# one partition, because lines out of order would be late.
APPS: dict[str, tuple[Callable[..., Dataflow], Callable[[int], str], int, Callable[..., list[str]]]] = {
    "wordcount": (counting, wordcount.generator, 3, wrong_counts),
    "netmon": (monitoring, lambda n: netmon.generator(n, ROWS), 1, wrong_attacks),
}


def topics(bootstrap_servers: str, name: str, partitions: int) -> tuple[str, str]:
    """Create a topic for lines and one for results, and return their names."""
    for topic, count in ((f"{name}-lines", partitions), (f"{name}-out", 2)):
        Topic(KafkaCluster(bootstrap_servers=bootstrap_servers), topic).create(count)
    return f"{name}-lines", f"{name}-out"


def fill(bootstrap_servers: str, topic: str, line: Callable[[int], Any], numbers: Iterable[int]) -> None:
    numbers = list(numbers)
    load(
        Topic(KafkaCluster(bootstrap_servers=bootstrap_servers), topic),
        lambda n: line(numbers[n]),
        Backlog(len(numbers)),
    )


def rows_of(bootstrap_servers: str, topic: str) -> list[dict[str, Any]]:
    """Return the committed rows of a topic."""
    cluster = KafkaCluster(bootstrap_servers=bootstrap_servers)
    starts, ends = Topic(cluster, topic).starts(), Topic(cluster, topic).ends()
    spans = [Span(partition, starts[partition], end) for partition, end in ends.items()]
    return [json.loads(record.value()) for some in records(cluster, topic, spans) for record in some]
