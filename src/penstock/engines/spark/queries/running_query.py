"""One running query: started, drained, stopped, and asked how it is."""

from __future__ import annotations

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.compile.compiler import Compiled
from penstock.engines.spark.error_text import cause
from penstock.engines.spark.jvm import batch_watermark_ms, observed_time_s
from penstock.engines.spark.queries.watermarks import Watermarks
from penstock.engines.spark.reading.gate import Gate, hold_file
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.committed import Query
from penstock.engines.spark.sinks.writers import Write

_POLL_S = 0.01
_START_S = 60.0
KEPT_BATCHES = 1024  # as many as Spark keeps the progress of


class RunningQuery:
    def __init__(self, record: Query, compiled: Compiled) -> None:
        self.record = record
        self.compiled = compiled
        self._query: Any = None
        self.stopping = False
        self._written: deque[tuple[int, int | None]] = deque(maxlen=KEPT_BATCHES)

    @property
    def written(self) -> dict[int, int | None]:
        """Rows written by the last batches, by number."""
        return dict(self._written.copy())

    @property
    def query(self) -> Any:
        return self._query

    def start(self, write: Write | None, name: str, run: Path, once: bool = False) -> None:
        gate = Gate(run, self.record.checkpoint, self.record.opens_at)
        checkpoint = run / "checkpoints" / self.record.checkpoint
        watermarks = Watermarks(checkpoint, self.compiled.around_state)

        def batch(df: DataFrame, number: int) -> None:
            # Batches without rows, and those of timers, come however closed the gate is. What they write of a plan that
            # never comes into force would be there when its queries' names are used again.
            while not gate.is_plan_committed():
                if self.stopping:
                    raise PenstockError("stopped before its plan came into force")
                time.sleep(_POLL_S)
            self._written.append((number, write(df, f"{self.record.checkpoint}.{number:08d}")))
            while self._query is None:  # it may be here before Spark has handed it out
                time.sleep(_POLL_S)
            watermarks.keep(self._query)

        stream = self.compiled.df.writeStream.queryName(name).outputMode(self.compiled.mode)
        stream = stream.foreachBatch(batch) if write is not None else stream.format("noop")
        stream = stream.option("checkpointLocation", str(checkpoint))
        self._query = (stream.trigger(once=True) if once else stream).start()

    def active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def await_start(self) -> None:
        """Until Spark has taken up its checkpoint and sources; its first batch may itself be waiting for the plan."""
        deadline = time.monotonic() + _START_S
        while self.active() and self._initializing() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        reason = self.failure()
        if reason is not None:
            raise PenstockError(f"pipeline '{self.record.pipeline}' does not start: {reason}")

    def failure(self) -> str | None:
        """Why it ended, if it ended by itself."""
        if self._query is None or self.stopping or self._query.isActive:
            return None
        error = self._query.exception()
        return cause(error) if error is not None else "it ended without a word"

    def hold(self, run: Path) -> None:
        """It takes no new rows from now on."""
        path = hold_file(run, self.record.checkpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def release(self, run: Path) -> None:
        hold_file(run, self.record.checkpoint).unlink(missing_ok=True)

    def drain(self, run: Path, patience_s: float = math.inf) -> None:
        """Takes no new rows, and waits until what it has begun is committed, or no longer than so long.

        That saves the engine from running an interrupted batch again; a query that is still starting is not waited for.
        """
        deadline = time.monotonic() + patience_s
        self.hold(run)
        checkpoint = Checkpoint(run / "checkpoints" / self.record.checkpoint)
        before = checkpoint.planned() or 0
        while not self.settled(checkpoint) and not self._initializing():
            reason = self.failure()
            if reason is not None:
                raise PenstockError(f"pipeline '{self.record.pipeline}' failed while it was drained: {reason}")
            # Timers in processing time make batches without rows for ever: those may be interrupted.
            if (checkpoint.committed() or 0) > before + 1 or time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def settled(self, checkpoint: Checkpoint) -> bool:
        """Waiting for data, with nothing begun that is not committed."""
        if not self.active():
            return False
        status = self._query.status
        waiting = not status["isTriggerActive"] and not status["isDataAvailable"]
        return waiting and "Waiting" in status["message"] and not checkpoint.interrupted()

    def _initializing(self) -> bool:
        return "Initializing" in self._query.status["message"]

    def stop(self) -> None:
        self.stopping = True
        if self._query is not None:
            self._query.stop()

    def await_end(self) -> None:
        """Of a query that was started for one batch."""
        try:
            self._query.awaitTermination()
        except StreamingQueryException as error:
            raise PenstockError(
                f"pipeline '{self.record.pipeline}' failed while it was drained: {cause(error)}"
            ) from error

    def latest_event_s(self) -> float | None:
        """The event time that the batch which has just been written has come to: its channel's next mark."""
        event_time = self.compiled.event_time
        if event_time is None:
            return None
        if event_time.observation is not None:
            return observed_time_s(self._query, event_time.observation)
        watermark_ms = batch_watermark_ms(self._query)
        return (watermark_ms + event_time.delay_ms) / 1000 if watermark_ms > 0 else None
