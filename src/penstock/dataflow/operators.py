"""Operators: the nodes of a dataflow, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.dataflow.sinks import Sink
from penstock.dataflow.sources import Source


class Kind(StrEnum):
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

    UPDATE = "update"  # every change of a result, as it happens
    APPEND = "append"  # each result once, when it can no longer change


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Event time on a stream: rows more than `delay` behind the latest `column` may be dropped."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFunction:
    """A plain Python function of one row (a dict): it returns a dict, an iterable of dicts, or None to drop it."""

    fn: Callable[[dict[str, Any]], Any]
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    name: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    feedback: frozenset[str] = frozenset()  # those of the inputs that close a loop
    fn: Callable[..., Any] | RowFunction | None = None
    takes_each_input: bool = False  # fn gets one DataFrame an input instead of their union
    keys: tuple[str, ...] = ()
    fields: frozenset[str] | None = None  # the columns it is known to receive; None: not declared
    columns: tuple[str, ...] | None = None  # the columns it is known to produce; None: only Spark knows
    output_mode: OutputMode | None = None
    selectivity: float | None = None
    watermark: Watermark | None = None
    feedback_schema: str | None = None  # the schema of this operator's output where a loop needs it beforehand
    source: Source | None = None
    sink: Sink | None = None
