"""Operator classes on Spark: the rows of all ports go to one `transformWithState`, with a list state per port.

Path of a row: a task in front of the shuffle packs the rows of each key into chunks and numbers the chunks. The task of
the key adds them to the list state of their port, invokes the operator, and emits rows of all output ports.

Order of the rows of a key at a port: the order of the stream, if only functions without a shuffle lie between it and
a source, a channel or another operator class. After a shuffle in the same query, the order within a batch is that of
the columns `order` and otherwise that of the values. It is the same whenever a batch is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.dataflow import DataflowError
from penstock.dataflow.code_location import written_at
from penstock.dataflow.declaration import schema_columns
from penstock.dataflow.operator_class import PORT, Overflow, PortOperator
from penstock.dataflow.schedule import PeriodicSchedule, Ports, RowSchedule
from penstock.engines.invocation import Invocations, KeyState, Row, RowList
from penstock.engines.spark.compile.clocks import Timing
from penstock.engines.spark.compile.row_packing import OTHER_COLUMNS, packed
from penstock.engines.spark.storage.row_conversion import batch_from_dicts
from penstock.engines.spark.storage.row_files import arrow_schema, cast_batch
from penstock.engines.spark.storage.schemas import parse_schema
from penstock.engines.spark.storage.waiting_rows import ChunkFormat, PortRows, merged

DROPPED = "__penstock_dropped_"  # prefix of the observation that counts dropped rows
_DROPPED_COLUMN = "__penstock_dropped"
_STATE_TEXT = "text string"
_TIMER_KEYS = ("bigint", "int", "smallint", "tinyint", "string", "boolean", "double", "float", "binary", "date")


def apply_ports(
    frames: Sequence[DataFrame],
    name: str,
    operator: PortOperator,
    timing: Timing | None,
    *,
    replicas: int,
    is_ordered: Sequence[bool],
) -> DataFrame:
    """Apply an operator class to the streams of its ports.

    is_ordered: whether the order of the rows within a partition of each stream is the same if a batch is repeated.

    Raises:
        DataflowError: An input lacks a column, or a type cannot be stored.
    """
    formats = [_format(name, port, df, operator) for port, df in enumerate(frames)]
    schemas = [arrow_schema(parse_schema(f"operator '{name}'", schema)) for schema in operator.schemas]
    output = _output_schema(operator)
    if not operator.stateful:
        parts = [
            df.toDF(*_numbered(df)).mapInArrow(_over_rows(name, operator, port, formats[port], schemas, timing), output)
            for port, df in enumerate(frames)
        ]
        df = parts[0]
        for part in parts[1:]:
            df = df.unionAll(part)
        return df if len(parts) == 1 or replicas >= len(parts) else df.coalesce(replicas)
    rows = [packed(df, port, operator.keys, formats[port]) for port, df in enumerate(frames)]
    union = rows[0]
    for part in rows[1:]:
        union = union.unionAll(part)
    keys = union.columns[:-OTHER_COLUMNS]
    is_periodic = isinstance(operator.schedule, PeriodicSchedule)
    if is_periodic:
        _check_timer_keys(name, operator, union)
    counts_dropped = operator.overflow is not Overflow.ERROR
    sorts = [bool(operator.order) or not ordered for ordered in is_ordered]
    processor = PortProcessor(name, operator, formats, schemas, sorts, counts_dropped, timing)
    if counts_dropped:
        output = f"{output}, {_DROPPED_COLUMN} bigint"
    df = union.groupBy(*keys).transformWithState(
        processor, output, "Append", "ProcessingTime" if is_periodic else "None"
    )
    if not counts_dropped:
        return df
    df = df.observe(f"{DROPPED}{name}", F.sum(_DROPPED_COLUMN).alias("rows"))
    return df.where(f"{_DROPPED_COLUMN} is null").drop(_DROPPED_COLUMN)


def _format(name: str, port: int, df: DataFrame, operator: PortOperator) -> ChunkFormat:
    subject = f"port {port} of operator '{name}'"
    needed = operator.input_schemas[port] if operator.input_schemas else None
    given = {field.name: field.dataType for field in df.schema}
    for column in (*operator.keys, *operator.order, *(schema_columns(needed) if needed else ())):
        if column not in given:
            raise DataflowError(
                f"{subject} needs the column '{column}', which its input does not have; the columns are "
                f"{', '.join(given)}"
            )
    for column in operator.order:
        if given[column].typeName() in ("struct", "array", "map", "variant"):
            raise DataflowError(
                f"{subject} is ordered by '{column}' of type {given[column].simpleString()}, which has no order; give "
                "columns with numbers, texts or times in order=[...]"
            )
    for field in parse_schema(subject, needed) if needed else ():
        if given[field.name] != field.dataType:
            raise DataflowError(
                f"{subject} needs the column '{field.name}' with the type {field.dataType.simpleString()}, but its "
                f"input has the type {given[field.name].simpleString()}; cast it in an operator before"
            )
    try:
        zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
        return ChunkFormat(subject, to_arrow_schema(df.schema, timezone=zone))
    except PySparkException as error:
        raise DataflowError(
            f"{subject} receives a column that cannot be stored: {str(error).splitlines()[0]} Remove or cast it in an "
            "operator before"
        ) from None


def _check_timer_keys(name: str, operator: PortOperator, union: DataFrame) -> None:
    for key, field in zip(operator.keys, union.schema, strict=False):
        if field.dataType.simpleString() not in _TIMER_KEYS:
            raise DataflowError(
                f"operator '{name}' is periodic and keyed by '{key}' of type {field.dataType.simpleString()}; the keys "
                f"of a periodic operator have one of the types {', '.join(_TIMER_KEYS)}"
            )


def _output_schema(operator: PortOperator) -> str:
    if len(operator.schemas) == 1:
        return operator.schemas[0]
    structs = [
        f"{PORT}_{port} {parse_schema('output', schema).simpleString()}" for port, schema in enumerate(operator.schemas)
    ]
    return ", ".join([f"{PORT} int", *structs])


def _numbered(df: DataFrame) -> list[str]:
    return [f"_{position}" for position in range(len(df.columns))]


class _Emitted:
    """A row for Spark, which asks for a dict."""

    __slots__ = ("row",)

    def __init__(self, row: Row) -> None:
        self.row = row

    def asDict(self, recursive: bool = False) -> Row:  # noqa: N802 - Spark's name
        return self.row


class PortProcessor(StatefulProcessor):
    """Invokes an operator class for the rows of a key."""

    def __init__(
        self,
        name: str,
        operator: PortOperator,
        formats: list[ChunkFormat],
        schemas: list[pa.Schema],
        sorts: list[bool],
        counts_dropped: bool,
        timing: Timing | None,
    ) -> None:
        self._name = name
        self._operator = operator
        self._formats = formats
        self._schemas = schemas
        self._sorts = sorts
        self._counts_dropped = counts_dropped
        self._timing = timing
        schedule = operator.schedule
        self._needs_all = isinstance(schedule, RowSchedule) and schedule.ports is Ports.ALL

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._lists = [handle.getListState(f"port_{port}", "rows binary") for port in range(len(self._formats))]
        self._state = handle.getValueState("state", _STATE_TEXT)
        self._invocations = Invocations(self._name, self._operator)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        arrived: list[list[tuple[int, bytes]]] = [[] for _ in self._formats]
        for *_, port, position, chunk in rows:
            arrived[port].append((position, chunk))
        began = time.perf_counter()
        if self._invocations.discards:
            return iter(())
        new = [self._in_order(port, chunks) for port, chunks in enumerate(arrived)]
        waiting = [
            PortRows(self._formats[port], self._stored(port) if chunks or self._needs_all else [], chunks)
            for port, chunks in enumerate(new)
        ]
        emitted = self._turn(key, waiting, None)
        if self._invocations.is_periodic:
            now_ms = timerValues.getCurrentProcessingTimeInMs()
            self._handle.registerTimer(self._invocations.next_tick_ms(now_ms))
        if self._timing is not None:
            self._timing.seconds.add(time.perf_counter() - began)
        return emitted

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        began = time.perf_counter()
        waiting = [PortRows(self._formats[port], self._stored(port), []) for port in range(len(self._formats))]
        if not any(map(len, waiting)) and not self._state.exists():
            return iter(())  # an earlier timer of the same batch has received the rows for which this one was set
        emitted = self._turn(key, waiting, expiredTimerInfo.getExpiryTimeInMs())
        if self._state.exists():  # a key without state is forgotten until its next row
            now_ms = timerValues.getCurrentProcessingTimeInMs()
            self._handle.registerTimer(self._invocations.next_tick_ms(now_ms))
        if self._timing is not None:
            self._timing.seconds.add(time.perf_counter() - began)
        return emitted

    def close(self) -> None:
        close = getattr(self._operator.instance, "close", None)
        if callable(close):
            close()

    def _in_order(self, port: int, chunks: list[tuple[int, bytes]]) -> list[bytes]:
        chunks.sort(key=lambda chunk: chunk[0])
        if not chunks or not self._sorts[port]:
            return [chunk for _, chunk in chunks]
        format, order = self._formats[port], self._operator.order
        batch = merged(format.decode(chunk) for _, chunk in chunks)
        rows = format.rows(batch)
        at = sorted(range(len(rows)), key=lambda i: ([_comparable(rows[i][name]) for name in order], repr(rows[i])))
        return [format.encode(batch.take(pa.array(at, pa.int64())))]

    def _stored(self, port: int) -> list[bytes]:
        return [chunk for (chunk,) in self._lists[port].get()]

    def _turn(self, key: Any, waiting: list[PortRows], tick_ms: int | None) -> Iterator[Any]:
        state = KeyState(self._load)
        values = dict(zip(self._operator.keys, key, strict=False))
        turn = self._invocations.turn(values, waiting, state, tick_ms)
        for queue, stored in zip(waiting, self._lists, strict=True):
            queue.store(stored)
        state.save(self._store, self._invocations.subject(values))
        rows = output_rows(self._name, self._operator, turn.emitted, self._schemas)
        if self._counts_dropped:
            for row in rows:
                row[_DROPPED_COLUMN] = None
            if turn.dropped:
                rows.append({_DROPPED_COLUMN: turn.dropped})
        return map(_Emitted, rows)

    def _load(self) -> str | None:
        value = self._state.get()
        return None if value is None else value[0]

    def _store(self, text: str | None) -> None:
        if text is None:
            self._state.clear()
        else:
            self._state.update((text,))


def output_rows(
    name: str, operator: PortOperator, emitted: list[tuple[int, Row]], schemas: Sequence[pa.Schema]
) -> list[Row]:
    """Return the emitted rows with the columns of the operator's output, after checking them."""
    if not emitted:
        return []
    for port, schema in enumerate(schemas):
        own = [row for to, row in emitted if to == port]
        batch_from_dicts(own, schema, f"operator '{name}'{written_at(operator.instance.invoke)}")
    if len(schemas) == 1:
        return [row for _, row in emitted]
    return [{PORT: port, f"{PORT}_{port}": row} for port, row in emitted]


def _over_rows(
    name: str,
    operator: PortOperator,
    port: int,
    format: ChunkFormat,
    schemas: Sequence[pa.Schema],
    timing: Timing | None,
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Return a function of Arrow batches that invokes a stateless operator for the rows of one port."""
    output = arrow_schema(parse_schema(f"operator '{name}'", _output_schema(operator)))

    def over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        invocations = Invocations(name, operator)
        for batch in batches:
            began = time.perf_counter()
            rows = format.rows(cast_batch(batch.rename_columns(format.schema.names), format.schema))
            waiting = [RowList(rows if at == port else ()) for at in range(operator.inputs)]
            turn = invocations.turn({}, waiting, None)
            emitted = output_rows(name, operator, turn.emitted, schemas)
            made = pa.RecordBatch.from_pylist(emitted, schema=output)
            if timing is not None:
                timing.seconds.add(time.perf_counter() - began)
            yield made
        close = getattr(operator.instance, "close", None)
        if callable(close):
            close()

    return over


def _comparable(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)
