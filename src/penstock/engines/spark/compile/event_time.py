"""Event time and watermarks of the streams within one query.

A stream has at most one event-time column that Penstock tracks. It comes from one of four places:

1. The operator declares a watermark on its output.
2. The stream is read from a channel, which carries the watermark of its producer.
3. The stream inherits the event time of its input, as long as the column is still there.
4. The user's function calls `withWatermark` itself, which Spark records in the metadata of the column.

A channel carries the event time on to other queries. It needs to know how far event time has advanced. Before any
state, that is the latest event time that was observed. An operator with state holds rows back, so the latest time says
nothing about the rows after it; there the watermark of the batch plus `delay_ms` is used.

Spark accepts a watermark only before the state of a query. A watermark that is declared after a state applies to the
next query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

from penstock.dataflow import DataflowError, Kind, Operator
from penstock.engines.spark.channels import EventTime
from penstock.engines.spark.channels.logged_channel import event_observation
from penstock.engines.spark.storage.column_names import has_ambiguous_names, quoted

DELAY_METADATA = "spark.watermarkDelayMs"  # Spark's metadata key of event-time columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedEventTime:
    """The event time of a stream, and how to find out how far it has advanced."""

    watermark: EventTime
    observation: str | None = None  # holds the latest event time; None after a state, where the watermark is used
    delay_ms: int = 0


class EventTimes:
    """The event times of all streams of one query, filled by the compiler from upstream to downstream."""

    def __init__(self) -> None:
        self._times: dict[str, TrackedEventTime | None] = {}
        self._after_state: set[str] = set()

    def __getitem__(self, operator: str) -> TrackedEventTime | None:
        return self._times[operator]

    def add(self, operator: Operator, df: DataFrame, inputs: Sequence[TrackedEventTime | None]) -> DataFrame:
        """Record the event time of an operator's output, and return the output with its watermark.

        `inputs` are the event times of the operator's inputs. Raises DataflowError if the declared watermark is not on
        a timestamp column of the output.
        """
        if operator.kind.has_state or any(name in self._after_state for name in operator.inputs):
            self._after_state.add(operator.name)
        if operator.watermark is not None:
            return self._declare(operator, df)
        time = self._inherit(operator, df, inputs)
        self._times[operator.name] = time
        leads_to_state = operator.kind is not Kind.SINK and operator.name not in self._after_state
        return _with_metadata(df, time) if time is not None and leads_to_state else df

    def _declare(self, operator: Operator, df: DataFrame) -> DataFrame:
        """Apply the watermark that an operator declares."""
        declared = operator.watermark
        assert declared is not None
        if declared.column not in df.columns:
            raise DataflowError(
                f"the watermark of '{operator.name}' is on column '{declared.column}', which does not exist; its "
                f"columns are {', '.join(df.columns)}"
            )
        kind = df.schema[declared.column].dataType
        if not isinstance(kind, TimestampType):
            raise DataflowError(
                f"the watermark of '{operator.name}' is on column '{declared.column}' of type {kind.simpleString()}, "
                "but it needs a timestamp; for a window, add the column F.window_time('window') and use it"
            )
        delay_ms = 0
        if operator.name not in self._after_state:
            df = df.withWatermark(quoted(declared.column), declared.delay)
            delay_ms = df.schema[declared.column].metadata[DELAY_METADATA]
        observation = event_observation(operator.name)
        self._times[operator.name] = TrackedEventTime(
            watermark=EventTime(column=declared.column, delay=declared.delay),
            observation=observation,
            delay_ms=delay_ms,
        )
        return df.observe(observation, F.max(quoted(declared.column)).alias("latest"))

    def _inherit(
        self, operator: Operator, df: DataFrame, inputs: Sequence[TrackedEventTime | None]
    ) -> TrackedEventTime | None:
        """Return the event time of an output whose operator declares none."""
        if operator.kind.has_state:
            # The event times of the two sides of a join may differ, so a result can be older than the watermark.
            is_join = operator.takes_each_input and len(inputs) > 1
            return None if is_join else event_time_in_schema(df)
        inherited = next((time for time in inputs if time is not None), None)
        if inherited is None:
            # The user's function may have declared a watermark. Spark ignores one that follows a state.
            return None if operator.name in self._after_state else event_time_in_schema(df)
        if inherited.watermark.column in df.columns:
            return inherited
        renamed = event_time_in_schema(df)
        return replace(renamed, observation=inherited.observation) if renamed else None


def check_single_event_time(operator: Operator, inputs: Sequence[TrackedEventTime | None]) -> None:
    """Raise DataflowError if a stateless operator unites several streams with a watermark."""
    if operator.kind is Kind.STATELESS and sum(time is not None for time in inputs) > 1:
        raise DataflowError(
            f"operator '{operator.name}' unites several streams with a watermark ({', '.join(operator.inputs)}); "
            f"declare one watermark on '{operator.name}' instead"
        )


def event_time_in_schema(df: DataFrame) -> TrackedEventTime | None:
    """Return the event time that Spark records in the schema, if its column is a timestamp."""
    for column in df.schema:
        if DELAY_METADATA in column.metadata and isinstance(column.dataType, TimestampType):
            delay_ms = column.metadata[DELAY_METADATA]
            watermark = EventTime(column=column.name, delay=f"{delay_ms} milliseconds")
            return TrackedEventTime(watermark=watermark, delay_ms=delay_ms)
    return None


def _with_metadata(df: DataFrame, time: TrackedEventTime) -> DataFrame:
    """Restore the metadata of the event-time column, which the output of a Python function lacks."""
    name = time.watermark.column
    column = df.schema[name]
    is_marked = DELAY_METADATA in column.metadata
    if is_marked or not isinstance(column.dataType, TimestampType) or has_ambiguous_names(df.columns):
        return df
    return df.withMetadata(name, {**column.metadata, DELAY_METADATA: time.delay_ms})
