"""Load generator: append rows, computed from their number, to a topic at a rate, along a trace, or as a backlog."""

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
from penstock.brokers.records import MAX_PENDING_RECORDS, append
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import PenstockError

_ROWS_PER_CALL = 5_000
_FLUSH_TIMEOUT_S = 600.0
_COUNT_TIMEOUT_S = 60.0
_PROGRESS_EVERY_S = 1.0


class LoadSchedule(Protocol):
    """The number of rows that must have been appended at a time."""

    @property
    def rows(self) -> int | None:
        """Total number of rows; None if the load is endless."""

    def due(self, elapsed_s: float) -> int:
        """Return the number of rows that are due after `elapsed_s` seconds."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """A number of rows, all due at once."""

    rows: int

    def due(self, elapsed_s: float) -> int:
        return self.rows


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """A constant rate, with a limited number of rows or endless.

    >>> ConstantRate(rows_per_s=100.0, rows=250).due(2.0), ConstantRate(rows_per_s=100.0, rows=250).due(9.0)
    (200, 250)
    """

    rows_per_s: float
    rows: int | None

    def due(self, elapsed_s: float) -> int:
        due = _whole(elapsed_s * self.rows_per_s)
        return due if self.rows is None else min(due, self.rows)


class RateTrace:
    """A sequence of rates, each valid for one interval.

    >>> trace = RateTrace((10.0, 0.0, 20.0), interval_s=2.0)
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


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that were appended, as counted by the broker."""

    topic: str
    rows: int
    seconds: float
    rows_per_s: float
    behind_s: float  # the longest time by which a row was late


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a running load."""

    rows: int  # confirmed by the broker
    due: int
    rows_per_s: float
    elapsed_s: float


