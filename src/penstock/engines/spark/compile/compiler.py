"""From a pipeline to a streaming DataFrame: sources and channels in, operators applied, rows counted between them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

from penstock.dataflow import Dataflow, DataflowError, Kind, Operator, OutputMode, PenstockError, PlanError, RowFunction
from penstock.dataflow.edge import Edge
from penstock.engines.spark.channels import EventTime
from penstock.engines.spark.compile.clocks import Timing, python_functions_timed
from penstock.engines.spark.compile.hidden_state import refuse_hidden_state
from penstock.engines.spark.compile.read_once import refuse_reading_twice
from penstock.engines.spark.compile.row_functions import apply_rows
from penstock.engines.spark.jvm import check_for_streaming
from penstock.engines.spark.run_directory.committed import Origin
from penstock.engines.spark.sinks.writers import check_columns, counts_rows
from penstock.engines.spark.storage.column_names import has_ambiguous_names, quoted
from penstock.plan import Pipeline

WATERMARK = "spark.watermarkDelayMs"  # Spark marks event-time columns so
ROWS = "__penstock_rows_"  # and an operator: what the observation of its rows is called, which is no user's
# (origin, replicas) -> rows, and the observation that holds their latest event time
Read = Callable[[Origin, int], tuple[DataFrame, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The event time of a stream within a query, and what tells how far it has come.

    That is the latest time seen, an observation, before any state. An operator with state holds rows back, so behind it
    the latest time says nothing of the rows to come: there the batch's watermark does, and `delay_ms` above it.
    """

    time: EventTime
    observed: str | None = None
    delay_ms: int = 0


@dataclass(slots=True)
class Compiled:
    """A pipeline's DataFrame and what the engine must know of it."""

    df: DataFrame
    mode: str
    events: Events | None  # what its channel carries on
    counted: str | None  # the operator whose output is counted where it is written
    around_state: dict[str, DataFrame] = field(default_factory=dict)  # what the state is fed, and "": what it gives
    timings: dict[str, Timing] = field(default_factory=dict)  # of its Python functions


