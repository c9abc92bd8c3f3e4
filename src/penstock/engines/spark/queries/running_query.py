"""One start of a streaming query: it starts, drains, stops and reports its status."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.compile.compiler import Compiled
from penstock.engines.spark.error_text import root_cause
from penstock.engines.spark.executors import Negotiator
from penstock.engines.spark.jvm import (
    WatermarkTracker,
    observed_time_ms,
    output_watermark_ms,
    stack_trace,
    state_watermarks_ms,
)
from penstock.engines.spark.queries.progress import Progress, batches_newest_first
from penstock.engines.spark.queries.watermarks import InputWatermarks
from penstock.engines.spark.reading.gate import Gate, hold_file
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.committed import Query
from penstock.engines.spark.sinks.writers import Write
from penstock.engines.spark.storage.local_locations import local_location

_POLL_S = 0.01
_START_POLL_S = 0.05  # each call into the JVM takes time from the start
_OTHER_STATE = re.compile(
    r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
    r"|STATE_STORE_(KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
)
_START_TIMEOUT_S = 60.0
_KEPT_BATCHES = 1024  # the same number as spark.sql.streaming.numRecentProgressUpdates


class RunningQuery:
    """A query of the committed plan, or of a plan that is about to be committed, as Spark runs it."""

    def __init__(self, record: Query, compiled: Compiled) -> None:
        self.record = record
        self.compiled = compiled
        self.is_stopping = False
        self._committed_before: int | None = None  # the last batch that an earlier start committed
        self._query: StreamingQuery | None = None
        self._watermarks: InputWatermarks | None = None
        self._rows_written: deque[tuple[int, int | None]] = deque(maxlen=_KEPT_BATCHES)

    @property
    def query(self) -> StreamingQuery:
        """Spark's handle of the query."""
        if self._query is None:
            raise PenstockError(f"Pipeline '{self.record.pipeline}' has not been started.")
        return self._query

    @property
    def run_id(self) -> str:
        """Spark's id of this start of the query."""
        return str(self.query.runId)

    @property
    def rows_written(self) -> dict[int, int | None]:
        """Rows that the latest batches wrote, by batch id; None if the writer does not count them."""
        return dict(self._rows_written.copy())

    # ---- starting and stopping

    def start(self, write: Write | None, name: str, run: Path, executors: Negotiator, once: bool = False) -> None:
        """Start the query. `write` stores a batch under its batch id; None discards all rows.

        A batch is not committed if one of the executors cannot access the run directory, because the state that its
        tasks wrote would be missing there. The batch is repeated after that executor was released.

        If `once` is set, the query runs a single batch, which is the interrupted one if there is any.
        """
        gate = Gate(run, self.record.checkpoint, self.record.opens_at)
        checkpoint = run / "checkpoints" / self.record.checkpoint
        self._watermarks = watermarks = InputWatermarks(checkpoint, self.compiled.around_state)
        self._committed_before = Checkpoint(checkpoint).committed()

        def write_batch(df: DataFrame, batch_id: int) -> None:
            assert write is not None
            # The gate of the sources does not stop batches without rows, such as those of timers. Their output must not
            # be written before the plan is committed: if the change fails, the next attempt reuses the same names.
            while not gate.is_plan_committed():
                if self.is_stopping:
                    raise PenstockError("The query was stopped before its plan was committed.")
                time.sleep(_POLL_S)
            rejections = executors.rejections
            rows = write(df, f"{self.record.checkpoint}.{batch_id:08d}")
            reason = executors.admit_new()
            if reason is not None or executors.rejections > rejections:
                raise PenstockError(reason or "An executor was released that could not access the run directory.")
            self._rows_written.append((batch_id, rows))
            while self._query is None:  # Spark may run the first batch before `start` has returned the handle
                time.sleep(_POLL_S)
            watermarks.save(self._query)

        stream = self.compiled.df.writeStream.queryName(name).outputMode(self.compiled.mode)
        stream = stream.foreachBatch(write_batch) if write is not None else stream.format("noop")
        stream = stream.option("checkpointLocation", local_location(checkpoint))
        self._query = (stream.trigger(once=True) if once else stream).start()

    def await_start(self, check: Callable[[], None]) -> None:
        """Wait until Spark has loaded the checkpoint and the sources; raise PenstockError if the query fails.

        The first batch is not awaited, because it may itself wait until the plan is committed. `check` is called many
        times and may raise an error.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self.is_active() and self._is_initializing() and time.monotonic() < deadline:
            check()
            time.sleep(_START_POLL_S)
        reason = self.failure()
        if reason is not None:
            raise PenstockError(f"Pipeline '{self.record.pipeline}' does not start: {reason}")

    def hold(self, run: Path) -> None:
        """Stop taking new rows."""
        path = hold_file(run, self.record.checkpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def release(self, run: Path) -> None:
        """Take new rows again."""
        hold_file(run, self.record.checkpoint).unlink(missing_ok=True)

    def drain(self, run: Path, patience_s: float = math.inf) -> None:
        """Stop taking new rows and wait up to `patience_s` until the current batch is committed.

        A stop then interrupts no batch that would have to run again. A query that is still starting is not awaited.
        """
        deadline = time.monotonic() + patience_s
        self.hold(run)
        checkpoint = Checkpoint(run / "checkpoints" / self.record.checkpoint)
        planned_before = checkpoint.planned() or 0
        while not self.is_waiting_for_data(checkpoint) and not self._is_initializing():
            reason = self.failure()
            if reason is not None:
                raise PenstockError(f"Pipeline '{self.record.pipeline}' failed while it was drained: {reason}")
            # Timers in processing time create batches without rows indefinitely. Such batches may be interrupted.
            if (checkpoint.committed() or 0) > planned_before + 1 or time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop the query at once, even within a batch."""
        self.is_stopping = True
        if self._query is not None:
            self._query.stop()

    def await_end(self) -> None:
        """Wait for the end of a query that was started with `once`."""
        try:
            self.query.awaitTermination()
        except StreamingQueryException as error:
            raise PenstockError(
                f"Pipeline '{self.record.pipeline}' failed while it was drained: {root_cause(error)}"
            ) from error

    # ---- status

    def is_active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def failure(self) -> str | None:
        """Return why the query failed; None if it is running or was stopped on purpose."""
        if self._query is None or self.is_stopping or self._query.isActive:
            return None
        error = self._query.exception()
        if error is None:
            return "The query stopped without an exception."
        return self._changed_state(str(error)) or root_cause(error)

    def has_other_state(self) -> bool:
        """Return whether the query failed because its checkpoint holds the state of another function."""
        error = self._query.exception() if self._query is not None and not self._query.isActive else None
        return error is not None and self._changed_state(str(error)) is not None

    def _changed_state(self, error: str) -> str | None:
        if not _OTHER_STATE.search(error):
            return None
        names = ", ".join(f"'{name}'" for name in self.compiled.stateful)
        return (
            f"the state of {names} in the run directory has other columns than its function keeps now, because the "
            "function groups or aggregates in another way than before; restore the function, or begin a new run in "
            "another directory"
        )

    def stack_trace(self) -> str:
        """Return the complete text of the exception that ended the query."""
        error = self.query.exception()
        return "The query stopped without an exception." if error is None else stack_trace(error)

    def has_committed(self, checkpoint: Checkpoint) -> bool:
        """Return whether this start of the query has committed a batch, so that its workers and code are ready."""
        return checkpoint.committed() != self._committed_before

    def is_waiting_for_data(self, checkpoint: Checkpoint) -> bool:
        """Return whether the query waits for rows and has committed every batch that it began."""
        if not self.is_active():
            return False
        status = self.query.status
        has_no_work = not status["isTriggerActive"] and not status["isDataAvailable"]
        return has_no_work and "Waiting" in str(status["message"]) and not checkpoint.interrupted()

    def runs_empty_batches(self) -> bool:
        """Return whether the latest two batches neither read nor wrote rows.

        Timers in processing time, and state that expires, create such batches indefinitely. A single one proves
        nothing: the next batch after a restart may close the windows that are due.
        """
        rows_written = self.rows_written if self.compiled.counted is not None else {}
        batches = batches_newest_first(self.query)
        latest = [progress for progress, _ in zip(batches, range(2), strict=False)]
        return len(latest) == 2 and all(_is_empty(progress, rows_written) for progress in latest)

    def output_watermark_ms(self) -> int | None:
        """Return the watermark of the output after the current batch; the channel passes it on to its readers."""
        event_time = self.compiled.event_time
        if event_time is None:
            return None
        spark = self.compiled.df.sparkSession
        if event_time.is_lowest and not self.compiled.stateful and self._watermarks is not None:
            self._watermarks.save(self.query)  # restores the watermarks of the last start before the first one is read
            return WatermarkTracker(spark, self.query).lowest_ms()
        if event_time.observation is None:
            return output_watermark_ms(spark, self.query)
        latest_ms = observed_time_ms(self.query, event_time.observation)
        return None if latest_ms is None else max(0, latest_ms - event_time.delay_ms)

    def state_watermarks_ms(self) -> dict[int, int]:
        """Return the watermark of each of Spark's states in the last batch; empty if none has run since the start."""
        return state_watermarks_ms(self.compiled.df.sparkSession, self.query)

    def _is_initializing(self) -> bool:
        return "Initializing" in str(self.query.status["message"])


def _is_empty(progress: Progress, rows_written: dict[int, int | None]) -> bool:
    if any(source.start_offset != source.end_offset for source in progress.sources):
        return False
    rows = rows_written.get(progress.batch_id, progress.rows_written)
    if rows is not None:
        return rows == 0
    observed = progress.rows_out.values()
    return bool(observed) and not any(observed)
