"""The path of rows through an operator class, task by task, with a state that is kept as Spark keeps it.

Only the state server and the shuffle are replaced: rows are packed, stored, taken and emitted by the real code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.dataflow import PlanError
from penstock.dataflow.operator_class import Overflow, PortOperator
from penstock.engines.spark.compile.ports import PortProcessor
from penstock.engines.spark.compile.row_packing import pack
from penstock.engines.spark.storage.waiting_rows import ChunkFormat
from tests.support.port_operators import Recorder, naive_calls, naive_calls_within

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64())])
OUTPUT = pa.schema([("key", pa.int64()), ("call", pa.int64()), ("port", pa.int32()), ("ports", pa.string())])
KEYS = 3


class KeyedState:
    """The variables of all keys; `key` is the one that is being processed."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Any], Any] = {}
        self.key: Any = None
        self.timers: set[int] = set()

    def registerTimer(self, at_ms: int) -> None:  # noqa: N802 - Spark's name
        self.timers.add(at_ms)

    def getListState(self, name: str, schema: str) -> ListVariable:  # noqa: N802 - Spark's name
        return ListVariable(self, name)

    def getValueState(self, name: str, schema: str) -> ValueVariable:  # noqa: N802 - Spark's name
        return ValueVariable(self, name)


class Variable:
    def __init__(self, state: KeyedState, name: str) -> None:
        self._state, self._name = state, name

    @property
    def at(self) -> tuple[str, Any]:
        return self._name, self._state.key

    def clear(self) -> None:
        del self._state.values[self.at]  # a variable that does not exist is not cleared


class ListVariable(Variable):
    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._state.values.get(self.at, []))

    def put(self, values: list[tuple[Any, ...]]) -> None:
        assert values
        self._state.values[self.at] = list(values)

    def appendList(self, values: list[tuple[Any, ...]]) -> None:  # noqa: N802 - Spark's name
        assert values
        self._state.values.setdefault(self.at, []).extend(values)


class ValueVariable(Variable):
    def get(self) -> Any:
        return self._state.values.get(self.at)

    def exists(self) -> bool:
        return self.at in self._state.values

    def update(self, value: tuple[Any, ...]) -> None:
        self._state.values[self.at] = value


def declared(**options: Any) -> PortOperator:
    flow = penstock.Dataflow("declared")
    source = penstock.generate(lambda n: (n, n), schema="key bigint, n bigint", rows=9)
    inputs = [flow.source(f"port{port}", source) for port in range(len(options["rows"]))]
    flow.operator("calls", Recorder(), inputs=inputs, keys=["key"], **options)
    operator = flow["calls"].fn
    assert isinstance(operator, PortOperator)
    return operator