class Compiler:
    def __init__(
        self, spark: SparkSession, flow: Dataflow, pipeline: Pipeline, read: Read, sample_every: int | None
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._pipeline = pipeline
        self._read = read
        self._sample_every = sample_every  # None: nothing is measured
        self._replicas = dict(pipeline.replicas)
        self._dfs: dict[str, DataFrame] = {}
        self._partitions: dict[str, int] = {}
        self._events: dict[str, Events | None] = {}
        self._after_state: set[str] = set()
        self._result = Compiled(df=None, mode="append", events=None, counted=self._counted())

    def compile(self) -> Compiled:
        """Raises one clear error if Spark would refuse the query; nothing has been started then."""
        for name in self._pipeline.operators:
            operator = self._flow[name]
            try:
                if operator.kind is Kind.SOURCE:
                    self._source(operator)
                else:
                    self._operator(operator)
            except AnalysisException as error:
                raise DataflowError(f"operator '{name}': {_first_line(error)}") from error
        result = self._result
        result.df = self._dfs[self._pipeline.output]
        result.events = self._events[self._pipeline.output]
        modes = {str(self._flow[name].output_mode) for name in self._pipeline.state}
        result.mode = modes.pop() if modes else str(OutputMode.APPEND)
        self._check(result)
        return result

    def _counted(self) -> str | None:
        """The operator whose rows are what is written: an observation of them costs each batch some milliseconds."""
        output = self._flow[self._pipeline.output]
        if output.kind is not Kind.SINK:
            return output.name
        (name, *more) = output.inputs
        return name if not more and counts_rows(output.sink) and name in self._pipeline.operators else None

    def _source(self, operator: Operator) -> None:
        cut_off = operator.name == self._pipeline.output  # then nobody in this query says how many readers there are
        reader = None if cut_off else self._flow.consumers(operator.name)[0]
        replicas = self._asked(reader, operator.name) if reader else self._spark.sparkContext.defaultParallelism
        df, _ = self._read(operator.name, replicas)
        self._partitions[operator.name] = replicas
        self._dfs[operator.name] = self._with_watermark(operator, df, inherited=None)

    def _operator(self, operator: Operator) -> None:
        inputs = [self._input(operator, name) for name in operator.inputs]
        replicas = self._replicas[operator.name]
        frames = [df for df, _, _ in inputs]
        partitions = sum(count for _, count, _ in inputs)
        events = [one for _, _, one in inputs if one is not None]
        if len(events) > 1 and operator.kind is Kind.STATELESS:
            raise DataflowError(
                f"'{operator.name}' unites streams that have a watermark each ({', '.join(operator.inputs)}); declare "
                f"it on '{operator.name}' instead, where it is one for all of them"
            )
        if operator.takes_each_input:
            df, partitions = self._call(operator, *frames), replicas if operator.kind.has_state else partitions
        else:
            df = frames[0]
            for other in frames[1:]:
                df = df.unionByName(other)
            if not operator.kind.has_state and partitions != replicas:
                df, partitions = df.repartition(replicas), replicas
            self._check_keys(operator, df)
            df = self._call(operator, df)
        if operator.kind.has_state:
            self._result.around_state = {**dict(zip(operator.inputs, frames, strict=True)), "": df}
            # The times of a join's sides may lie apart: what comes out can be older than the watermark.
            kept = None if operator.takes_each_input and len(inputs) > 1 else _events(df)
            partitions, events = replicas, [kept] if kept else []
        if operator.kind is Kind.SINK:
            check_columns(operator.sink, df)
        elif self._sample_every and operator.name != self._result.counted:
            df = df.observe(f"{ROWS}{operator.name}", F.count(F.lit(1)).alias("rows"))
        if operator.kind.has_state or any(name in self._after_state for name in operator.inputs):
            self._after_state.add(operator.name)
        self._partitions[operator.name] = partitions
        self._dfs[operator.name] = self._with_watermark(operator, df, inherited=events[0] if events else None)

    def _input(self, operator: Operator, name: str) -> tuple[DataFrame, int, Events | None]:
        if name in self._dfs:
            return self._dfs[name], self._partitions[name], self._events[name]
        replicas = self._asked(operator, name)
        df, observed = self._read(Edge(name, operator.name), replicas)
        events = _events(df)
        return df, replicas, replace(events, observed=observed) if events else None

    def _asked(self, reader: Operator, name: str) -> int:
        """How many partitions a reader asks of an input: all of them together are its replicas, without a shuffle."""
        replicas = self._replicas[reader.name]
        if reader.kind.has_state:
            return replicas
        each, left = divmod(replicas, len(reader.inputs))
        return max(1, each + (reader.inputs.index(name) < left))

    def _call(self, operator: Operator, *frames: DataFrame) -> DataFrame:
        fn = operator.fn
        if fn is None:
            return frames[0]
        timing = Timing(self._spark.sparkContext, self._sample_every) if self._sample_every else None
        if timing is not None:
            self._result.timings[operator.name] = timing
        if isinstance(fn, RowFunction):
            return apply_rows(frames[0], operator.name, fn.fn, fn.schema, timing)
        with python_functions_timed(timing) if timing is not None else nullcontext():
            df = self._called(operator.name, fn, frames)
        if not isinstance(df, DataFrame):
            raise DataflowError(
                f"the function of '{operator.name}' gives {type(df).__name__}, not a DataFrame; return one"
            )
        if not df.isStreaming:
            raise DataflowError(
                f"the function of '{operator.name}' gives a DataFrame that does not stem from its input"
            )
        refuse_reading_twice(operator.name, frames, df)
        if operator.kind is Kind.STATELESS:
            refuse_hidden_state(operator.name, frames, df)
        return df

    def _called(self, name: str, fn: Callable[..., Any], frames: tuple[DataFrame, ...]) -> Any:
        try:
            return fn(*frames)
        except (AnalysisException, PenstockError):  # which tell enough by themselves
            raise
        except Exception as error:
            own = getattr(getattr(fn, "__code__", None), "co_filename", None)
            lines = [at for at in traceback.extract_tb(error.__traceback__) if at.filename == own]
            where = f"'{own}', line {lines[-1].lineno}: {lines[-1].line}: " if lines else ""
            raise DataflowError(f"the function of '{name}' fails: {where}{type(error).__name__}: {error}") from error

    def _check_keys(self, operator: Operator, df: DataFrame) -> None:
        missing = [key for key in operator.keys if key not in df.columns]
        if missing:
            raise DataflowError(
                f"keyed operator '{operator.name}' is keyed by '{missing[0]}', which its input does not have; its "
                f"columns are {', '.join(df.columns)}"
            )

    def _with_watermark(self, operator: Operator, df: DataFrame, inherited: Events | None) -> DataFrame:
        declared = operator.watermark
        if declared is None:
            self._events[operator.name] = events = self._kept(operator, df, inherited)
            to_state = operator.kind is not Kind.SINK and operator.name not in self._after_state
            return _marked(df, events) if events is not None and to_state else df
        if declared.column not in df.columns:
            raise DataflowError(
                f"the watermark of '{operator.name}' is on '{declared.column}', which is not among its columns "
                f"{', '.join(df.columns)}"
            )
        kind = df.schema[declared.column].dataType
        if not isinstance(kind, TimestampType):
            raise DataflowError(
                f"the watermark of '{operator.name}' is on '{declared.column}', which is {kind.simpleString()} and no "
                "timestamp; declare it on one, which of a window is F.window_time('window') as a column of its own"
            )
        observed = f"event_{operator.name}"
        delay_ms = 0
        if operator.name not in self._after_state:  # Spark takes one on the way to a state: else it is for the next
            df = df.withWatermark(quoted(declared.column), declared.delay)
            delay_ms = df.schema[declared.column].metadata[WATERMARK]
        event = EventTime(column=declared.column, delay=declared.delay)
        self._events[operator.name] = Events(time=event, observed=observed, delay_ms=delay_ms)
        return df.observe(observed, F.max(quoted(declared.column)).alias("latest"))

    def _kept(self, operator: Operator, df: DataFrame, inherited: Events | None) -> Events | None:
        """The event time of a stream that declares none: its input's, perhaps under another name."""
        if inherited is not None and inherited.time.column in df.columns:
            return inherited
        if inherited is None and operator.name in self._after_state:
            return None
        found = _events(df)  # without an inherited one, the user's own function has declared it
        return replace(found, observed=inherited.observed) if found and inherited else found

    def _check(self, result: Compiled) -> None:
        try:
            check_for_streaming(self._spark, result.df, appends=result.mode == OutputMode.APPEND)
        except AnalysisException as error:
            where = ", ".join(self._pipeline.state) or self._pipeline.output
            raise PlanError(
                f"Spark refuses '{where}' with output_mode={result.mode!r}: {_first_line(error)}; give the "
                "operator another output mode, or declare a watermark on a stream before it that keeps its column"
            ) from error


def _events(df: DataFrame) -> Events | None:
    """The event-time column that Spark itself sees, if it is one that a watermark can be put on again."""
    for column in df.schema:
        if WATERMARK in column.metadata and isinstance(column.dataType, TimestampType):
            delay_ms = column.metadata[WATERMARK]
            return Events(time=EventTime(column=column.name, delay=f"{delay_ms} milliseconds"), delay_ms=delay_ms)
    return None


def _marked(df: DataFrame, events: Events) -> DataFrame:
    """Behind a Python function Spark takes no column for event time; that of the name is, as it is behind a cut."""
    column = events.time.column
    known = df.schema[column]
    if WATERMARK in known.metadata or not isinstance(known.dataType, TimestampType) or has_ambiguous_names(df.columns):
        return df
    return df.withMetadata(column, {**known.metadata, WATERMARK: events.delay_ms})


def _first_line(error: Any) -> str:
    return str(error).strip().splitlines()[0]
