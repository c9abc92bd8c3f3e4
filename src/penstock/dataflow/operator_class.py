"""Operator classes: operators with ports, a schedule and state, written by users (JPDC 2020, section 3.1).

The properties of an operator may be given when its class is written, with the decorator `operator`, or when a dataflow
is built, with `Dataflow.operator`. A property that is given in both places must be the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from penstock.dataflow.code_location import failing_line, source_file, written_at
from penstock.dataflow.ddl import Struct, ddl
from penstock.dataflow.declaration import check_keys, check_name, schema_columns
from penstock.dataflow.errors import DataflowError, PenstockError
from penstock.dataflow.schedule import (
    NoSchedule,
    PeriodicSchedule,
    Ports,
    RowSchedule,
    Schedule,
    when_any,
)

Schemas = str | Struct | Sequence[str | Struct]

DEFAULT_LIMIT = 10_000
PORT = "__penstock_port"  # column with the output port of a row, if an operator has several
_SPEC = "__penstock_operator__"


class Overflow(StrEnum):
    """Treatment of rows that arrive at a port while it has as many waiting rows as its limit allows."""

    ERROR = "error"
    DROP_OLDEST = "drop oldest"
    DROP_NEWEST = "drop newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """Properties of an operator class. None: not given."""

    inputs: int | None = None
    outputs: int | tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    global_state: bool | None = None
    needs_state: bool | None = None
    schema: tuple[str, ...] | None = None  # one schema for all output ports, or one for each
    input_schemas: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOperator:
    """An operator class with all of its properties, as part of a dataflow."""

    instance: Any
    schedule: Schedule
    required: tuple[int, ...]  # rows that each input port needs; empty without a row schedule
    inputs: int
    outputs: tuple[str, ...]  # names of the streams of its output ports
    schemas: tuple[str, ...]  # one for each output port
    input_schemas: tuple[str, ...] | None
    keys: tuple[str, ...]
    stateful: bool
    limit: int  # rows that may wait per key and port
    overflow: Overflow
    order: tuple[str, ...]
    config: Mapping[str, Any]

    def __reduce__(self) -> Any:  # a mapping proxy cannot be pickled
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return _restored, (values | {"config": dict(self.config)},)


def _restored(values: dict[str, Any]) -> PortOperator:
    return PortOperator(**values | {"config": MappingProxyType(values["config"])})


def operator(
    cls: Any = None,
    /,
    *,
    inputs: int | None = None,
    outputs: int | Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    global_state: bool | None = None,
    needs_state: bool | None = None,
    schema: Schemas | None = None,
    input_schemas: Schemas | None = None,
) -> Any:
    """Declare the properties of an operator class. `Dataflow.operator` takes the properties that are missing here.

    The class has a method `invoke(self, ctx)`. The method `schedule(self, config)` returns `penstock.when_all(...)`,
    `when_any(...)`, `every(...)` or `never()`; without it, each row is an invocation. The method `close(self)` is
    called when a task ends.

    Args:
        inputs: Number of input ports.
        outputs: Number of output ports, or a list with their names. The default is 1.
        keys: Columns that partition the state, on all inputs.
        global_state: Whether an operator without keys has one state for all rows. Otherwise it is stateless.
        needs_state: Whether the class uses `ctx.state`, so that it cannot be declared without keys and without
            `global_state=True`.
        schema: Columns of the output, as DDL text or as a StructType; a list with one schema per output port.
        input_schemas: Columns that the input ports need, as a list with one schema per port.

    Returns:
        A decorator for the class.

    Raises:
        DataflowError: A property is not valid.

    >>> @operator(inputs=1, schema="total bigint", global_state=True)
    ... class Total:
    ...     def invoke(self, ctx):
    ...         ctx.state["total"] = ctx.state.get("total", 0) + ctx.row["n"]
    ...         ctx.emit({"total": ctx.state["total"]})
    """
    spec = spec_of_properties(
        "@penstock.operator",
        inputs=inputs,
        outputs=outputs,
        keys=keys,
        global_state=global_state,
        needs_state=needs_state,
        schema=schema,
        input_schemas=input_schemas,
    )
    return (lambda decorated: _decorated(decorated, spec)) if cls is None else _decorated(cls, spec)


def _decorated(cls: Any, spec: OperatorSpec) -> Any:
    if not isinstance(cls, type):
        raise DataflowError(f"@penstock.operator decorates {cls!r}; use it with a class.")
    invoke = getattr(cls, "invoke", None)
    if not callable(invoke):
        raise DataflowError(f"Operator class '{cls.__name__}' has no method invoke(self, ctx); write one.")
    _check_invoke(f"Operator class '{cls.__name__}'", invoke, unbound=True)
    setattr(cls, _SPEC, spec)
    return cls


def _check_invoke(subject: str, invoke: Any, *, unbound: bool = False) -> None:
    """Raise DataflowError if the method cannot be called with a context, or if its body does not run when called."""
    if inspect.isgeneratorfunction(invoke) or inspect.iscoroutinefunction(invoke) or inspect.isasyncgenfunction(invoke):
        kind = "a generator" if inspect.isgeneratorfunction(invoke) else "asynchronous"
        raise DataflowError(f"{subject} has a method invoke{written_at(invoke)} that is {kind}; use ctx.emit(row).")
    try:
        inspect.signature(invoke).bind(*(None,) * (1 + unbound))
    except TypeError:
        raise DataflowError(
            f"{subject} has a method invoke{written_at(invoke)} that does not take one argument; write "
            "invoke(self, ctx)."
        ) from None
    except ValueError:
        return  # a callable without a signature


def spec_of_properties(
    subject: str,
    *,
    inputs: int | None = None,
    outputs: int | Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    global_state: bool | None = None,
    needs_state: bool | None = None,
    schema: Schemas | None = None,
    input_schemas: Schemas | None = None,
) -> OperatorSpec:
    """Return the properties as a value, after checking each of them alone."""
    if inputs is not None:
        _check_count(subject, "inputs", inputs)
    names = None
    if outputs is not None and not isinstance(outputs, int):
        if isinstance(outputs, str) or not outputs:
            raise DataflowError(f"{subject} has outputs={outputs!r}; give a number, or a list of names.")
        names = tuple(check_name("output", name) for name in outputs)
        if len(set(names)) != len(names):
            raise DataflowError(f"{subject} has outputs={list(names)}; give each name once.")
    elif outputs is not None:
        _check_count(subject, "outputs", outputs)
    if global_state is not None and not isinstance(global_state, bool):
        raise DataflowError(f"{subject} has global_state={global_state!r}; give True or False.")
    if keys is not None:
        check_keys("", keys, subject)
    if needs_state is not None and not isinstance(needs_state, bool):
        raise DataflowError(f"{subject} has needs_state={needs_state!r}; give True or False.")
    return OperatorSpec(
        inputs=inputs,
        outputs=names if names is not None else outputs,  # type: ignore[arg-type]
        keys=None if keys is None else tuple(keys),
        global_state=global_state,
        needs_state=needs_state,
        schema=None if schema is None else _schemas(schema),
        input_schemas=None if input_schemas is None else _schemas(input_schemas),
    )


def port_operator(
    name: str,
    instance: Any,
    given: OperatorSpec,
    *,
    inputs: int,
    limit: int,
    overflow: str,
    order: Sequence[str],
    config: Mapping[str, Any],
) -> PortOperator:
    """Combine the properties of the class with those of the dataflow, and ask the instance for its schedule.

    Raises:
        DataflowError: Properties are missing, or they do not fit each other.
    """
    if isinstance(instance, type):
        raise DataflowError(f"Operator '{name}' is given the class {instance.__name__}; give an instance of it.")
    if not callable(getattr(instance, "invoke", None)):
        raise DataflowError(
            f"Operator '{name}' is given {instance!r}, which has no method invoke(self, ctx); give an instance of an "
            "operator class."
        )
    _check_invoke(f"Operator '{name}'", instance.invoke)
    spec = _combined(name, getattr(type(instance), _SPEC, OperatorSpec()), given)
    if spec.inputs is not None and spec.inputs != inputs:
        raise DataflowError(
            f"Operator '{name}' has {spec.inputs} input port(s), but is given {inputs} stream(s); give one per port."
        )
    outputs = _output_names(name, spec.outputs)
    schemas = _per_port(name, "schema", spec.schema, len(outputs))
    if schemas is None:
        raise DataflowError(
            f"Operator '{name}' has no schema of its output; give schema='name type, ...' in its decorator or here."
        )
    if spec.keys and spec.global_state is False:
        raise DataflowError(f"Operator '{name}' has keys={list(spec.keys)} and global_state=False; remove one of them.")
    if spec.keys and spec.global_state:
        raise DataflowError(
            f"Operator '{name}' has keys={list(spec.keys)} and global_state=True; give keys for a state per key, or "
            "global_state=True for one state."
        )
    if isinstance(order, str):
        raise DataflowError(f"Operator '{name}' has order={order!r}; give a list, order=[{order!r}].")
    frozen = MappingProxyType(dict(config))
    schedule = _schedule(name, instance, frozen)
    stateful = bool(spec.keys or spec.global_state)
    required = schedule.required(name, inputs) if isinstance(schedule, RowSchedule) else ()
    if spec.needs_state and not stateful:
        raise DataflowError(
            f"Operator '{name}' is a {type(instance).__name__}, which needs state; give keys=[...], or "
            "global_state=True for one state without keys."
        )
    _check_stateless(name, stateful, schedule, required)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise DataflowError(f"Operator '{name}' has limit={limit!r}; give the rows that may wait, 1 or more.")
    if max(required, default=0) > limit:
        raise DataflowError(
            f"Operator '{name}' waits for {max(required)} rows at a port, but limit={limit} rows may wait; raise the "
            "limit."
        )
    try:
        overflows = Overflow(overflow)
    except ValueError:
        raise DataflowError(
            f"Operator '{name}' has overflow={overflow!r}; give 'error', 'drop oldest' or 'drop newest'."
        ) from None
    if not stateful and (order or limit != DEFAULT_LIMIT or overflows is not Overflow.ERROR):
        option = "order" if order else "limit" if limit != DEFAULT_LIMIT else "overflow"
        raise DataflowError(
            f"Operator '{name}' has {option}, which concerns rows that wait, but it is stateless, so that no row can "
            f"wait; remove {option}, or give keys=[...] or global_state=True."
        )
    return PortOperator(
        instance=instance,
        schedule=schedule,
        required=required,
        inputs=inputs,
        outputs=outputs,
        schemas=schemas,
        input_schemas=_per_port(name, "input_schemas", spec.input_schemas, inputs),
        keys=spec.keys or (),
        stateful=stateful,
        limit=limit,
        overflow=overflows,
        order=tuple(order),
        config=frozen,
    )


def output_columns(operator: PortOperator) -> tuple[str, ...]:
    """Return the columns in which rows of several output ports leave an operator: the port, and a struct per port."""
    return (PORT, *(f"{PORT}_{port}" for port in range(len(operator.outputs))))


def rows_of_port(port: int) -> Callable[[Any], Any]:
    """Return the function that selects the rows of one output port."""

    def select(df: Any) -> Any:
        return df.where(f"{PORT} = {port}").selectExpr(f"{PORT}_{port}.*")

    return select


def check_input_columns(name: str, port: int, stream: str, columns: Sequence[str] | None, schema: str) -> None:
    """Raise DataflowError if the known columns of an input lack one that its port needs."""
    missing = [column for column in schema_columns(schema) if columns is not None and column not in columns]
    if missing:
        raise DataflowError(
            f"Port {port} of operator '{name}' needs the column '{missing[0]}', which its input '{stream}' does not "
            f"have; the columns of the input are {', '.join(columns or ())}."
        )


def _combined(name: str, design: OperatorSpec, given: OperatorSpec) -> OperatorSpec:
    values: dict[str, Any] = {}
    for field in fields(OperatorSpec):
        first, second = getattr(design, field.name), getattr(given, field.name)
        if first is not None and second is not None and first != second:
            raise DataflowError(
                f"Operator '{name}' is given {field.name}={_shown(second)}, but its class is declared with "
                f"{field.name}={_shown(first)}; remove one of them."
            )
        values[field.name] = second if first is None else first
    return OperatorSpec(**values)


def _schedule(name: str, instance: Any, config: Mapping[str, Any]) -> Schedule:
    method = getattr(instance, "schedule", None)
    if method is None:
        return when_any(rows=1)
    try:
        schedule = method(config)
    except PenstockError:
        raise
    except Exception as error:
        line = failing_line(error, source_file(method))
        where = f" in {line.filename}, line {line.lineno}" if line is not None else ""
        raise DataflowError(
            f"The method schedule of operator '{name}' failed{where}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(schedule, RowSchedule | PeriodicSchedule | NoSchedule):
        raise DataflowError(
            f"The method schedule of operator '{name}'{written_at(method)} returns {schedule!r}; return "
            "penstock.when_all(...), when_any(...), every(...) or never()."
        )
    return schedule


def _check_stateless(name: str, stateful: bool, schedule: Schedule, required: tuple[int, ...]) -> None:
    """Rows that wait are state, so a stateless operator is invoked as soon as a row arrives."""
    if stateful or isinstance(schedule, NoSchedule):
        return
    waits = "is periodic" if isinstance(schedule, PeriodicSchedule) else ""
    if isinstance(schedule, RowSchedule):
        if max(required) > 1:
            waits = f"waits for {max(required)} rows"
        elif schedule.ports is Ports.ALL and len(required) > 1:
            waits = "waits for rows on all ports"
    if waits:
        raise DataflowError(
            f"Operator '{name}' {waits}, but it is stateless, so that no row can wait; give keys=[...], or "
            "global_state=True for one state without keys."
        )


def _output_names(name: str, outputs: int | tuple[str, ...] | None) -> tuple[str, ...]:
    if outputs is None or outputs == 1:
        return (name,)
    ports = tuple(map(str, range(outputs))) if isinstance(outputs, int) else outputs
    return tuple(f"{name}_{port}" for port in ports) if len(ports) > 1 else (name,)


def _per_port(name: str, option: str, schemas: tuple[str, ...] | None, ports: int) -> tuple[str, ...] | None:
    if schemas is None or len(schemas) == ports:
        return schemas
    if len(schemas) == 1:
        return schemas * ports
    raise DataflowError(
        f"Operator '{name}' has {len(schemas)} schemas in {option}, but {ports} port(s); give one schema per port."
    )


def _schemas(schemas: Schemas) -> tuple[str, ...]:
    several = [schemas] if isinstance(schemas, str | Struct) else list(schemas)
    texts = tuple(map(ddl, several))
    for text in texts:
        schema_columns(text)
    return texts


def _check_count(subject: str, option: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < math.inf:
        raise DataflowError(f"{subject} has {option}={count!r}; give the number of ports, 1 or more.")


def _shown(value: object) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)
