"""The progress reports that Spark keeps of a streaming query, decoded into typed values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import takewhile
from typing import Any

import msgspec
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engines.spark.compile.compiler import ROWS
from penstock.engines.spark.compile.ports import DROPPED
from penstock.engines.spark.jvm import progress_newest_first


class SourceProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The range of one source that a batch read. The offsets have the format of the source."""

    description: str = ""
    start_offset: Any = None
    end_offset: Any = None
    latest_offset: Any = None
    num_input_rows: int = 0


class StateProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one stateful operator at the end of a batch."""

    num_rows_total: int = 0
    num_rows_dropped_by_watermark: int = 0
    memory_used_bytes: int = 0
    all_updates_time_ms: int = 0
    commit_time_ms: int = 0


class SinkProgress(msgspec.Struct, frozen=True, rename="camel"):
    num_output_rows: int = -1  # -1: the sink does not count rows


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """One progress report of a query: a batch, or a trigger that found nothing to do."""

    batch_id: int
    run_id: str = ""  # changes with each start of the query
    timestamp: str = "1970-01-01T00:00:00Z"
    duration_ms: dict[str, float] = {}
    num_input_rows: int = 0
    sources: tuple[SourceProgress, ...] = ()
    state_operators: tuple[StateProgress, ...] = ()
    sink: SinkProgress = SinkProgress()
    observed_metrics: dict[str, Any] = {}

    @property
    def ran_batch(self) -> bool:
        """Return False for a trigger that found no data and ran no batch."""
        return "addBatch" in self.duration_ms

    @property
    def began_s(self) -> float:
        return datetime.fromisoformat(self.timestamp).timestamp()

    @property
    def batch_s(self) -> float:
        return self.duration_ms.get("triggerExecution", 0.0) / 1000

    @property
    def ended_s(self) -> float:
        return self.began_s + self.batch_s

    @property
    def phases_s(self) -> dict[str, float]:
        return {phase: milliseconds / 1000 for phase, milliseconds in self.duration_ms.items()}

    @property
    def rows_out(self) -> dict[str, int]:
        """Return the rows that left each operator, as far as Penstock's observations counted them."""
        return {
            name.removeprefix(ROWS): values["rows"]
            for name, values in self.observed_metrics.items()
            if name.startswith(ROWS)
        }

    @property
    def dropped_rows(self) -> dict[str, int]:
        """Return the rows that operator classes dropped because of their limits, by operator."""
        return {
            name.removeprefix(DROPPED): values["rows"] or 0
            for name, values in self.observed_metrics.items()
            if name.startswith(DROPPED)
        }

    @property
    def rows_written(self) -> int | None:
        """Return the rows that Spark's own sink wrote, or None if the sink does not count them."""
        return self.sink.num_output_rows if self.sink.num_output_rows >= 0 else None


_DECODER = msgspec.json.Decoder(Progress)


def decode_progress(report: str) -> Progress:
    """Decode the JSON text of one progress report.

    >>> decode_progress('{"batchId": 7, "durationMs": {"addBatch": 40, "triggerExecution": 50}}').batch_s
    0.05
    """
    try:
        return _DECODER.decode(report)
    except msgspec.DecodeError:  # Spark writes NaN and Infinity in a user's observed metrics, which are not valid JSON
        return msgspec.convert(json.loads(report), Progress)


def batches_newest_first(query: StreamingQuery) -> Iterator[Progress]:
    """Yield the reports of batches, the latest first. Each report costs two calls to the JVM."""
    reports = map(decode_progress, progress_newest_first(query))
    return (progress for progress in reports if progress.ran_batch)


def reports_after(query: StreamingQuery, at_s: float) -> list[Progress]:
    """Return all reports of triggers that began after this time and that Spark still keeps, the oldest first."""
    reports = map(decode_progress, progress_newest_first(query))
    return list(takewhile(lambda progress: progress.began_s > at_s, reports))[::-1]


def batches_after(query: StreamingQuery, batch_id: int) -> list[Progress]:
    """Return the reports of all batches after this one that Spark still keeps, the oldest first."""
    return list(takewhile(lambda progress: progress.batch_id > batch_id, batches_newest_first(query)))[::-1]
