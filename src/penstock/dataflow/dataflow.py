"""Dataflow and Stream: how a user declares a pipeline. Every rule is checked as it is declared."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.dataflow import graph
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.operators import Kind, Operator, OutputMode, RowFunction, Watermark
from penstock.dataflow.sinks import Noop, Parquet, Sink
from penstock.dataflow.sources import Source, SparkSource
from penstock.dataflow.stream import Stream

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_DELAY = re.compile(r"\s*\d+(\.\d+)?\s+(microsecond|millisecond|second|minute|hour|day|week|month|year)s?\s*", re.I)


class Dataflow:
    """A named graph of operators.

    >>> import penstock
    >>> flow = penstock.Dataflow("evens")
    >>> numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10))
    >>> numbers.stateless("even", lambda df: df.where("n % 2 = 0")).sink("out", penstock.memory())
    >>> [operator.name for operator in flow.operators]
    ['numbers', 'even', 'out']
    """

    def __init__(self, name: str) -> None:
        self.name = _checked_name("dataflow", name)
        self._operators: dict[str, Operator] = {}
        self._loops: dict[str, Stream] = {}  # feedback streams declared and not closed yet
        # Worked out when first asked for, and again after the next declaration: plans are checked every few seconds.
        self._order: tuple[Operator, ...] | None = None
        self._consumers: dict[str, tuple[Operator, ...]] | None = None

    @property
    def operators(self) -> tuple[Operator, ...]:
        """In an order in which every operator comes after its inputs, loops aside."""
        if self._order is None:
            self._order = graph.topological(self._operators.values())
        return self._order

    def __getitem__(self, name: str) -> Operator:
        try:
            return self._operators[name]
        except KeyError:
            raise DataflowError(
                f"dataflow '{self.name}' has no operator '{name}'; it has {', '.join(self._operators) or 'none'}"
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._operators

    def consumers(self, name: str) -> tuple[Operator, ...]:
        if self._consumers is None:
            found: dict[str, list[Operator]] = {}
            for operator in self._operators.values():
                for one in dict.fromkeys(operator.inputs):
                    found.setdefault(one, []).append(operator)
            self._consumers = {one: tuple(readers) for one, readers in found.items()}
        return self._consumers.get(name, ())

    def without_output(self) -> Dataflow:
        """The same graph, which computes everything and writes nothing, dead letters included: for measuring."""
        copy = Dataflow(self.name)
        copy._operators = {name: _silent(one) for name, one in self._operators.items()}
        copy._loops = dict(self._loops)
        return copy

    def source(self, name: str, source: Source, *, watermark: tuple[str, str] | None = None) -> Stream:
        if not isinstance(source, Source):
            raise DataflowError(
                f"source '{name}' is given {source!r}; give it penstock.replay(...), penstock.files(...), "
                "penstock.backlog(...), penstock.generate(...), penstock.kafka(...) or penstock.spark_source(...)"
            )
        columns = None if isinstance(source, SparkSource) else schema_columns(source.schema)
        stream = self._add(Operator(name=name, kind=Kind.SOURCE, source=source, columns=columns))
        return stream.watermark(*watermark) if watermark else stream

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
        """A function of each row alone. Without `fn` it is the plain union of its inputs."""
        produced = tuple(columns) if columns is not None else (self._shared_columns(inputs) if fn is None else None)
        return self._add(
            self._operator(name, Kind.STATELESS, fn, inputs, selectivity=selectivity, columns=produced, fields=fields)
        )

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
        """Partitioned state: rows with equal keys meet in one replica.

        `output_mode` is "append" (each result once, final) or "update" (every change); by default "append" where a
        watermark was declared upstream, since only then does Spark know when a result is final, else "update".
        """
        if isinstance(keys, str):
            raise DataflowError(f"keyed operator '{name}' has keys={keys!r}; give a list, keys=[{keys!r}]")
        if not keys:
            raise DataflowError(
                f"keyed operator '{name}' has no keys; name the columns it is partitioned by, keys=['user'], or "
                "declare it with global_state if its state cannot be partitioned"
            )
        if len(set(keys)) != len(keys):
            raise DataflowError(f"keyed operator '{name}' has keys {list(keys)}: each key is named once")
        for stream in inputs:
            known = self[stream.name].columns if stream.name in self else None
            missing = [key for key in keys if known is not None and key not in known]
            if missing:
                one_name = f"; a key has one name on every input: rename the column before '{name}'"
                raise DataflowError(
                    f"keyed operator '{name}' is keyed by '{missing[0]}', which its input '{stream.name}' does not "
                    f"have; its columns are {', '.join(known or ())}{one_name if len(inputs) > 1 else ''}"
                )
        operator = self._operator(
            name,
            Kind.KEYED,
            fn,
            inputs,
            selectivity=selectivity,
            columns=columns,
            output_mode=self._output_mode(name, output_mode, inputs),
        )
        return self._add(replace(operator, keys=tuple(keys)))

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
        """One global state, hence one replica: the plan cuts it off so that it holds up nobody else."""
        return self._add(
            self._operator(
                name,
                Kind.GLOBAL_STATE,
                fn,
                inputs,
                selectivity=selectivity,
                columns=columns,
                output_mode=self._output_mode(name, output_mode, inputs),
            )
        )

    def rows(
        self,
        name: str,
        fn: Callable[[dict[str, Any]], Any],
        *,
        schema: str,
        inputs: Sequence[Stream],
        fields: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        """A plain Python function of one row (a dict): returns a dict, an iterable of dicts, or None to drop it.

        A dict has each column of the schema and no other, None where it has no value.
        """
        operator = self._operator(name, Kind.STATELESS, None, inputs, selectivity=selectivity, fields=fields)
        if not callable(fn):
            raise DataflowError(f"operator '{name}' is given {fn!r}; it needs a function of one row")
        return self._add(replace(operator, fn=RowFunction(fn=fn, schema=schema), columns=schema_columns(schema)))

    def sink(self, name: str, sink: Sink, *, inputs: Sequence[Stream]) -> None:
        if not isinstance(sink, Sink):
            raise DataflowError(
                f"sink '{name}' is given {sink!r}; give it penstock.parquet(...), penstock.kafka(...), "
                "penstock.memory(), penstock.noop() or penstock.foreach_batch(...)"
            )
        if isinstance(sink, Parquet):
            for other in self._operators.values():
                if isinstance(other.sink, Parquet) and Path(other.sink.path).resolve() == Path(sink.path).resolve():
                    raise DataflowError(
                        f"sinks '{other.name}' and '{name}' both write to '{sink.path}'; give each its own path"
                    )
        self._add(replace(self._operator(name, Kind.SINK, None, inputs), sink=sink))

    def feedback(self, name: str, *, schema: str) -> Stream:
        """The open end of a loop: use it as an input, then close it with `stream.feed(loop)`."""
        loop = Stream(self, _checked_name("feedback stream", name), columns=schema_columns(schema), schema=schema)
        if name in self._loops or name in self._operators:
            raise DataflowError(f"the name '{name}' is taken; give the feedback stream another")
        self._loops[name] = loop
        return loop

    def check(self) -> None:
        """What can only be seen on the whole: something flows in, everything flows out, loops are closed."""
        if not self._operators:
            raise DataflowError(f"dataflow '{self.name}' is empty; declare a source, operators and a sink")
        graph.refuse_cycles(self.name, self._operators.values())
        for loop in self._loops:
            raise DataflowError(f"feedback stream '{loop}' is never closed; close it with stream.feed({loop})")
        for kind in (Kind.SOURCE, Kind.SINK):
            if not any(operator.kind is kind for operator in self._operators.values()):
                raise DataflowError(f"dataflow '{self.name}' has no {kind}; declare one")
        for operator in self._operators.values():
            if operator.kind is not Kind.SINK and not self.consumers(operator.name):
                raise DataflowError(
                    f"nothing consumes '{operator.name}'; give it a sink, such as .sink('out', penstock.noop())"
                )

    # ---- what the declarations share

    def _operator(
        self,
        name: str,
        kind: Kind,
        fn: Callable[..., Any] | None,
        inputs: Sequence[Stream],
        *,
        selectivity: float | None = None,
        columns: Iterable[str] | None = None,
        fields: Iterable[str] | None = None,
        output_mode: OutputMode | None = None,
    ) -> Operator:
        if not inputs:
            raise DataflowError(f"operator '{name}' has no input; give it one or more streams")
        for stream in inputs:
            if not isinstance(stream, Stream) or stream.flow is not self:
                raise DataflowError(f"an input of '{name}' is not a stream of dataflow '{self.name}': {stream!r}")
        if len({stream.name for stream in inputs}) != len(inputs):
            raise DataflowError(f"operator '{name}' names one input twice; name each once")
        if selectivity is not None and not (math.isfinite(selectivity) and selectivity >= 0):
            raise DataflowError(f"operator '{name}' has selectivity={selectivity}: rows out per row in, 0 or more")
        if isinstance(fields, str) or isinstance(columns, str):
            raise DataflowError(f"operator '{name}': fields and columns are lists of names")
        takes_each = False
        if fn is not None:
            if not callable(fn):
                raise DataflowError(f"operator '{name}' is given {fn!r}; it needs a function of a DataFrame")
            takes_each = _takes_each_input(name, fn, len(inputs))
        return Operator(
            name=name,
            kind=kind,
            inputs=tuple(stream.name for stream in inputs),
            feedback=frozenset(stream.name for stream in inputs if stream.schema is not None),
            fn=fn,
            takes_each_input=takes_each,
            fields=frozenset(fields) if fields is not None else _known_fields(self, inputs),
            columns=tuple(columns) if columns is not None else None,
            selectivity=selectivity,
            output_mode=output_mode,
        )

    def _add(self, operator: Operator) -> Stream:
        _checked_name("operator", operator.name)
        if operator.name in self._operators or operator.name in self._loops:
            raise DataflowError(f"the name '{operator.name}' is taken in dataflow '{self.name}'; give another")
        self._put(operator)
        return Stream(self, operator.name)

    def _put(self, operator: Operator) -> None:
        self._operators[operator.name] = operator
        self._order = self._consumers = None

    def _shared_columns(self, inputs: Sequence[Stream]) -> tuple[str, ...] | None:
        known = {self[stream.name].columns if stream.name in self else stream.columns for stream in inputs}
        return known.pop() if len(known) == 1 else None

    def _output_mode(self, name: str, output_mode: str | None, inputs: Sequence[Stream]) -> OutputMode:
        if output_mode is not None:
            try:
                return OutputMode(output_mode)
            except ValueError:
                raise DataflowError(
                    f"operator '{name}' has output_mode={output_mode!r}; give 'append' or 'update'"
                ) from None
        upstream = graph.ancestors(self._operators, [stream.name for stream in inputs])
        return OutputMode.APPEND if any(self._operators[one].watermark for one in upstream) else OutputMode.UPDATE

    def _set_watermark(self, name: str, watermark: Watermark) -> None:
        operator = self[name]
        if operator.watermark is not None:
            raise DataflowError(f"stream '{name}' has a watermark on '{operator.watermark.column}' already")
        if self.consumers(name):
            raise DataflowError(f"declare the watermark of '{name}' before the operators that read it")
        if operator.columns is not None and watermark.column not in operator.columns:
            raise DataflowError(
                f"the watermark of '{name}' is on '{watermark.column}', which is not among its columns "
                f"{', '.join(operator.columns)}"
            )
        if not _DELAY.fullmatch(watermark.delay):
            raise DataflowError(f"watermark delay {watermark.delay!r}: write it like '10 minutes'")
        self._put(replace(operator, watermark=watermark))

    def _close(self, loop: Stream, producer: str) -> None:
        if loop.flow is not self or loop.schema is None or self._loops.get(loop.name) is not loop:
            raise DataflowError(f"'{loop.name}' is not an open feedback stream of dataflow '{self.name}'")
        if self[producer].kind is Kind.SINK:
            raise DataflowError(f"sink '{producer}' has no output to feed back")
        del self._loops[loop.name]
        self._put(replace(self[producer], feedback_schema=loop.schema))
        for operator in tuple(self._operators.values()):
            if loop.name in operator.inputs:
                inputs = tuple(producer if one == loop.name else one for one in operator.inputs)
                feedback = frozenset(producer if one == loop.name else one for one in operator.feedback)
                self._put(replace(operator, inputs=inputs, feedback=feedback))


def schema_columns(schema: str) -> tuple[str, ...]:
    """The column names of a DDL schema such as 'user string, at timestamp'.

    >>> schema_columns("user string, price decimal(10, 2), tags array<struct<a: int, b: int>>")
    ('user', 'price', 'tags')
    """
    names, depth, field = [], 0, ""
    for character in schema + ",":
        depth += character in "(<"
        depth -= character in ")>"
        if character == "," and depth == 0:
            name = re.match(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s*\S", field)
            if name is None:
                raise DataflowError(f"schema={schema!r} is not a list of 'name type'; write 'user string, n bigint'")
            names.append(name[1] or name[2])
            field = ""
        else:
            field += character
    return tuple(names)


def _silent(operator: Operator) -> Operator:
    if operator.kind is Kind.SINK:
        return replace(operator, sink=Noop())
    if isinstance(operator.source, Kafka):
        return replace(operator, source=replace(operator.source, silent=True))
    return operator


def _checked_name(what: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DataflowError(f"{what} name {name!r}: use a letter, then letters, digits and underscores")
    return name


def _known_fields(flow: Dataflow, inputs: Sequence[Stream]) -> frozenset[str] | None:
    known = [flow[stream.name].columns if stream.name in flow else stream.columns for stream in inputs]
    return frozenset.intersection(*map(frozenset, known)) if all(one is not None for one in known) else None  # type: ignore[arg-type]


def _takes_each_input(name: str, fn: Callable[..., Any], inputs: int) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return inputs > 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    most = needed + sum(p.default is None for p in positional)  # any other default is no DataFrame to come
    if needed <= inputs <= most or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return inputs > 1
    if needed <= 1 <= len(positional):
        return False
    raise DataflowError(
        f"the function of '{name}' takes {needed} DataFrames but the operator has {inputs} input(s); "
        f"it takes {inputs}, or 1 (their union)"
    )