def packed(port: int, rows: list[dict[str, int]], tasks: int) -> list[tuple[Any, ...]]:
    """Pack rows in several tasks, each of them with a part of the rows; equal hashes of two keys occur."""
    packing = pack(port, [0], ChunkFormat("port", SCHEMA))
    chunks: list[tuple[Any, ...]] = []
    for task in range(tasks):
        part = rows[len(rows) * task // tasks : len(rows) * (task + 1) // tasks]
        columns = {name: [row[name] for row in part] for name in ("key", "n")}
        hashes = [row["key"] // 2 for row in part]
        batch = pa.table({**columns, "hash": pa.array(hashes, pa.int64())}).to_batches()
        for made in packing(batch):
            at = made.schema.get_field_index("__penstock_position")
            for row in zip(*(column.to_pylist() for column in made.columns), strict=True):
                chunks.append((*row[:at], row[at] + (task << 33), *row[at + 1 :]))
    return chunks


def run(operator: PortOperator, batches: list[list[tuple[int, int, int]]], tasks: int) -> list[dict[str, Any]]:
    inputs = len(operator.required)
    formats = [ChunkFormat(f"port {port}", SCHEMA) for port in range(inputs)]
    state = KeyedState()
    emitted: list[dict[str, Any]] = []
    for batch in batches:
        # Each batch has a new processor, as after a restart: nothing survives but the state.
        counts_dropped = operator.overflow is not Overflow.ERROR
        processor = PortProcessor("calls", operator, formats, [OUTPUT], [False] * inputs, counts_dropped, None)
        processor.init(state)  # type: ignore[arg-type]
        of_key: dict[int, list[Any]] = defaultdict(list)
        for port in range(inputs):
            rows = [{"key": key, "n": n} for to, key, n in batch if to == port]
            for chunk in packed(port, rows, tasks):
                of_key[chunk[0]].append(chunk)
        for key, chunks in sorted(of_key.items()):
            state.key = (key,)
            # The shuffle delivers chunks in any order.
            rows_out = processor.handleInputRows((key,), iter(chunks[::-1]), None)
            emitted += [row.asDict(True) for row in rows_out]
        processor.close()
    return emitted


@st.composite
def situations(draw: st.DrawFn) -> Any:
    inputs = draw(st.integers(1, 3))
    kinds = [("all", "exact"), ("all", "at least"), ("all", "equal"), ("any", "exact"), ("any", "at least")]
    ports, count = draw(st.sampled_from(kinds))
    each = draw(st.integers(1, 4))
    rows = [each] * inputs if count == "equal" else draw(st.lists(st.integers(1, 4), min_size=inputs, max_size=inputs))
    arrival = st.tuples(st.integers(0, inputs - 1), st.integers(0, KEYS - 1))
    arrivals = draw(st.lists(st.lists(arrival, max_size=20), max_size=5))
    number = iter(range(10_000))
    batches = [[(port, key, next(number)) for port, key in batch] for batch in arrivals]
    return ports, count, rows, batches, draw(st.integers(1, 3))


@given(situations(), st.sampled_from(["drop oldest", "drop newest"]), st.integers(4, 9))
def test_rows_above_the_limit_are_dropped_and_counted(situation: Any, overflow: str, limit: int) -> None:
    ports, count, rows, batches, tasks = situation
    operator = declared(ports=ports, count=count, rows=rows, limit=limit, overflow=overflow)
    output = run(operator, batches, tasks)
    calls = sorted((row["key"], row["call"], row["port"], row["ports"]) for row in output if "call" in row)
    dropped = sum(row["__penstock_dropped"] or 0 for row in output)
    drops_oldest = overflow == "drop oldest"
    assert (calls, dropped) == naive_calls_within(ports, count, rows, batches, limit=limit, drops_oldest=drops_oldest)


@given(situations())
def test_invocations_are_those_of_the_reference(situation: Any) -> None:
    ports, count, rows, batches, tasks = situation
    output = run(declared(ports=ports, count=count, rows=rows), batches, tasks)
    calls = sorted((row["key"], row["call"], row["port"], row["ports"]) for row in output)
    assert calls == naive_calls(ports, count, rows, batches)


@penstock.operator(schema="rows bigint")
class Counted:
    """Emits the number of rows of each periodic invocation, and keeps no state."""

    def schedule(self, config: Any) -> Any:
        return penstock.every(1.0)

    def invoke(self, ctx: Any) -> None:
        ctx.emit({"rows": len(ctx.rows())})


def test_a_key_without_rows_and_state_is_not_invoked() -> None:
    """Rows arrive when a timer is due: they are received by its invocation, and the next timer finds nothing."""
    flow = penstock.Dataflow("periodic")
    source = flow.source("rows", penstock.generate(lambda n: (n, n), schema="key bigint, n bigint", rows=9))
    flow.operator("counted", Counted(), inputs=[source], keys=["key"])
    operator = flow["counted"].fn
    assert isinstance(operator, PortOperator)
    output = pa.schema([("rows", pa.int64())])
    processor = PortProcessor("counted", operator, [ChunkFormat("port", SCHEMA)], [output], [False], False, None)
    state = KeyedState()
    state.key = (1,)
    processor.init(state)  # type: ignore[arg-type]
    emitted: list[dict[str, Any]] = []
    for now_ms, rows in ((100, 2), (1200, 3), (2500, 0)):  # Spark passes the rows of a batch first, and timers then
        times = SimpleNamespace(getCurrentProcessingTimeInMs=lambda now_ms=now_ms: now_ms)
        chunks = packed(0, [{"key": 1, "n": n} for n in range(rows)], tasks=1)
        if chunks:
            processor.handleInputRows((1,), iter(chunks), times)
        for due_ms in sorted(at_ms for at_ms in state.timers if at_ms <= now_ms):
            state.timers.remove(due_ms)
            due = SimpleNamespace(getExpiryTimeInMs=lambda due_ms=due_ms: due_ms)
            emitted += [row.asDict(True) for row in processor.handleExpiredTimer((1,), times, due)]
    assert emitted == [{"rows": 5}]
    assert not state.timers


def test_rows_with_null_keys_share_a_chunk() -> None:
    rows = [{"key": key, "n": n} for n, key in enumerate([None, 1, None, 1, None, 2])]
    columns = {name: [row[name] for row in rows] for name in ("key", "n")}
    hashes = pa.array([0 if row["key"] is None else row["key"] for row in rows], pa.int64())
    batches = pa.table({"key": pa.array(columns["key"], pa.int64()), "n": columns["n"], "hash": hashes}).to_batches()
    format = ChunkFormat("port", SCHEMA)
    (made,) = pack(0, [0], format)(batches)
    of_keys = [
        (row["__penstock_key_0"], [each["n"] for each in format.rows(format.decode(row["__penstock_rows"]))])
        for row in made.to_pylist()
    ]
    assert of_keys == [(None, [0, 2, 4]), (1, [1, 3]), (2, [5])]


def test_many_waiting_chunks_are_merged() -> None:
    operator = declared(ports="all", count="exact", rows=[150])
    batches = [[(0, 1, n)] for n in range(301)]
    output = run(operator, batches, tasks=1)
    assert [row["ports"] for row in output] == [str([list(range(low, low + 150))]) for low in (0, 150)]


def test_rows_that_wait_with_other_columns_are_refused() -> None:
    chunk = ChunkFormat("port 0 of operator 'calls'", SCHEMA).encode(
        pa.RecordBatch.from_pylist([{"key": 1, "n": 2}], schema=SCHEMA)
    )
    changed = ChunkFormat("port 0 of operator 'calls'", pa.schema([("key", pa.int64()), ("n", pa.string())]))
    with pytest.raises(PlanError, match=r"wait at port 0 of operator 'calls' have other columns .* n string; restore"):
        changed.count(chunk)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_time_zone_of_the_session_is_no_change_of_columns(zone: str) -> None:
    stored = pa.schema([("at", pa.timestamp("us", "Europe/Paris"))])
    chunk = ChunkFormat("port", stored).encode(pa.RecordBatch.from_pylist([{"at": 0}], schema=stored))
    format = ChunkFormat("port", pa.schema([("at", pa.timestamp("us", zone))]))
    assert format.count(chunk) == 1
    (row,) = format.rows(format.decode(chunk))
    assert row["at"].timestamp() == 0
