"""Dataflow: the graph of operators that a user declares. Each declaration is checked when it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.dataflow import complete_results, graph
from penstock.dataflow.argument_types import check_parameters, checked_types
from penstock.dataflow.concurrent_calls import DEAD_LETTER, DEAD_LETTER_SCHEMA, concurrent_calls
from penstock.dataflow.ddl import Struct, ddl
from penstock.dataflow.declaration import check_keys, check_name, column_names, schema_columns, takes_each_input
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.operator_class import (
    DEFAULT_LIMIT,
    Schemas,
    check_input_columns,
    output_columns,
    port_operator,
    rows_of_port,
    spec_of_properties,
)
from penstock.dataflow.operators import Kind, Operator, OutputMode, RowFunction, Watermark
from penstock.dataflow.sinks import Noop, Parquet, Sink
from penstock.dataflow.sources import Source, SparkSource
from penstock.dataflow.stream import Stream

_DELAY = re.compile(r"\s*\d+(\.\d+)?\s+(microsecond|millisecond|second|minute|hour|day|week|month|year)s?\s*", re.I)


class Dataflow:
    """A named graph of operators.

    Args:
        name: Name of the dataflow: a letter, then letters, digits and underscores.

    Raises:
        DataflowError: The name is not allowed.

    >>> import penstock
    >>> flow = penstock.Dataflow("evens")
    >>> numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10))
    >>> numbers.stateless("even", lambda df: df.where("n % 2 = 0")).sink("out", penstock.memory())
    >>> [operator.name for operator in flow.operators]
    ['numbers', 'even', 'out']
    """

    def __init__(self, name: str) -> None:
        self.name = check_name("dataflow", name)
        self._operators: dict[str, Operator] = {}
        self._loops: dict[str, Stream] = {}  # feedback streams that are declared and not closed yet
        # Caches, cleared by each declaration: plans are validated every few seconds.
        self._order: tuple[Operator, ...] | None = None
        self._consumers: dict[str, tuple[Operator, ...]] | None = None

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators. Each operator comes after its inputs, apart from loops."""
        if self._order is None:
            self._order = graph.topological(self._operators.values())
        return self._order

    def __getitem__(self, name: str) -> Operator:
        try:
            return self._operators[name]
        except KeyError:
            raise DataflowError(
                f"Dataflow '{self.name}' has no operator '{name}'; its operators are "
                f"{', '.join(self._operators) or 'none'}."
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._operators

    def consumers(self, name: str) -> tuple[Operator, ...]:
        """Return the operators that read the output of the operator `name`."""
        if self._consumers is None:
            consumers: dict[str, list[Operator]] = {}
            for operator in self._operators.values():
                for producer in dict.fromkeys(operator.inputs):
                    consumers.setdefault(producer, []).append(operator)
            self._consumers = {producer: tuple(readers) for producer, readers in consumers.items()}
        return self._consumers.get(name, ())

    def without_output(self) -> Dataflow:
        """Return a copy that computes everything and writes nothing, not even dead letters. It is used to measure."""
        copy = Dataflow(self.name)
        copy._operators = {name: _without_output(operator) for name, operator in self._operators.items()}
        copy._loops = dict(self._loops)
        return copy

    def with_only_input_of(self, name: str) -> Dataflow:
        """Return a copy with only the operators from which rows reach the operator `name`, without it."""
        copy = Dataflow(self.name)
        names = graph.ancestors(self._operators, self[name].inputs)
        copy._operators = {other: operator for other, operator in self._operators.items() if other in names}
        return copy

    def with_sources(self, sources: Mapping[str, Source]) -> Dataflow:
        """Return a copy with other declarations of these sources."""
        copy = Dataflow(self.name)
        copy._operators = {
            name: replace(operator, source=sources[name]) if name in sources else operator
            for name, operator in self._operators.items()
        }
        copy._loops = dict(self._loops)
        return copy

    @checked_types(DataflowError)
    def source(self, name: str, source: Source, *, watermark: tuple[str, str] | None = None) -> Stream:
        """Declare where rows come from.

        Args:
            name: Name of the source.
            source: `penstock.replay(...)`, `files(...)`, `backlog(...)`, `generate(...)`, `kafka(...)` or
                `spark_source(...)`.
            watermark: Column and delay of event time, as for `Stream.watermark`.

        Returns:
            The stream of its rows.

        Raises:
            DataflowError: The declaration is not allowed.
        """
        if not isinstance(source, Source):
            raise DataflowError(
                f"Source '{name}' is {source!r}, which is not a source; give it penstock.replay(...), "
                "penstock.files(...), penstock.backlog(...), penstock.generate(...), penstock.kafka(...) or "
                "penstock.spark_source(...)."
            )
        columns = None if isinstance(source, SparkSource) else schema_columns(source.schema)
        stream = self._add(Operator(name=name, kind=Kind.SOURCE, source=source, columns=columns))
        return stream.watermark(*watermark) if watermark else stream

    @checked_types(DataflowError)
    def stateless(
        self,
        name: str,
        fn: Callable[..., Any] | None = None,
        *,
        inputs: Sequence[Stream],
        fields: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        """Declare an operator that processes each row independently of all others.

        Args:
            name: Name of the operator.
            fn: Function of one DataFrame per input, or of their union. Without it, the output is the union.
            inputs: Streams that the operator reads.
            fields: Columns that the operator receives, if they are not known from its inputs.
            columns: Columns that the operator produces.
            selectivity: Expected rows out per row in, used until it has been measured.

        Returns:
            The stream of its output.

        Raises:
            DataflowError: The declaration is not allowed.
        """
        produced = column_names(name, "columns", columns)
        operator = Operator(
            name=name,
            kind=Kind.STATELESS,
            fn=fn,
            fields=_fields(name, fields),
            columns=produced,
            selectivity=selectivity,
        )
        operator = self._connected(operator, inputs)
        if fn is None and produced is None:
            operator = replace(operator, columns=self._shared_columns(inputs))
        return self._add(operator)

    @checked_types(DataflowError)
    def rows(
        self,
        name: str,
        fn: Callable[..., Any],
        schema: str | Struct,
        *,
        inputs: Sequence[Stream],
        fields: Iterable[str] | None = None,
        selectivity: float | None = None,
        threads: int | None = None,
        timeout_s: float | None = None,
        ordered: bool | str = True,
        keys: Sequence[str] | None = None,
        retries: int = 0,
        backoff_s: float = 0.1,
        client: Callable[[], Any] | None = None,
        dead_letters: bool = False,
    ) -> Stream:
        """Declare an operator that calls a Python function for each row.

        Args:
            name: Name of the operator.
            fn: Function of one row, a dict. It returns a dict, an iterable of dicts, or None to drop the row. Each dict
                must contain exactly the columns of the schema, with None for a missing value.
            schema: Columns of the output, as DDL text such as "user string, n bigint" or as a StructType.
            inputs: Streams that the operator reads.
            fields: Columns that the operator receives, if they are not known from its inputs.
            selectivity: Expected rows out per row in, used until it has been measured.
            threads: Calls in flight at the same time in each replica. The function then runs in threads, or as a
                coroutine if it is declared with `async def`. A plan can change the number. Without it, rows are
                processed one after the other.
            timeout_s: Time after which an attempt is given up and counts as failed.
            ordered: True keeps the order of all rows within a replica, "key" that of rows with equal `keys`, whose
                calls never overlap, and False none.
            keys: Columns of the input that determine the order, with ordered="key".
            retries: Attempts after a failed one.
            backoff_s: Pause before the first retry. It doubles with each further one.
            client: Function without arguments that creates a client. Each worker creates one, passes it to `fn` as the
                second argument, and closes it (`close` or `aclose`).
            dead_letters: Rows that fail go to the stream `dead_letters` of the result instead of failing the batch.

        Returns:
            The stream of its output. If dead letters are kept, it is read from the operator `<name>_results`, and
            its attribute `dead_letters` from `<name>_dead_letters`.

        Raises:
            DataflowError: The declaration is not allowed.
        """
        operator = Operator(name=name, kind=Kind.STATELESS, fields=_fields(name, fields), selectivity=selectivity)
        operator = self._connected(operator, inputs)
        if not callable(fn):
            raise DataflowError(f"Operator '{name}' has fn={fn!r}; it needs a function of one row.")
        check_parameters(fn, f"Operator '{name}'", "a row", *(["a client"] if client is not None else []))
        calls = concurrent_calls(
            name,
            fn,
            threads=threads,
            timeout_s=timeout_s,
            ordered=ordered,
            keys=keys,
            retries=retries,
            backoff_s=backoff_s,
            client=client,
            dead_letters=dead_letters,
        )
        if calls is not None and calls.keys:
            self._check_key_columns(name, calls.keys, inputs)
        function = RowFunction(fn=fn, schema=ddl(schema), calls=calls)
        stream = self._add(replace(operator, fn=function, columns=schema_columns(function.output_schema(name))))
        return self._with_dead_letters(stream, function) if dead_letters else stream

    def _with_dead_letters(self, both: Stream, function: RowFunction) -> Stream:
        """Return the results in a stream that contains dead letters as well, which is read by two operators."""
        columns = schema_columns(function.schema)
        results = self.stateless(
            f"{both.name}_results",
            lambda df: df.where(f"{DEAD_LETTER} is null").drop(DEAD_LETTER),
            inputs=[both],
            columns=columns,
        )
        results._dead_letters = self.stateless(
            f"{both.name}_dead_letters",
            lambda df: df.where(f"{DEAD_LETTER} is not null").select(f"{DEAD_LETTER}.*"),
            inputs=[both],
            columns=schema_columns(DEAD_LETTER_SCHEMA),
        )
        return results

    @checked_types(DataflowError)
    def keyed(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        keys: Sequence[str],
        inputs: Sequence[Stream],
        output_mode: str | None = None,
        columns: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        """Declare an operator whose state is partitioned by key: rows with equal keys are processed by one replica.

        Args:
            name: Name of the operator.
            fn: Function of one DataFrame per input, or of their union, with one stateful operation.
            keys: Columns that partition the state. They have the same names on all inputs.
            inputs: Streams that the operator reads.
            output_mode: "append" (each result once, when it is final), "update" (every change of a result) or
                "complete" (the whole result in every batch, for a sink that replaces the previous one). The default
                is "append" if a watermark is declared upstream, because only then Spark knows when a result is final,
                else "update".
            columns: Columns that the operator produces.
            selectivity: Expected rows out per row in, used until it has been measured.

        Returns:
            The stream of its output.

        Raises:
            DataflowError: The declaration is not allowed.
        """
        check_keys(name, keys)
        self._check_key_columns(name, keys, inputs)
        operator = Operator(
            name=name,
            kind=Kind.KEYED,
            fn=fn,
            keys=tuple(keys),
            output_mode=self._output_mode(name, output_mode, inputs),
            columns=column_names(name, "columns", columns),
            selectivity=selectivity,
        )
        return self._add(self._connected(operator, inputs))

    @checked_types(DataflowError)
    def global_state(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        inputs: Sequence[Stream],
        output_mode: str | None = None,
        columns: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        """Declare an operator with one state for all rows. It has one replica and a query of its own.

        Args:
            name: Name of the operator.
            fn: Function of one DataFrame per input, or of their union, with one stateful operation.
            inputs: Streams that the operator reads.
            output_mode: "append", "update" or "complete", as for `keyed`.
            columns: Columns that the operator produces.
            selectivity: Expected rows out per row in, used until it has been measured.

        Returns:
            The stream of its output.

        Raises:
            DataflowError: The declaration is not allowed.
        """
        operator = Operator(
            name=name,
            kind=Kind.GLOBAL_STATE,
            fn=fn,
            output_mode=self._output_mode(name, output_mode, inputs),
            columns=column_names(name, "columns", columns),
            selectivity=selectivity,
        )
        return self._add(self._connected(operator, inputs))

    @checked_types(DataflowError)
    def operator(
        self,
        name: str,
        instance: Any,
        *,
        inputs: Sequence[Stream],
        keys: Sequence[str] | None = None,
        outputs: int | Sequence[str] | None = None,
        global_state: bool | None = None,
        schema: Schemas | None = None,
        input_schemas: Schemas | None = None,
        limit: int = DEFAULT_LIMIT,
        overflow: str = "error",
        order: Sequence[str] = (),
        selectivity: float | None = None,
        **config: Any,
    ) -> Any:
        """Declare an operator with ports: an instance of a class that is decorated with `penstock.operator`.

        The properties that the class does not have are given here. An operator with keys has a state for each key and
        any number of replicas. Without keys, it is stateless, or has one state and one replica if
        `global_state=True`.

        Args:
            name: Name of the operator.
            instance: The instance. Each task has a copy of it, so `ctx.state` is the only place for state.
            inputs: The streams of the input ports, port 0 first.
            keys: Columns that partition the state. They have the same names on all inputs.
            outputs: Number of output ports, or a list with their names.
            global_state: Whether an operator without keys has one state for all rows.
            schema: Columns of the output, as DDL text or as a StructType; a list with one schema per output port.
            input_schemas: Columns that the input ports need, as a list with one schema per port.
            limit: Rows that may wait per key and port.
            overflow: Treatment of rows above the limit: "error", "drop oldest" or "drop newest".
            order: Columns by which the rows of a key are sorted within a batch. Without them, rows keep the order of
                their stream.
            selectivity: Expected rows out per row in, used until it has been measured.
            **config: Configuration that `schedule(config)` and `ctx.config` receive.

        Returns:
            The stream of its output; a tuple of streams if it has several output ports.

        Raises:
            DataflowError: The declaration is not allowed, for example because the schedule does not fit the ports.
        """
        given = spec_of_properties(
            f"Operator '{name}'",
            outputs=outputs,
            keys=keys,
            global_state=global_state,
            schema=schema,
            input_schemas=input_schemas,
        )
        operator = self._connected(Operator(name=name, kind=Kind.STATELESS, selectivity=selectivity), inputs)
        ports = port_operator(
            name, instance, given, inputs=len(inputs), limit=limit, overflow=overflow, order=order, config=config
        )
        if len(ports.outputs) > 1:
            for output in ports.outputs:
                self._check_unused(check_name("operator", output))
        self._check_key_columns(name, ports.keys, inputs)
        for stream in inputs:
            self._check_order_columns(name, ports.order, stream)
        for port, (stream, needed) in enumerate(zip(inputs, ports.input_schemas or (), strict=False)):
            check_input_columns(name, port, stream.name, self._columns(stream), needed)
        kind = Kind.KEYED if ports.keys else Kind.GLOBAL_STATE if ports.stateful else Kind.STATELESS
        stream = self._add(
            replace(
                operator,
                kind=kind,
                fn=ports,
                takes_each_input=len(inputs) > 1,
                keys=ports.keys,
                columns=schema_columns(ports.schemas[0]) if len(ports.schemas) == 1 else output_columns(ports),
                output_mode=OutputMode.APPEND if ports.stateful else None,
            )
        )
        if len(ports.outputs) == 1:
            return stream
        return tuple(
            self.stateless(output, rows_of_port(port), inputs=[stream], columns=schema_columns(schema))
            for port, (output, schema) in enumerate(zip(ports.outputs, ports.schemas, strict=True))
        )

    def sink(self, name: str, sink: Sink, *, inputs: Sequence[Stream]) -> None:
        """Declare where rows are written.

        Args:
            name: Name of the sink.
            sink: `penstock.parquet(...)`, `kafka(...)`, `memory()`, `noop()` or `foreach_batch(...)`.
            inputs: Streams that are written.

        Raises:
            DataflowError: The declaration is not allowed, for example because another sink writes to the same path.
        """
        if not isinstance(sink, Sink):
            raise DataflowError(
                f"Sink '{name}' is {sink!r}, which is not a sink; give it penstock.parquet(...), penstock.kafka(...), "
                "penstock.memory(), penstock.noop() or penstock.foreach_batch(...)."
            )
        if isinstance(sink, Parquet):
            for other in self._operators.values():
                if isinstance(other.sink, Parquet) and Path(other.sink.path).resolve() == Path(sink.path).resolve():
                    raise DataflowError(
                        f"Sinks '{other.name}' and '{name}' both write to '{sink.path}'; give each its own path."
                    )
        self._add(self._connected(Operator(name=name, kind=Kind.SINK, sink=sink), inputs))

    @checked_types(DataflowError)
    def feedback(self, name: str, *, schema: str | Struct) -> Stream:
        """Declare the open end of a loop. Use it as an input, then close the loop with `stream.feed(loop)`.

        Args:
            name: Name of the feedback stream.
            schema: Columns of the rows that come back, as DDL text such as "user string, n bigint" or as a StructType.

        Returns:
            The feedback stream.

        Raises:
            DataflowError: The name is taken, or the schema cannot be read.
        """
        text = ddl(schema)
        loop = Stream(self, check_name("feedback stream", name), columns=schema_columns(text), schema=text)
        self._check_unused(name)
        self._loops[name] = loop
        return loop

    def check(self) -> None:
        """Check that the dataflow is complete: it has a source and a sink, all streams are read, all loops are closed.

        Raises:
            DataflowError: The dataflow is incomplete, or it has a cycle that is not declared with `feedback`.
        """
        if not self._operators:
            raise DataflowError(f"Dataflow '{self.name}' is empty; declare a source, operators and a sink.")
        graph.refuse_cycles(self.name, self._operators.values())
        for loop in self._loops:
            raise DataflowError(f"Feedback stream '{loop}' is never closed; close it with stream.feed({loop}).")
        for kind in (Kind.SOURCE, Kind.SINK):
            if not any(operator.kind is kind for operator in self._operators.values()):
                raise DataflowError(f"Dataflow '{self.name}' has no {kind}; declare one.")
        for operator in self._operators.values():
            if operator.kind is not Kind.SINK and not self.consumers(operator.name):
                raise DataflowError(
                    f"No operator reads the output of '{operator.name}'; give it a sink, such as "
                    ".sink('out', penstock.noop())."
                )
            if operator.output_mode is OutputMode.COMPLETE:
                complete_results.check(self, operator)

    def _connected(self, operator: Operator, inputs: Sequence[Stream]) -> Operator:
        """Return the operator with its inputs, after checking what all kinds of operators have in common."""
        name, selectivity = operator.name, operator.selectivity
        if not inputs:
            raise DataflowError(f"Operator '{name}' has no input; give it one or more streams.")
        for stream in inputs:
            if not isinstance(stream, Stream) or stream.flow is not self:
                raise DataflowError(
                    f"An input of '{name}' is {stream!r}, which is not a stream of dataflow '{self.name}'; give a "
                    "stream "
                    "that this dataflow returned."
                )
        if len({stream.name for stream in inputs}) != len(inputs):
            raise DataflowError(f"Operator '{name}' has the same input twice; give each stream once.")
        if selectivity is not None and not (math.isfinite(selectivity) and selectivity >= 0):
            raise DataflowError(
                f"Operator '{name}' has selectivity={selectivity}; give the expected rows out per row in, 0 or more."
            )
        by_input = False
        if operator.fn is not None:
            if not callable(operator.fn):
                raise DataflowError(f"Operator '{name}' has fn={operator.fn!r}; it needs a function of a DataFrame.")
            by_input = takes_each_input(name, operator.fn, len(inputs))
        return replace(
            operator,
            inputs=tuple(stream.name for stream in inputs),
            feedback=frozenset(stream.name for stream in inputs if stream.schema is not None),
            takes_each_input=by_input,
            fields=operator.fields if operator.fields is not None else self._known_fields(inputs),
        )

    def _add(self, operator: Operator) -> Stream:
        check_name("operator", operator.name)
        self._check_unused(operator.name)
        self._put(operator)
        return Stream(self, operator.name)

    def _put(self, operator: Operator) -> None:
        self._operators[operator.name] = operator
        self._order = self._consumers = None

    def _check_unused(self, name: str) -> None:
        if name in self._operators or name in self._loops:
            raise DataflowError(f"Dataflow '{self.name}' already uses the name '{name}'; give another name.")

    def _check_order_columns(self, name: str, order: Sequence[str], stream: Stream) -> None:
        columns = self._columns(stream)
        missing = [column for column in order if columns is not None and column not in columns]
        if missing:
            raise DataflowError(
                f"Operator '{name}' has order={list(order)}, but its input '{stream.name}' has no column "
                f"'{missing[0]}'; its columns are {', '.join(columns or ())}."
            )

    def _check_key_columns(self, name: str, keys: Sequence[str], inputs: Sequence[Stream]) -> None:
        for stream in inputs:
            columns = self[stream.name].columns if stream.name in self else None
            missing = [key for key in keys if columns is not None and key not in columns]
            if missing:
                hint = "Compute it in a stateless operator before, with that name."
                if len(inputs) > 1:
                    hint = f"A key has the same name on all inputs: rename the column before '{name}'."
                raise DataflowError(
                    f"Keyed operator '{name}' is keyed by '{missing[0]}', which its input '{stream.name}' does not "
                    f"have; the columns of the input are {', '.join(columns or ())}. {hint}"
                )

    def _columns(self, stream: Stream) -> tuple[str, ...] | None:
        return self[stream.name].columns if stream.name in self else stream.columns

    def _shared_columns(self, inputs: Sequence[Stream]) -> tuple[str, ...] | None:
        """Return the columns of all inputs if they are known and equal."""
        distinct = {self._columns(stream) for stream in inputs}
        return distinct.pop() if len(distinct) == 1 else None

    def _known_fields(self, inputs: Sequence[Stream]) -> frozenset[str] | None:
        """Return the columns that every input has, or None if the columns of an input are not known."""
        common: frozenset[str] | None = None
        for stream in inputs:
            columns = self._columns(stream)
            if columns is None:
                return None
            common = frozenset(columns) if common is None else common & frozenset(columns)
        return common

    def _output_mode(self, name: str, output_mode: str | None, inputs: Sequence[Stream]) -> OutputMode:
        if output_mode is not None:
            try:
                return OutputMode(output_mode)
            except ValueError:
                raise DataflowError(
                    f"Operator '{name}' has output_mode={output_mode!r}; give 'append', 'update' or 'complete'."
                ) from None
        upstream = graph.ancestors(self._operators, [stream.name for stream in inputs])
        has_watermark = any(self._operators[ancestor].watermark for ancestor in upstream)
        return OutputMode.APPEND if has_watermark else OutputMode.UPDATE

    def _set_watermark(self, name: str, watermark: Watermark) -> None:
        operator = self[name]
        if operator.watermark is not None:
            raise DataflowError(
                f"Stream '{name}' already has a watermark, on '{operator.watermark.column}'; declare one watermark per "
                "stream."
            )
        if self.consumers(name):
            raise DataflowError(
                f"The watermark of '{name}' is declared after operators that read it; declare it before them."
            )
        if operator.columns is not None and watermark.column not in operator.columns:
            raise DataflowError(
                f"The watermark of '{name}' is on '{watermark.column}', which is not among its columns "
                f"{', '.join(operator.columns)}; give one of them."
            )
        if not _DELAY.fullmatch(watermark.delay):
            raise DataflowError(
                f"The watermark of '{name}' has the delay {watermark.delay!r}; write it like '10 minutes'."
            )
        self._put(replace(operator, watermark=watermark))

    def _close_loop(self, loop: Stream, producer: str) -> None:
        if loop.flow is not self or loop.schema is None or self._loops.get(loop.name) is not loop:
            raise DataflowError(
                f"'{loop.name}' is not an open feedback stream of dataflow '{self.name}'; declare it with "
                "flow.feedback(...) and feed it once."
            )
        if self[producer].kind is Kind.SINK:
            raise DataflowError(f"Sink '{producer}' has no output to feed back; feed the stream that it writes.")
        del self._loops[loop.name]
        self._put(replace(self[producer], feedback_schema=loop.schema))
        for operator in tuple(self._operators.values()):
            if loop.name in operator.inputs:
                inputs = tuple(producer if name == loop.name else name for name in operator.inputs)
                feedback = frozenset(producer if name == loop.name else name for name in operator.feedback)
                self._put(replace(operator, inputs=inputs, feedback=feedback))


def _without_output(operator: Operator) -> Operator:
    if operator.kind is Kind.SINK:
        return replace(operator, sink=Noop())
    if isinstance(operator.source, Kafka):
        return replace(operator, source=replace(operator.source, writes_dead_letters=False))
    return operator


def _fields(operator: str, fields: Iterable[str] | None) -> frozenset[str] | None:
    names = column_names(operator, "fields", fields)
    return None if names is None else frozenset(names)
