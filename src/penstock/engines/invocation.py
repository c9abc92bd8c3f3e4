"""The invocations of an operator class: the context that it receives, and the turn of a key.

A turn follows the arrival of rows: the operator is invoked until its schedule is not satisfied any more. Afterwards
the limit of waiting rows applies. The module is used by Spark and by the in-memory runner.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from penstock.dataflow.code_location import written_at
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.function_errors import user_function_error
from penstock.dataflow.operator_class import Overflow, PortOperator
from penstock.dataflow.schedule import NoSchedule, PeriodicSchedule, RowSchedule
from penstock.engines.scheduling import ANY, codes, next_invocation
from penstock.engines.stored_state import StateError, state_of_text, state_text

Row = dict[str, Any]
_COPIED = (list, dict, set)


class InvocationError(PenstockError):
    """An operator class used its context in a way that is not possible, or too many rows wait."""


class KeyState:
    """The state of a key, which is loaded when it is used."""

    def __init__(self, load: Callable[[], str | None]) -> None:
        self._load = load
        self._text: str | None = None
        self._state: dict[str, Any] | None = None

    def mapping(self) -> dict[str, Any]:
        if self._state is None:
            self._text = self._load()
            self._state = {} if self._text is None else state_of_text(self._text)
        return self._state

    def save(self, store: Callable[[str | None], None], subject: str) -> None:
        """Store the state if it has changed; an empty one is stored as None.

        Raises:
            StateError: A value has a type that cannot be stored. The message names the `subject`.
        """
        if self._state is None:
            return
        try:
            text = state_text(self._state) if self._state else None
        except StateError as error:
            raise StateError(f"{subject} cannot store its state: {error}") from None
        except RecursionError:
            raise StateError(
                f"{subject} cannot store its state: a value contains itself, or values are nested too deeply"
            ) from None
        if text != self._text:
            store(text)
            self._text = text


class Context:
    """The input of an invocation, and the methods by which it emits rows.

    Attributes:
        key: The values of the key columns; empty without keys.
        config: The configuration that was given to `Dataflow.operator`.
        inputs: The number of input ports.
        port: The port whose rows the invocation received, if any port is enough; otherwise None.
    """

    __slots__ = ("_emitted", "_now_ms", "_outputs", "_rows", "_state", "config", "inputs", "key", "port")

    def __init__(self, operator: PortOperator, key: Mapping[str, Any], state: KeyState | None) -> None:
        self.key = key
        self.config = operator.config
        self.inputs = operator.inputs
        self.port: int | None = None
        self._outputs = len(operator.outputs)
        self._state = state
        self._rows: Sequence[list[Row]] = ()
        self._emitted: list[tuple[int, Row]] = []
        self._now_ms: int | None = None

    def rows(self, port: int = 0) -> list[Row]:
        """Return the rows of an input port, as dicts, in the order in which they arrived."""
        if not 0 <= port < len(self._rows):
            raise InvocationError(f"ctx.rows({port!r}): the ports are 0 to {len(self._rows) - 1}.")
        return self._rows[port]

    @property
    def row(self) -> Row:
        """The row of an invocation that received exactly one."""
        rows = [row for port in self._rows for row in port]
        if len(rows) != 1:
            raise InvocationError(f"ctx.row: the invocation received {len(rows)} rows, not one; use ctx.rows(port).")
        return rows[0]

    @property
    def state(self) -> dict[str, Any]:
        """The state of the key: a dict that the operator changes. An empty state takes no space."""
        if self._state is None:
            raise InvocationError("ctx.state: the operator is stateless; give keys=[...], or global_state=True.")
        return self._state.mapping()

    @property
    def now(self) -> datetime:
        """The time of a periodic invocation, in UTC."""
        if self._now_ms is None:
            raise InvocationError("ctx.now: only an operator that is scheduled with penstock.every(...) has a time.")
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def emit(self, row: Mapping[str, Any], port: int = 0) -> None:
        """Emit a row to an output port. The row is copied."""
        if not isinstance(row, Mapping):
            raise InvocationError(f"ctx.emit({row!r:.60}): a row is a dict with the columns of the schema.")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < self._outputs:
            raise InvocationError(f"ctx.emit(port={port!r}): the output ports are 0 to {self._outputs - 1}.")
        emitted = dict(row)
        for name, value in emitted.items():
            if isinstance(value, _COPIED):  # the operator may change it later, for example in its state
                emitted[name] = copy.deepcopy(value)
        self._emitted.append((port, emitted))


class RowQueue(Protocol):
    """The rows of a key that wait at a port, the oldest first."""

    def __len__(self) -> int: ...

    def take(self, rows: int) -> list[Row]:
        """Remove and return the oldest rows."""
        ...

    def drop(self, rows: int, overflow: Overflow) -> None:
        """Remove the oldest or the newest rows. Nothing is taken afterwards."""
        ...


class RowList:
    """Waiting rows in memory."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)
        self._taken = 0

    def __len__(self) -> int:
        return len(self.rows) - self._taken

    def take(self, rows: int) -> list[Row]:
        first, self._taken = self._taken, self._taken + rows
        return self.rows[first : self._taken]

    def drop(self, rows: int, overflow: Overflow) -> None:
        if overflow is Overflow.DROP_OLDEST:
            self._taken += rows
        else:
            del self.rows[len(self.rows) - rows :]

    def remaining(self) -> list[Row]:
        return self.rows[self._taken :]


