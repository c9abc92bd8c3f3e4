"""Run an operator class in memory, without Spark: for tests of the class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.dataflow.ddl import Struct
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.operator_class import (
    DEFAULT_LIMIT,
    PortOperator,
    port_operator,
    spec_of_properties,
)
from penstock.engines.invocation import Invocations, KeyState, Row, RowList


class OperatorRunner:
    """Invokes an instance of an operator class for batches of rows, as a run does.

    State is stored as text after each batch, so that a value that cannot be stored is refused here, too.

    Args:
        instance: The instance.
        inputs: Number of input ports, if the class does not have it.
        keys: Columns that partition the state, if the class does not have them.
        outputs: Output ports, if the class does not have them.
        global_state: Whether an operator without keys has one state for all rows, if the class does not say so.
        schema: Schema of the output, if the class does not have it.
        limit: Rows that may wait per key and port.
        overflow: Treatment of rows above the limit, as for `Dataflow.operator`.
        **config: Configuration of the operator.

    Attributes:
        dropped: Rows that were dropped because of the limit.

    Raises:
        DataflowError: The properties do not fit each other.

    >>> import penstock
    >>> runner = OperatorRunner(penstock.operators.Barrier(), inputs=2, keys=["k"], schema="k int")
    >>> runner.feed([{"k": 1}, {"k": 2}], [{"k": 2}])
    [{'k': 2}]
    >>> runner.waiting({"k": 1})
    [[{'k': 1}], []]
    """

    def __init__(
        self,
        instance: Any,
        *,
        inputs: int | None = None,
        keys: Sequence[str] | None = None,
        outputs: int | Sequence[str] | None = None,
        global_state: bool | None = None,
        schema: str | Struct | Sequence[str | Struct] | None = None,
        limit: int = DEFAULT_LIMIT,
        overflow: str = "error",
        **config: Any,
    ) -> None:
        given = spec_of_properties(
            "OperatorRunner", inputs=inputs, outputs=outputs, keys=keys, global_state=global_state, schema=schema
        )
        of_class = getattr(type(instance), "__penstock_operator__", None)
        ports = inputs or (of_class.inputs if of_class is not None and of_class.inputs else 1)
        self._operator: PortOperator = port_operator(
            "operator", instance, given, inputs=ports, limit=limit, overflow=overflow, order=(), config=config
        )
        self._invocations = Invocations("operator", self._operator)
        self._waiting: dict[tuple[Any, ...], list[list[Row]]] = {}
        self._states: dict[tuple[Any, ...], str] = {}
        self.dropped = 0

    def feed(self, *ports: Iterable[Mapping[str, Any]]) -> Any:
        """Process one batch of rows: one argument per input port.

        Returns:
            The emitted rows; a tuple with a list per output port if there are several.

        Raises:
            DataflowError: The number of ports is wrong, or a row lacks a key.
            penstock.dataflow.function_errors.UserFunctionError: The operator failed.
        """
        operator = self._operator
        if len(ports) != operator.inputs:
            raise DataflowError(f"feed() is given {len(ports)} port(s), but the operator has {operator.inputs}.")
        arrived: dict[tuple[Any, ...], list[list[Row]]] = {}
        for port, rows in enumerate(ports):
            for row in rows:
                missing = [key for key in operator.keys if key not in row]
                if missing:
                    raise DataflowError(f"The row {dict(row)!r:.80} lacks the key '{missing[0]}'.")
                key = tuple(row[name] for name in operator.keys)
                arrived.setdefault(key, [[] for _ in ports])[port].append(dict(row))
        emitted: list[tuple[int, Row]] = []
        for key, new in arrived.items():
            emitted += self._turn(key, new, None)
        return self._by_port(emitted)

    def tick(self, at_s: float) -> Any:
        """Process a periodic invocation of all keys that have rows or state.

        Args:
            at_s: The time, in seconds since 1970; `ctx.now` is the last multiple of the period before it.

        Returns:
            The emitted rows, as from `feed`.

        Raises:
            DataflowError: The operator is not periodic.
        """
        if not self._invocations.is_periodic:
            raise DataflowError("tick() needs an operator that is scheduled with penstock.every(...).")
        tick_ms = self._invocations.last_tick_ms(round(at_s * 1000))
        emitted: list[tuple[int, Row]] = []
        for key in dict.fromkeys([*self._waiting, *self._states]):
            emitted += self._turn(key, [[] for _ in range(self._operator.inputs)], tick_ms)
        return self._by_port(emitted)

    def state(self, key: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the state of a key; an empty dict if there is none."""
        return dict(self._state_of(self._key(key)).mapping())

    def waiting(self, key: Mapping[str, Any] | None = None) -> list[list[Row]]:
        """Return the rows of a key that wait, by input port."""
        return self._waiting.get(self._key(key)) or [[] for _ in range(self._operator.inputs)]

    def _turn(self, key: tuple[Any, ...], new: list[list[Row]], tick_ms: int | None) -> list[tuple[int, Row]]:
        before = self._waiting.pop(key, None) or [[] for _ in new]
        queues = [RowList([*old, *rows]) for old, rows in zip(before, new, strict=True)]
        state = self._state_of(key) if self._operator.stateful else None
        values = dict(zip(self._operator.keys, key, strict=True))
        turn = self._invocations.turn(values, queues, state, tick_ms)
        self.dropped += turn.dropped
        left = [queue.remaining() for queue in queues]
        if any(left):
            self._waiting[key] = left
        if state is not None:
            state.save(lambda text: self._store(key, text), self._invocations.subject(values))
        return turn.emitted

    def _state_of(self, key: tuple[Any, ...]) -> KeyState:
        return KeyState(lambda: self._states.get(key))

    def _store(self, key: tuple[Any, ...], text: str | None) -> None:
        if text is None:
            self._states.pop(key, None)
        else:
            self._states[key] = text

    def _key(self, key: Mapping[str, Any] | None) -> tuple[Any, ...]:
        return tuple((key or {})[name] for name in self._operator.keys)

    def _by_port(self, emitted: list[tuple[int, Row]]) -> Any:
        ports = tuple([row for to, row in emitted if to == port] for port in range(len(self._operator.outputs)))
        return ports if len(ports) > 1 else ports[0]
