"""Load for a topic: rows made from their number, appended at a rate, along a trace, or as fast as they go."""

from __future__ import annotations

import contextlib
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import msgspec

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import ROOM, append
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import PenstockError

_AT_ONCE = 5_000
_FLUSH_S = 600.0
_COUNT_S = 60.0


class Schedule(Protocol):
    """How many rows are due."""

    @property
    def rows(self) -> int | None:
        """In all; None: without end."""

    def due(self, elapsed_s: float) -> int: ...


@dataclass(frozen=True, slots=True)
class Backlog:
    """All of them at once."""

    rows: int

    def due(self, elapsed_s: float) -> int:
        return self.rows


@dataclass(frozen=True, slots=True)
class Steady:
    """
    >>> Steady(rows_per_s=100.0, rows=250).due(2.0), Steady(rows_per_s=100.0, rows=250).due(9.0)
    (200, 250)
    """

    rows_per_s: float
    rows: int | None

    def due(self, elapsed_s: float) -> int:
        due = _whole(elapsed_s * self.rows_per_s)
        return due if self.rows is None else min(due, self.rows)


class Stepped:
    """Rates that hold for an interval each, one after the other.

    >>> trace = Stepped((10.0, 0.0, 20.0), interval_s=2.0)
    >>> [trace.due(at) for at in (1.0, 3.0, 5.0, 99.0)], trace.rows
    ([10, 20, 40, 60], 60)
    """

    def __init__(self, rates: Iterable[float], interval_s: float) -> None:
        self._rates = tuple(rates)
        self._interval_s = interval_s
        self._sums = list(accumulate((rate * interval_s for rate in self._rates), initial=0.0))
        self._starts = [interval_s * number for number in range(len(self._rates))]

    @property
    def rows(self) -> int:
        return _whole(self._sums[-1])

    def due(self, elapsed_s: float) -> int:
        step = bisect_right(self._starts, elapsed_s) - 1
        within = min(elapsed_s - self._starts[step], self._interval_s)
        return _whole(self._sums[step] + self._rates[step] * within)


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What was appended, by the broker's own count."""

    topic: str
    rows: int
    seconds: float
    rows_per_s: float
    behind_s: float  # at worst, how late a row was


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How it goes, now."""

    rows: int
    due: int
    rows_per_s: float
    elapsed_s: float


def load(
    cluster: KafkaCluster,
    topic: str,
    row: Callable[[int], Any],
    schedule: Schedule,
    *,
    seconds: float = math.inf,
    on_pace: Callable[[Pace], None] | None = None,
    every_s: float = 1.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Loaded:
    """Appends rows 0, 1, 2, ... until the schedule or the time is at its end, or it is told that it is stopped.

    At the end of the time, all that is due by then is in the topic: so many rows a second, so many seconds.

    Every row that was begun is in the topic when it returns, once; the broker's offsets are compared with the count, so
    nobody else may write to the topic meanwhile.
    """
    from confluent_kafka import KafkaException, Producer

    target = Topic(cluster, topic)
    target.required("load", create="create it with --partitions 4")
    before = _counted(target, f"nothing was written to topic '{topic}'")
    producer = cluster.client(
        Producer,
        **{
            "enable.idempotence": True,
            "linger.ms": 10,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 2 * ROOM,
            "delivery.timeout.ms": int(_FLUSH_S * 1000),
            "sticky.partitioning.linger.ms": 20,
            "delivery.report.only.error": True,
            "reconnect.backoff.max.ms": 1000,
        },
    )
    with contextlib.suppress(KafkaException):  # it finds its way before the clock runs, if it can
        producer.list_topics(topic, timeout=5.0)
    refused: list[Any] = []
    wrong = ""
    began = time.monotonic()
    sent, worst_s, told_s, told = 0, 0.0, 0.0, 0
    while not stopped() and (schedule.rows is None or sent < schedule.rows):
        elapsed = time.monotonic() - began
        due = schedule.due(min(elapsed, seconds))
        if due > sent:
            some = min(_AT_ONCE, due - sent)
            records, wrong = _records(row, range(sent, sent + some))
            append(producer, topic, records, refused)
            sent += len(records)
        elif elapsed >= seconds:
            break
        else:
            producer.poll(0.002)
        if refused or wrong:
            break
        there = sent - len(producer)  # what the broker has not confirmed waits in the client
        worst_s = max(worst_s, _late(schedule, there, min(time.monotonic() - began, seconds)))
        if on_pace is not None and elapsed - told_s >= every_s:
            on_pace(Pace(rows=there, due=due, rows_per_s=(there - told) / (elapsed - told_s), elapsed_s=elapsed))
            told_s, told = elapsed, there
    left = producer.flush(_FLUSH_S)
    took = time.monotonic() - began
    if refused or left:
        why = refused[0].str() if refused else f"no broker has confirmed {left} of them for {_FLUSH_S:g} s"
        raise PenstockError(f"rows cannot be written to topic '{topic}': {why}")
    appended = _counted(target, f"topic '{topic}' has {sent:,} rows more, each confirmed") - before
    if appended != sent:
        raise PenstockError(
            f"topic '{topic}' has grown by {appended:,} records and not by the {sent:,} that were sent; does somebody "
            "else write to it?"
        )
    if wrong:
        raise PenstockError(f"{wrong}; the topic has {sent:,} rows more, which are those before it")
    return Loaded(topic=topic, rows=sent, seconds=took, rows_per_s=sent / took, behind_s=worst_s)


def _counted(topic: Topic, so_far: str) -> int:
    """Its rows, or one clear error."""
    from confluent_kafka import KafkaException

    try:
        return sum(topic.ends(_COUNT_S).values())
    except (KafkaException, TimeoutError):
        raise PenstockError(f"{so_far}, but no broker has counted its rows for {_COUNT_S:g} s") from None


def encoded(row: Any) -> bytes:
    """A record's value: text as it is, everything else as JSON.

    >>> encoded("to be"), encoded({"n": 1})
    (b'to be', b'{"n":1}')
    """
    if isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else msgspec.json.encode(row)


def _records(row: Callable[[int], Any], numbers: range) -> tuple[list[dict[str, Any]], str]:
    """Rows of these numbers up to one that cannot be made, and why it cannot."""
    made: list[dict[str, Any]] = []
    try:
        for n in numbers:  # one by one: those before a wrong one count
            made.append({"value": encoded(row(n))})
    except Exception as error:
        return made, f"row {numbers[len(made)]:,} cannot be made: {type(error).__name__}: {error}"
    return made, ""


def _whole(rows: float) -> int:
    """Whole rows, though floats may be a hair below them.

    >>> int(100.0 * 4.35), _whole(100.0 * 4.35), _whole(2.9)
    (434, 435, 2)
    """
    return int(rows + 1e-6)


def _late(schedule: Schedule, there: int, elapsed_s: float) -> float:
    """How long ago the first row was due that is not there.

    >>> late = _late(Stepped((10.0, 0.0), interval_s=5.0), 30, 9.0)  # the 31st was due after 3.1 s
    >>> round(late, 2)
    5.9
    """
    if isinstance(schedule, Backlog) or schedule.due(elapsed_s) <= there:
        return 0.0
    early, late = 0.0, elapsed_s
    while late - early > 1e-3:
        middle = (early + late) / 2
        early, late = (early, middle) if schedule.due(middle) > there else (middle, late)
    return elapsed_s - late
