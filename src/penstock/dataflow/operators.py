"""Operators: the nodes of a dataflow, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.dataflow.concurrent_calls import ConcurrentCalls, schema_with_dead_letters
from penstock.dataflow.operator_class import PortOperator
from penstock.dataflow.sinks import Sink
from penstock.dataflow.sources import Source


class Kind(StrEnum):
    """The kind of an operator, which determines how it can be replicated."""

    SOURCE = "source"
    STATELESS = "stateless"
    KEYED = "keyed"  # state partitioned by key: any number of replicas, each with its own keys
    GLOBAL_STATE = "global_state"  # one state for all rows, hence one replica
    SINK = "sink"

    @property
    def has_state(self) -> bool:
        return self in (Kind.KEYED, Kind.GLOBAL_STATE)


class OutputMode(StrEnum):
    """When an operator with state emits a result, as in Structured Streaming."""

    UPDATE = "update"  # at every change of the result
    APPEND = "append"  # once, when the result can no longer change
    COMPLETE = "complete"  # the whole result in every batch, which replaces the previous one


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Event time of a stream: rows more than `delay` behind the latest `column` may be dropped."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFunction:
    """A Python function of one row (a dict). It returns a dict, an iterable of dicts, or None to drop the row."""

    fn: Callable[..., Any]
    schema: str  # schema of the rows that the function returns
    calls: ConcurrentCalls | None = None  # None: one row after the other

    def output_schema(self, operator: str) -> str:
        """Return the schema of the operator's output, which may contain dead letters beside the results."""
        if self.calls is not None and self.calls.dead_letters:
            return schema_with_dead_letters(operator, self.schema)
        return self.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A node of a dataflow, as declared."""

    name: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    feedback: frozenset[str] = frozenset()  # the inputs that close a loop
    fn: Callable[..., Any] | RowFunction | PortOperator | None = None
    takes_each_input: bool = False  # fn takes one DataFrame per input instead of their union
    keys: tuple[str, ...] = ()
    fields: frozenset[str] | None = None  # the columns it receives; None if they are not declared
    columns: tuple[str, ...] | None = None  # the columns it produces; None if only Spark knows them
    output_mode: OutputMode | None = None
    selectivity: float | None = None
    watermark: Watermark | None = None
    feedback_schema: str | None = None  # schema of the output, if a loop needs it before the query is compiled
    source: Source | None = None
    sink: Sink | None = None

    @property
    def calls(self) -> ConcurrentCalls | None:
        """How it calls its function concurrently; None if it does not."""
        return self.fn.calls if isinstance(self.fn, RowFunction) else None
