"""Compiles a pipeline to a streaming DataFrame: reads its inputs, applies its operators, and counts rows in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField

from penstock.dataflow import Dataflow, DataflowError, Kind, Operator, OutputMode, PenstockError, PlanError, RowFunction
from penstock.dataflow.code_location import failing_line, source_file
from penstock.dataflow.edge import Edge
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.operator_class import PortOperator
from penstock.dataflow.sources import Files, SparkSource
from penstock.engines.spark.compile.advice import CONDITIONAL_AGGREGATES, PIVOT, advice, first_sentence
from penstock.engines.spark.compile.clocks import Timing, python_functions_timed
from penstock.engines.spark.compile.event_time import (
    EventTimes,
    TrackedEventTime,
)
from penstock.engines.spark.compile.group_stages import GroupStages, ProfileOf
from penstock.engines.spark.compile.keys import aggregates_of, check_grouping
from penstock.engines.spark.compile.ports import apply_ports
from penstock.engines.spark.compile.refusals import (
    calls_pivot,
    keeps_row_count,
    refuse_dependence_on_batches,
    refuse_hidden_state,
    refuse_python_aggregates,
    refuse_repeated_input,
    refuse_second_watermark,
    refuse_two_event_times,
    shuffles,
    stateful_nodes,
)
from penstock.engines.spark.compile.row_functions import apply_row_function
from penstock.engines.spark.compile.share_partitions import by_shares
from penstock.engines.spark.compile.state_owners import StateOwners, state_owners
from penstock.engines.spark.error_text import root_cause
from penstock.engines.spark.jvm import active_session, analyzed_plan, check_for_streaming
from penstock.engines.spark.run_directory.committed import Origin
from penstock.engines.spark.sinks.writers import check_columns, counts_rows
from penstock.engines.spark.storage.column_names import quoted
from penstock.engines.spark.storage.schemas import event_time_columns
from penstock.plan import Pipeline

ROWS = "__penstock_rows_"  # prefix of the observations that count the output rows of operators
_COLUMNS = "__penstock_columns_"  # prefix of the observations that only keep the columns of state
# (origin, replicas, with its watermark, shares of the replicas) -> rows, and the name of the observation that holds
# their watermark
Read = Callable[[Origin, int, bool, tuple[float, ...]], tuple[DataFrame, str | None]]


@dataclass(slots=True)
class Compiled:
    """The streaming DataFrame of a pipeline and what the engine needs to know about it."""

    df: DataFrame
    mode: str  # Spark's output mode
    event_time: TrackedEventTime | None  # event time of the output; its channel carries it on
    counted: str | None  # the operator whose output rows the writer counts
    around_state: dict[str, DataFrame] = field(default_factory=dict)  # inputs of each state; "name()": its output
    timings: dict[str, Timing] = field(default_factory=dict)  # timings of Python functions by operator
    stateful: tuple[str, ...] = ()  # the operators with state
    state_owners: StateOwners | None = None  # the operator of each of Spark's states; None if it is uncertain
    emits_closed_windows: frozenset[str] = frozenset()  # aggregates in append mode: each row of state is an open window
    aggregates: dict[str, tuple[str, ...]] = field(default_factory=dict)  # aggregate functions by operator with state
    row_by_row: dict[str, str] = field(default_factory=dict)  # operators that emit one row per row -> their input


class SharedQueryError(PlanError):
    """Spark refuses several operators with state in one query; it may accept each of them in a separate query."""


class _Input(NamedTuple):
    df: DataFrame
    partitions: int
    event_time: TrackedEventTime | None
    shares: tuple[float, ...]  # share of the rows of each partition; empty: equal shares


class Compiler:
    def __init__(
        self,
        spark: SparkSession,
        flow: Dataflow,
        pipeline: Pipeline,
        read: Read,
        sample_every: int | None,
        *,
        keeps_all_columns: bool = True,
        run: Path | None = None,
        profile: ProfileOf | None = None,
    ) -> None:
        """
        sample_every: one row in this many is timed by itself; None switches all measurements off.
        keeps_all_columns: state contains all columns of the output of its operator, also those that no operator behind
            it uses. A cut behind the operator then does not change its state.
        run: the run directory, whose plan determines the number of threads; None: the declared number.
        profile: the resource profiles of executor groups; None if the pipeline has none.
        """
        self._spark = spark
        self._flow = flow
        self._pipeline = pipeline
        self._read = read
        self._sample_every = sample_every
        self._keeps_all_columns = keeps_all_columns
        self._run = run
        self._replicas = dict(pipeline.replicas)
        self._dfs: dict[str, DataFrame] = {}
        self._partitions: dict[str, int] = {}
        self._stages = GroupStages(dict(pipeline.groups), self._replicas, profile)
        self._planned_shares = dict(pipeline.shares)
        self._shares: dict[str, tuple[float, ...]] = {}  # by operator: share of the rows of each partition
        self._event_times = EventTimes(is_carried_on=flow[pipeline.output].sink is None)
        # Operators whose rows have the same order within each partition when a batch is repeated.
        self._ordered: set[str] = set()
        self._has_ports = any(isinstance(flow[name].fn, PortOperator) for name in pipeline.operators)
        self._counted = self._find_counted()
        self._known_counts = self._find_known_counts()
        self._row_by_row: dict[str, str] = {}
        self._aggregates: dict[str, tuple[str, ...]] = {}
        self._around_state: dict[str, DataFrame] = {}
        self._emits_closed_windows: set[str] = set()
        self._timings: dict[str, Timing] = {}
        modes = {str(flow[name].output_mode) for name in pipeline.state}
        self._mode = modes.pop() if modes else str(OutputMode.APPEND)

    def compile(self) -> Compiled:
        """Return the query of the pipeline; nothing is started.

        Raises DataflowError or PlanError if a function fails or Spark would refuse the query.
        """
        with active_session(self._spark) if self._spark is not None else nullcontext():
            return self._compile()

    def _compile(self) -> Compiled:
        for name in self._pipeline.operators:
            operator = self._flow[name]
            try:
                if operator.kind is Kind.SOURCE:
                    self._add_source(operator)
                else:
                    self._add_operator(operator)
            except AnalysisException as error:
                raise DataflowError(f"operator '{name}': {_refusal(operator, error)}") from error
        compiled = Compiled(
            df=self._dfs[self._pipeline.output],
            mode=self._mode,
            event_time=self._event_times[self._pipeline.output],
            counted=self._counted,
            around_state=self._around_state,
            timings=self._timings,
            stateful=self._pipeline.state,
            emits_closed_windows=frozenset(self._emits_closed_windows),
            aggregates=self._aggregates,
            row_by_row=self._row_by_row,
        )
        self._check(compiled)
        if len(self._pipeline.state) > 1:
            compiled.state_owners = self._state_owners()
        return compiled

    def _state_owners(self) -> StateOwners | None:
        inputs = {name: [before for before in self._flow[name].inputs if before in self._dfs] for name in self._dfs}
        return state_owners(self._pipeline.output, self._dfs, inputs)

    def _find_counted(self) -> str | None:
        """Return the operator whose output is written, because the writer counts its rows for free.

        An observation would cost each batch some milliseconds.
        """
        output = self._flow[self._pipeline.output]
        if output.sink is None:
            return output.name
        (name, *more) = output.inputs
        return name if not more and counts_rows(output.sink) and name in self._pipeline.operators else None

    def _find_known_counts(self) -> set[str]:
        """Return the inputs whose rows are known exactly for each batch.

        Spark counts the rows of all inputs of a query together. The offsets of some sources do not count rows, and
        those of Kafka also count the markers of transactions.
        """
        operators = [self._flow[name] for name in self._pipeline.operators]
        sources = {operator.name for operator in operators if operator.source is not None}
        channels = {name for operator in operators for name in operator.inputs if name not in self._pipeline.operators}
        uncounted = Kafka if len(sources) + len(channels) == 1 else Kafka | Files | SparkSource
        return channels | {name for name in sources if not isinstance(self._flow[name].source, uncounted)}

    def _add_source(self, operator: Operator) -> None:
        if operator.name == self._pipeline.output:  # a cut follows, so no reader in this query has replicas
            replicas = self._spark.sparkContext.defaultParallelism
            shares: tuple[float, ...] = ()
        else:
            reader = self._flow.consumers(operator.name)[0]
            replicas = self._partitions_for(reader, operator.name)
            shares = self._shares_for(reader) if not isinstance(operator.source, SparkSource) else ()
        df, _ = self._read(operator.name, replicas, True, shares)
        self._partitions[operator.name], self._shares[operator.name] = replicas, shares
        self._ordered.add(operator.name)
        self._dfs[operator.name] = self._stages.add(operator, self._event_times.add(operator, df, ()), is_moved=False)

    def _add_operator(self, operator: Operator) -> None:
        inputs = [self._input(operator, name) for name in operator.inputs]
        is_moved = self._is_moved(operator, inputs)
        inputs = self._without_conflicts(operator, inputs, is_moved)
        event_times = [source.event_time for source in inputs]
        df, partitions = self._apply(operator, inputs, is_moved)
        if self._has_ports and self._keeps_order(operator, inputs, df):
            self._ordered.add(operator.name)
        if operator.kind.has_state:
            self._add_state(operator, inputs, df)
        if operator.sink is not None:
            check_columns(operator.name, operator.sink, df)
        elif operator.name != self._counted and (metrics := self._metrics(operator, inputs, df)):
            df = df.observe(f"{ROWS if self._sample_every else _COLUMNS}{operator.name}", *metrics)
        self._partitions[operator.name] = partitions
        self._shares[operator.name] = () if operator.takes_each_input else self._planned_shares.get(operator.name, ())
        self._dfs[operator.name] = self._event_times.add(operator, df, event_times)
        refuse_second_watermark(operator.name, self._dfs[operator.name])
        self._dfs[operator.name] = self._stages.add(operator, self._dfs[operator.name], is_moved=is_moved)
        event_time = self._event_times[operator.name]
        if event_time is not None and event_time.is_lowest and not self._pipeline.state:
            # Each stream keeps its watermark.
            self._around_state = {self._union_before(operator.name): self._dfs[operator.name]}

    def _keeps_order(self, operator: Operator, inputs: list[_Input], output: DataFrame) -> bool:
        """Return whether the rows in a partition have the same order when a batch is repeated."""
        if operator.kind.has_state or operator.sink is not None:
            return isinstance(operator.fn, PortOperator)
        if not all(map(self._is_ordered, operator.inputs)):
            return False
        is_moved = not operator.takes_each_input and (
            sum(source.partitions for source in inputs) != self._replicas[operator.name]
        )
        return not is_moved and not shuffles(analyzed_plan(output), [analyzed_plan(source.df) for source in inputs])

    def _is_ordered(self, name: str) -> bool:
        """Return whether the rows of an input have a defined order. Rows of a channel have one."""
        return name not in self._dfs or name in self._ordered

    def _metrics(self, operator: Operator, inputs: list[_Input], df: DataFrame) -> list[Column]:
        """Return what is observed of the output of an operator.

        The rows of an operator that emits one row per row are those of its input. An observation would cost each row
        some time, and would separate operators that Spark compiles to one loop.

        Spark removes columns that nobody uses, from state too, and pushes filters below state. An observation that
        reads all columns prevents both, so that the state of an operator does not depend on those behind it.
        """
        metrics = []
        if self._sample_every and not self._find_row_by_row(operator, inputs, df):
            metrics.append(F.count(F.lit(1)).alias("rows"))
        if operator.kind.has_state and operator.name != self._pipeline.output and self._keeps_all_columns:
            columns = [_hashable(field) for field in df.schema]
            metrics.append(F.max(F.hash(*columns)).alias("columns"))
        return metrics

    def _find_row_by_row(self, operator: Operator, inputs: list[_Input], df: DataFrame) -> bool:
        """Return whether the rows of an operator are known without an observation, and record this."""
        is_known = len(inputs) == 1 and operator.inputs[0] in self._known_counts
        is_needed = self._counted is None and operator.name in self._flow[self._pipeline.output].inputs
        if is_known and not is_needed and operator.kind is Kind.STATELESS and keeps_row_count(inputs[0].df, df):
            self._row_by_row[operator.name] = operator.inputs[0]
        self._known_counts.add(operator.name)  # an observation counts the rows of other operators
        return operator.name in self._row_by_row

    def _add_state(self, operator: Operator, inputs: list[_Input], output: DataFrame) -> None:
        """Record the streams around a state.

        The output has a name of its own: in another plan, a channel with another watermark carries its rows.
        """
        for name, source in zip(operator.inputs, inputs, strict=True):
            self._around_state.setdefault(self._union_before(name), source.df)
        self._around_state[f"{operator.name}()"] = output
        self._aggregates[operator.name] = aggregates_of([source.df for source in inputs], output)
        if operator.output_mode is OutputMode.APPEND:
            before = [analyzed_plan(source.df) for source in inputs]
            if stateful_nodes(analyzed_plan(output), before) == {"Aggregate"}:
                self._emits_closed_windows.add(operator.name)

    def _union_before(self, stream: str) -> str:
        """Return the union in this query from which a stream comes, or the stream itself.

        The watermarks of a union belong to it, so that a cut behind it does not change their name.
        """
        name = stream
        while name in self._pipeline.operators and self._flow[name].kind is Kind.STATELESS:
            inputs = self._flow[name].inputs
            if len(inputs) > 1:
                return name
            (name,) = inputs
        return stream

    def _input(self, operator: Operator, name: str) -> _Input:
        """Return an input of an operator, from this query or from a channel."""
        if name in self._dfs:
            return _Input(self._dfs[name], self._partitions[name], self._event_times[name], self._shares[name])
        partitions, shares = self._partitions_for(operator, name), self._shares_for(operator)
        with_watermark = not self._declares_watermark_from(operator)
        df, observation = self._read(Edge(name, operator.name), partitions, with_watermark, shares)
        columns = event_time_columns(df.schema)
        event_time = TrackedEventTime(columns=columns, observation=observation) if columns else None
        return _Input(df, partitions, event_time, shares)

    def _declares_watermark_from(self, operator: Operator) -> bool:
        """Return whether an operator declares a watermark from this one to the state, which replaces others."""
        while operator.kind is Kind.STATELESS and operator.watermark is None and operator.name != self._pipeline.output:
            (operator,) = self._flow.consumers(operator.name)
        return operator.kind is Kind.STATELESS and operator.watermark is not None

    def _partitions_for(self, reader: Operator, name: str) -> int:
        """Return how many partitions of an input a reader needs, so that all inputs together give its replicas."""
        replicas = self._replicas[reader.name]
        if reader.kind.has_state:
            return replicas
        per_input, left = divmod(replicas, len(reader.inputs))
        return max(1, per_input + (reader.inputs.index(name) < left))

    def _shares_for(self, reader: Operator) -> tuple[float, ...]:
        """Return the shares by which an input is divided for a reader. Several inputs are divided equally."""
        return self._planned_shares.get(reader.name, ()) if len(reader.inputs) == 1 else ()

    def _without_conflicts(self, operator: Operator, inputs: list[_Input], is_moved: bool) -> list[_Input]:
        """Return the inputs of an operator, separated by a shuffle from stages of other executor groups."""
        conflicting = self._stages.conflicting_inputs(operator, is_moved=is_moved)
        if conflicting and self._must_keep_order(operator):
            raise PlanError(
                f"'{operator.name}' is in another group of executors than '{conflicting[0]}', and a shuffle between "
                "them would change the order of a result in output mode complete; put both in one group"
            )
        self._ordered -= set(conflicting)
        return [
            source._replace(df=_shuffled(source)) if name in conflicting else source
            for name, source in zip(operator.inputs, inputs, strict=True)
        ]

    def _must_keep_order(self, operator: Operator) -> bool:
        """Return whether an operator is a sink of a result in complete mode, which may be sorted."""
        return operator.kind is Kind.SINK and self._mode == OutputMode.COMPLETE

    def _is_moved(self, operator: Operator, inputs: list[_Input]) -> bool:
        """Return whether the rows of all inputs are shuffled to the replicas of an operator without state."""
        if operator.takes_each_input or operator.kind.has_state:
            return False
        replicas = self._replicas[operator.name]
        keys = operator.calls.keys if operator.calls is not None else ()
        shares = self._planned_shares.get(operator.name, ())
        if shares and not self._must_keep_order(operator):
            return bool(keys) or shares != inputs[0].shares or len(inputs) > 1
        if keys and replicas > 1:  # rows with equal keys meet
            return True
        return sum(source.partitions for source in inputs) != replicas and not self._must_keep_order(operator)

    def _apply(self, operator: Operator, inputs: list[_Input], is_moved: bool) -> tuple[DataFrame, int]:
        """Return the output of an operator and its number of partitions."""
        replicas = self._replicas[operator.name]
        has_state = operator.kind.has_state
        partitions = sum(source.partitions for source in inputs)
        if operator.takes_each_input:
            df = self._call(operator, *(source.df for source in inputs))
            return df, replicas if has_state else partitions
        df = inputs[0].df
        for other in inputs[1:]:
            df = df.unionByName(other.df)
        keys = operator.calls.keys if operator.calls is not None else ()
        shares = self._planned_shares.get(operator.name, ())
        if is_moved and shares:
            df = by_shares(df, shares, keys)
        elif is_moved:
            df = df.repartition(replicas, *map(quoted, keys))
        _check_keys(operator, df)
        return self._call(operator, df), replicas

    def _call(self, operator: Operator, *frames: DataFrame) -> DataFrame:
        """Call the function of an operator, with its Python functions timed, and check what it returns."""
        function = operator.fn
        if function is None:
            return frames[0]
        timing = None
        if self._sample_every:
            timing = Timing(self._spark.sparkContext, self._sample_every, operator.name)
            self._timings[operator.name] = timing
        if isinstance(function, RowFunction):
            return apply_row_function(
                frames[0], operator.name, function, timing, self._run, self._stages.profile(operator.name)
            )
        if isinstance(function, PortOperator):
            is_ordered = [self._is_ordered(name) for name in operator.inputs]
            replicas = self._replicas[operator.name]
            return apply_ports(frames, operator.name, function, timing, replicas=replicas, is_ordered=is_ordered)
        with python_functions_timed(timing) if timing is not None else nullcontext():
            df = _call_user_function(operator.name, function, frames)
        if not isinstance(df, DataFrame):
            raise DataflowError(
                f"the function of '{operator.name}' returns {type(df).__name__}, not a DataFrame; return a DataFrame"
            )
        if not df.isStreaming:
            raise DataflowError(
                f"the function of '{operator.name}' returns a DataFrame that is not derived from its input; "
                "transform the DataFrame that it receives"
            )
        refuse_repeated_input(operator.name, frames, df)
        refuse_dependence_on_batches(operator.name, frames, df)
        if operator.kind.has_state:
            refuse_python_aggregates(operator.name, frames, df)
        if operator.kind is Kind.STATELESS:
            # After a result in complete mode, a limit applies to the result of each batch and keeps no state.
            harmless = {"GlobalLimit"} if self._is_behind_complete_result(operator) else set()
            refuse_hidden_state(operator.name, frames, df, harmless)
        elif not operator.takes_each_input:
            refuse_two_event_times(operator.name, frames, df)
        if operator.kind is Kind.KEYED:
            check_grouping(operator.name, operator.keys, frames, df)
        return df

    def _is_behind_complete_result(self, operator: Operator) -> bool:
        before = [self._flow[name] for name in operator.inputs if name in self._pipeline.operators]
        return self._mode == OutputMode.COMPLETE and any(
            producer.kind.has_state or self._is_behind_complete_result(producer) for producer in before
        )

    def _check(self, compiled: Compiled) -> None:
        """Raise PlanError if Spark would refuse to start the query."""
        try:
            check_for_streaming(self._spark, compiled.df, mode=compiled.mode)
        except AnalysisException as error:
            reason = _first_line(error).rstrip(";. ")
            if len(self._pipeline.state) > 1:
                names = ", ".join(self._pipeline.state)
                cuts = ", ".join(f'"{name}"' for name in self._pipeline.state[:-1])
                raise SharedQueryError(
                    f"Spark refuses '{names}' in one query: {first_sentence(reason)}; give each of them a query of "
                    f'its own: add {cuts} to "cuts" of the plan'
                ) from error
            columns = {column.name for df in self._around_state.values() for column in event_time_columns(df.schema)}
            if calls_pivot(compiled.df):
                reason, what_to_do = PIVOT, CONDITIONAL_AGGREGATES
            else:
                what_to_do = advice(reason, compiled.mode, sorted(columns))
            raise PlanError(
                f"Spark refuses '{self._refused(compiled.mode, _first_line(error))}' with output_mode="
                f"{compiled.mode!r}: {first_sentence(reason)}{what_to_do and '; '}{what_to_do}"
            ) from error

    def _refused(self, mode: str, message: str) -> str:
        """Return the first operator whose output Spark refuses with this message.

        Operators before the state are refused for another reason, because complete mode needs an aggregation.
        """
        for name, df in self._dfs.items():
            try:
                check_for_streaming(self._spark, df, mode=mode)
            except AnalysisException as error:
                if _first_line(error) == message:
                    return name
        return self._pipeline.output


def _shuffled(source: _Input) -> DataFrame:
    if source.shares:
        return by_shares(source.df, source.shares, ())
    return source.df.repartition(source.partitions)


def _call_user_function(name: str, function: Callable[..., Any], frames: tuple[DataFrame, ...]) -> Any:
    try:
        return function(*frames)
    except (AnalysisException, PenstockError):  # their messages are sufficient
        raise
    except Exception as error:
        line = failing_line(error, source_file(function))
        where = f"'{line.filename}', line {line.lineno}: {line.line}: " if line is not None else ""
        raise DataflowError(f"the function of '{name}' fails: {where}{type(error).__name__}: {error}") from error


def _hashable(field: StructField) -> Column:
    """Return an expression that reads a column and has a type that Spark can hash."""
    column = F.col(quoted(field.name))
    is_hashable = not any(word in field.dataType.simpleString() for word in ("map<", "variant"))
    return column if is_hashable else F.isnull(column)


def _check_keys(operator: Operator, df: DataFrame) -> None:
    missing = [key for key in operator.keys if key not in df.columns]
    if missing:
        raise DataflowError(
            f"operator '{operator.name}' is keyed by '{missing[0]}', which is not a column of its input; the columns "
            f"are {', '.join(df.columns)}; compute it in a stateless operator before this one, with that name; for a "
            "window that the function computes, the key is its time column"
        )


def _refusal(operator: Operator, error: AnalysisException) -> str:
    """Return Spark's message about an operator, with advice and the line of the user's code."""
    message = _first_line(error).rstrip(";. ")
    if "writeStream.start" in message:  # Spark does not name the cause
        message += "; a function transforms a DataFrame and reads no rows: remove actions such as count() or show()"
    line = failing_line(error, source_file(operator.fn))
    return message if line is None else f"{message} ({line.filename}, line {line.lineno})"


def _first_line(error: Any) -> str:
    line = str(error).strip().splitlines()[0]
    return root_cause(error) if line.endswith("Traceback (most recent call last):") else line