def load(
    topic: Topic,
    row: Callable[[int], Any],
    schedule: LoadSchedule,
    *,
    limit_s: float = math.inf,
    on_progress: Callable[[LoadProgress], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> LoadResult:
    """Append rows 0, 1, 2, ... to a topic until the schedule or the time ends, or until the load is stopped.

    All rows that are due at the end are in the topic, exactly once, when the function returns. It compares the offsets
    of the broker with its own count, so no other process may write to the topic at the same time.

    Args:
        topic: The topic, which must exist.
        row: Function from a row number to text, bytes, or a value that is written as JSON.
        schedule: How many rows are due at which time.
        limit_s: Maximum duration in seconds.
        on_progress: Function that is called about once per second.
        is_stopped: Function that returns True to end the load early.

    Raises:
        PenstockError: A row cannot be computed or written, no broker answers, or the count differs.
    """
    topic.required("load", create="create it by giving its number of partitions, such as 4")
    before = _count(topic, f"No row was written to topic '{topic.name}'")
    load = _Load(topic, row, schedule, limit_s)
    load.run(on_progress, is_stopped)
    sent = load.finish()
    appended = _count(topic, f"All {sent:,} rows that were written to topic '{topic.name}' are confirmed") - before
    if appended != sent:
        raise PenstockError(
            f"Topic '{topic.name}' has grown by {appended:,} records, but {sent:,} were sent; check whether another "
            "process writes to it."
        )
    if load.row_error:
        raise PenstockError(f"{load.row_error}. The {sent:,} rows before it are in the topic.")
    return LoadResult(
        topic=topic.name,
        rows=sent,
        seconds=load.duration_s,
        rows_per_s=sent / load.duration_s,
        behind_s=load.behind_s,
    )


class _Load:
    """One run of the load generator: a producer and the rows that it has sent so far."""

    def __init__(self, topic: Topic, row: Callable[[int], Any], schedule: LoadSchedule, limit_s: float) -> None:
        from confluent_kafka import KafkaException

        self._topic = topic.name
        self._row = row
        self._schedule = schedule
        self._limit_s = limit_s
        self._producer = _producer(topic.cluster)
        with contextlib.suppress(KafkaException):  # connect before the clock starts, if possible
            self._producer.list_topics(topic.name, timeout=5.0)
        self._sent = 0
        self._errors: list[Any] = []  # of deliveries
        self._reported_s, self._reported_rows = 0.0, 0
        self._started_s = time.monotonic()
        self.row_error = ""
        self.behind_s = 0.0
        self.duration_s = 0.0

    def run(self, on_progress: Callable[[LoadProgress], None] | None, is_stopped: Callable[[], bool]) -> None:
        """Append rows when they are due, until the end or the first error."""
        total = self._schedule.rows
        while not is_stopped() and (total is None or self._sent < total):
            elapsed_s = time.monotonic() - self._started_s
            due = self._schedule.due(min(elapsed_s, self._limit_s))
            if due > self._sent:
                self._append(min(_ROWS_PER_CALL, due - self._sent))
            elif elapsed_s >= self._limit_s:
                break
            else:
                self._producer.poll(0.002)
            if self._errors or self.row_error:
                break
            confirmed = self._sent - len(self._producer)  # unconfirmed rows wait in the producer
            now_s = min(time.monotonic() - self._started_s, self._limit_s)
            self.behind_s = max(self.behind_s, _lateness_s(self._schedule, confirmed, now_s))
            if on_progress is not None and elapsed_s - self._reported_s >= _PROGRESS_EVERY_S:
                on_progress(self._progress(confirmed, due, elapsed_s))

    def finish(self) -> int:
        """Wait until the broker has confirmed all rows, and return their number."""
        unconfirmed = self._producer.flush(_FLUSH_TIMEOUT_S)
        self.duration_s = time.monotonic() - self._started_s
        if self._errors:
            raise PenstockError(f"Rows cannot be written to topic '{self._topic}': {self._errors[0].str()}")
        if unconfirmed:
            raise PenstockError(
                f"Rows cannot be written to topic '{self._topic}': No broker has confirmed {unconfirmed} of them "
                "within "
                f"{_FLUSH_TIMEOUT_S:g} s; check the brokers."
            )
        return self._sent

    def _append(self, count: int) -> None:
        records, self.row_error = _records(self._row, range(self._sent, self._sent + count))
        append(self._producer, self._topic, records, self._errors)
        self._sent += len(records)

    def _progress(self, confirmed: int, due: int, elapsed_s: float) -> LoadProgress:
        rows_per_s = (confirmed - self._reported_rows) / (elapsed_s - self._reported_s)
        self._reported_s, self._reported_rows = elapsed_s, confirmed
        return LoadProgress(rows=confirmed, due=due, rows_per_s=rows_per_s, elapsed_s=elapsed_s)


def _producer(cluster: KafkaCluster) -> Any:
    from confluent_kafka import Producer

    return cluster.client(
        Producer,
        **{
            "enable.idempotence": True,
            "linger.ms": 10,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 2 * MAX_PENDING_RECORDS,
            "delivery.timeout.ms": int(_FLUSH_TIMEOUT_S * 1000),
            "sticky.partitioning.linger.ms": 20,
            "delivery.report.only.error": True,
            "reconnect.backoff.max.ms": 1000,
        },
    )


def _count(topic: Topic, situation: str) -> int:
    """Return the number of records of a topic; `situation` begins the message if no broker answers."""
    from confluent_kafka import KafkaException

    try:
        return sum(topic.ends(_COUNT_TIMEOUT_S).values())
    except (KafkaException, TimeoutError):
        raise PenstockError(
            f"{situation}, but no broker has reported the offsets of the topic within {_COUNT_TIMEOUT_S:g} s; check "
            "the "
            "brokers."
        ) from None


def encoded(row: Any) -> bytes:
    """Return the value of a record: bytes and text unchanged, everything else as JSON.

    >>> encoded("to be"), encoded({"n": 1})
    (b'to be', b'{"n":1}')
    """
    if isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else msgspec.json.encode(row)


def _records(row: Callable[[int], Any], numbers: range) -> tuple[list[dict[str, Any]], str]:
    """Return the records of these rows, and the error of the first row that cannot be computed."""
    records: list[dict[str, Any]] = []
    try:
        for n in numbers:  # one at a time, because the rows before a failing one are written
            records.append({"value": encoded(row(n))})
    except Exception as error:
        return records, f"Row {numbers[len(records)]:,} cannot be computed: {type(error).__name__}: {error}"
    return records, ""


def _whole(rows: float) -> int:
    """Return the number of whole rows, although a float may be slightly below it.

    >>> int(100.0 * 4.35), _whole(100.0 * 4.35), _whole(2.9)
    (434, 435, 2)
    """
    return int(rows + 1e-6)


def _lateness_s(schedule: LoadSchedule, confirmed: int, elapsed_s: float) -> float:
    """Return how long ago the first row that is not confirmed was due.

    >>> late = _lateness_s(RateTrace((10.0, 0.0), interval_s=5.0), 30, 9.0)  # the 31st was due after 3.1 s
    >>> round(late, 2)
    5.9
    """
    if isinstance(schedule, Backlog) or schedule.due(elapsed_s) <= confirmed:
        return 0.0
    early, late = 0.0, elapsed_s
    while late - early > 1e-3:
        middle = (early + late) / 2
        early, late = (early, middle) if schedule.due(middle) > confirmed else (middle, late)
    return elapsed_s - late
