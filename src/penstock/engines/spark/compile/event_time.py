"""Event time and watermarks of the streams within one query.

Spark marks the columns that hold event time in their metadata. A mark comes from one of four places:

1. The operator declares a watermark on its output, or its function calls `withWatermark` itself.
2. The stream is read from a channel, which carries the marks and the watermark of its producer.
3. The stream inherits the marks of its input, as long as the columns are still there. Spark itself loses them behind a
   Python function; they are restored here.
4. An operator with state keeps the marks of its event-time columns, on both sides of a join. The window of a windowed
   aggregate is such a column.

A channel carries the watermark of its producer's output on to other queries. Before any state, that is the latest event
time that was observed minus the delay. After an operator with state it is the output watermark that Spark itself
computes for this operator: the watermark of the batch for an aggregate, and the oldest row that may still match for a
join. After a union of streams with watermarks it is the lowest of them. All marked columns share one watermark, as in
Spark.

Spark accepts a watermark only before the state of a query. A watermark that is declared after a state applies to the
next query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, NumericType, StructField, StructType, TimestampType

from penstock.dataflow import DataflowError, Kind, Operator
from penstock.dataflow.operators import Watermark
from penstock.dataflow.sources import SparkSource
from penstock.engines.spark.channels.logged_channel import event_observation
from penstock.engines.spark.compile.refusals import stateful_nodes
from penstock.engines.spark.jvm import analyzed_plan
from penstock.engines.spark.storage.column_names import quoted
from penstock.engines.spark.storage.schemas import EVENT_TIME, event_time_columns, with_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedEventTime:
    """The event-time columns of a stream, and how to find out how far its watermark has advanced."""

    columns: tuple[StructField, ...]
    observation: str | None = None  # holds the latest event time; None after a state, where Spark knows the watermark
    delay_ms: int = 0  # delay of the watermark relative to the observed time
    is_lowest: bool = False  # the lowest watermark of several streams applies

    @property
    def names(self) -> str:
        return ", ".join(column.name for column in self.columns)


class EventTimes:
    """The event times of all streams of one query, filled by the compiler from upstream to downstream."""

    def __init__(self, *, is_carried_on: bool = True) -> None:
        """`is_carried_on`: a channel carries the event time of the output on, so that its advance has to be known."""
        self._is_carried_on = is_carried_on
        self._times: dict[str, TrackedEventTime | None] = {}
        self._after_state: set[str] = set()

    def __getitem__(self, operator: str) -> TrackedEventTime | None:
        return self._times[operator]

    def add(self, operator: Operator, df: DataFrame, inputs: Sequence[TrackedEventTime | None]) -> DataFrame:
        """Record the event time of an operator's output, and return the output with its marks.

        `inputs` are the event times of the operator's inputs. Raises DataflowError if the declared watermark is not on
        a timestamp column of the output.
        """
        if operator.kind is Kind.SINK:
            self._times[operator.name] = None
            return df
        if self._has_state(operator, df):
            self._after_state.add(operator.name)
        if operator.watermark is not None:
            return self._declare(operator, df)
        inherited = None if operator.kind.has_state else _lowest(inputs)
        if inherited is not None:
            df = _with_marks(df, inherited.columns)
        columns = event_time_columns(df.schema)
        if not columns:
            self._times[operator.name] = None
        elif inherited is not None:
            self._times[operator.name] = replace(inherited, columns=columns)
        elif operator.name in self._after_state or not isinstance(columns[0].dataType, TimestampType):
            self._times[operator.name] = TrackedEventTime(columns=columns)
        else:  # the user's function has declared a watermark
            return self._observe(operator.name, df, columns[0])
        return df

    def _has_state(self, operator: Operator, df: DataFrame) -> bool:
        """Return whether a state comes before the output; a DataFrame of the user as source may contain one, too."""
        if isinstance(operator.source, SparkSource):
            return bool(stateful_nodes(analyzed_plan(df), []))
        return operator.kind.has_state or any(name in self._after_state for name in operator.inputs)

    def _observe(self, name: str, df: DataFrame, column: StructField) -> DataFrame:
        """Record an event time whose advance is observed in a column."""
        if not self._is_carried_on:
            self._times[name] = TrackedEventTime(columns=event_time_columns(df.schema))
            return df
        observation = event_observation(name)
        self._times[name] = TrackedEventTime(
            columns=event_time_columns(df.schema), observation=observation, delay_ms=column.metadata[EVENT_TIME]
        )
        return df.observe(observation, F.max(quoted(column.name)).alias("latest"))

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
                f"but it needs a timestamp; {_timestamp_advice(kind)}"
            )
        if operator.name in self._after_state:
            df = _with_only_mark(df, declared)
        else:
            df = df.withWatermark(quoted(declared.column), declared.delay)
        return self._observe(operator.name, df, df.schema[declared.column])


def _lowest(inputs: Sequence[TrackedEventTime | None]) -> TrackedEventTime | None:
    """Return the event time of a union. Spark marks the columns that the first stream marks."""
    times = [time for time in inputs if time is not None]
    return TrackedEventTime(columns=times[0].columns, is_lowest=True) if len(times) > 1 else next(iter(times), None)


def _with_marks(df: DataFrame, columns: Sequence[StructField]) -> DataFrame:
    """Restore the marks of event-time columns, which the output of a Python function lacks."""
    if event_time_columns(df.schema):
        return df
    return with_metadata(
        df,
        {
            column.name: {**df.schema[column.name].metadata, **column.metadata}
            for column in columns
            if column.name in df.columns
            and df.schema[column.name].dataType.simpleString() == column.dataType.simpleString()
        },
    )


def _with_only_mark(df: DataFrame, watermark: Watermark) -> DataFrame:
    """Mark one column as event time, as `withWatermark` does, and remove the mark from all others."""
    declared = df.withWatermark(quoted(watermark.column), watermark.delay).schema[watermark.column]  # parses the delay
    metadata = {column.name: dict(column.metadata) for column in event_time_columns(df.schema)}
    for marked in metadata.values():
        del marked[EVENT_TIME]
    return with_metadata(df, {**metadata, watermark.column: declared.metadata})


def _timestamp_advice(kind: DataType) -> str:
    """Say how a column of another type becomes a timestamp."""
    if isinstance(kind, StructType):
        return "for a window, add the column F.window_time('window') and use it"
    if isinstance(kind, NumericType):
        return "convert it in a stateless operator, as with F.timestamp_millis, and declare the watermark behind it"
    return "convert it in a stateless operator, as with F.to_timestamp, and declare the watermark behind it"