class InvocationResult(NamedTuple):
    """The result of a turn."""

    emitted: list[tuple[int, Row]]  # (output port, row)
    dropped: int  # rows that did not fit into the limit


class Invocations:
    """Invokes one instance of an operator class."""

    def __init__(self, name: str, operator: PortOperator) -> None:
        self._name = name
        self._operator = operator
        self._invoke = operator.instance.invoke
        schedule = operator.schedule
        self._codes = codes(schedule) if isinstance(schedule, RowSchedule) else None
        self.is_periodic = isinstance(schedule, PeriodicSchedule)
        self.discards = isinstance(schedule, NoSchedule)
        self._period_ms = round(schedule.seconds * 1000) if isinstance(schedule, PeriodicSchedule) else 0

    def subject(self, key: Mapping[str, Any]) -> str:
        """Return the operator and the key, for a message."""
        return f"operator '{self._name}'" + (f" with key {dict(key)}" if key else "")

    def next_tick_ms(self, after_ms: int) -> int:
        """Return the first time of a periodic invocation after this time."""
        return (after_ms // self._period_ms + 1) * self._period_ms

    def last_tick_ms(self, at_ms: int) -> int:
        """Return the last time of a periodic invocation that is not after this time."""
        return at_ms // self._period_ms * self._period_ms

    def turn(
        self,
        key: Mapping[str, Any],
        waiting: Sequence[RowQueue],
        state: KeyState | None,
        tick_ms: int | None = None,
    ) -> InvocationResult:
        """Invoke the operator as often as its schedule says, and remove the rows that it received from `waiting`.

        Args:
            key: The values of the key columns.
            waiting: Waiting rows by port.
            state: The state of the key; None for a stateless operator.
            tick_ms: The time of a periodic invocation that is due.

        Raises:
            UserFunctionError: The operator failed.
            InvocationError: More rows wait than the limit allows, and the overflow is an error.
        """
        context = Context(self._operator, key, state)
        if self._codes is not None:
            self._invoke_by_rows(context, waiting, *self._codes)
        elif tick_ms is not None:
            context._now_ms = tick_ms
            context._rows = [queue.take(len(queue)) for queue in waiting]
            self._call(context)
        elif self.discards:
            for queue in waiting:
                queue.take(len(queue))
        return InvocationResult(context._emitted, self._apply_limit(key, waiting))

    def _invoke_by_rows(self, context: Context, waiting: Sequence[RowQueue], ports: int, count: int) -> None:
        required = self._operator.required
        counts, taken = list(map(len, waiting)), [0] * len(waiting)
        while next_invocation(ports, count, required, counts, taken):
            context._rows = [queue.take(rows) for queue, rows in zip(waiting, taken, strict=True)]
            if ports == ANY:
                context.port = next(port for port, rows in enumerate(taken) if rows)
            self._call(context)
            for port, rows in enumerate(taken):
                counts[port] -= rows

    def _call(self, context: Context) -> None:
        try:
            returned = self._invoke(context)
        except Exception as error:
            row: Any = {port: rows for port, rows in enumerate(context._rows) if rows}
            if len(row) == 1:
                (rows,) = row.values()
                row = rows[0] if len(rows) == 1 else rows
            raise user_function_error(self.subject(context.key), self._invoke, error, row=row or None) from error
        if returned is not None:
            raise InvocationError(
                f"{self.subject(context.key)}{written_at(self._invoke)} returns {returned!r:.60}; a method invoke "
                "returns nothing and emits rows with ctx.emit(row)"
            )

    def _apply_limit(self, key: Mapping[str, Any], waiting: Sequence[RowQueue]) -> int:
        operator, dropped = self._operator, 0
        for port, queue in enumerate(waiting):
            excess = len(queue) - operator.limit
            if excess <= 0:
                continue
            if operator.overflow is Overflow.ERROR:
                of_key = f" for key {dict(key)}" if key else ""
                raise InvocationError(
                    f"{len(queue)} rows wait at port {port} of operator '{self._name}'{of_key}, but limit="
                    f"{operator.limit}; raise the limit, or give overflow='drop oldest' or 'drop newest'"
                )
            queue.drop(excess, operator.overflow)
            dropped += excess
        return dropped
