"""The invocations of operator classes, compared with a naive reference on random interleavings of ports and batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.dataflow import DataflowError
from penstock.dataflow.function_errors import UserFunctionError
from penstock.engines.invocation import InvocationError
from penstock.engines.stored_state import StateError, state_of_text, state_text
from tests.support.port_operators import Clock, Divided, Recorder, Storing, naive_calls

KEYS = 3


@st.composite
def situations(draw: st.DrawFn) -> tuple[str, str, list[int], list[list[tuple[int, int, int]]]]:
    """Draw ports, count, required rows, and batches of (port, key, n)."""
    inputs = draw(st.integers(1, 3))
    ports, count = draw(
        st.sampled_from(
            [("all", "exact"), ("all", "at least"), ("all", "equal"), ("any", "exact"), ("any", "at least")]
        )
    )
    each = draw(st.integers(1, 4))
    rows = [each] * inputs if count == "equal" else draw(st.lists(st.integers(1, 4), min_size=inputs, max_size=inputs))
    arrivals = draw(
        st.lists(st.lists(st.tuples(st.integers(0, inputs - 1), st.integers(0, KEYS - 1)), max_size=25), max_size=6)
    )
    number = iter(range(10_000))
    return ports, count, rows, [[(port, key, next(number)) for port, key in batch] for batch in arrivals]


def runner_for(instance: Any, **options: Any) -> penstock.OperatorRunner:
    return penstock.OperatorRunner(instance, **options)


def rows_by_port(batch: list[tuple[int, int, int]], inputs: int) -> list[list[dict[str, int]]]:
    return [[{"key": key, "n": n} for of, key, n in batch if of == port] for port in range(inputs)]


@given(situations())
def test_each_schedule_is_that_of_the_reference(situation: Any) -> None:
    ports, count, rows, batches = situation
    runner = runner_for(Recorder(), inputs=len(rows), keys=["key"], ports=ports, count=count, rows=rows)
    emitted = [row for batch in batches for row in runner.feed(*rows_by_port(batch, len(rows)))]
    calls = [(row["key"], row["call"], row["port"], row["ports"]) for row in emitted]
    assert sorted(calls) == naive_calls(ports, count, rows, batches)


@given(situations())
def test_every_row_is_received_once_or_waits(situation: Any) -> None:
    ports, count, rows, batches = situation
    runner = runner_for(Recorder(), inputs=len(rows), keys=["key"], ports=ports, count=count, rows=rows)
    received = sorted(
        int(n)
        for batch in batches
        for row in runner.feed(*rows_by_port(batch, len(rows)))
        for n in row["ports"].replace("[", " ").replace("]", " ").replace(",", " ").split()
    )
    waiting = [row["n"] for key in range(KEYS) for port in runner.waiting({"key": key}) for row in port]
    assert sorted(received + waiting) == [n for batch in batches for _, _, n in batch]


@given(situations(), st.data())
def test_exact_barriers_do_not_depend_on_batches(situation: Any, data: st.DataObject) -> None:
    _, _, rows, batches = situation
    all_rows = [row for batch in batches for row in batch]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(all_rows)), max_size=4)))
    divided = [all_rows[low:high] for low, high in zip([0, *cuts], [*cuts, len(all_rows)], strict=True)]

    def output(parts: list[list[tuple[int, int, int]]]) -> list[Any]:
        runner = runner_for(Recorder(), inputs=len(rows), keys=["key"], ports="all", count="exact", rows=rows)
        emitted = [row for part in parts for row in runner.feed(*rows_by_port(part, len(rows)))]
        return sorted(map(str, emitted))

    assert output(batches) == output(divided)


def total(schedule: Any, **options: Any) -> penstock.OperatorRunner:
    @penstock.operator(inputs=2, global_state=True, schema="n int")
    class Rows:
        def schedule(self, config: Any) -> Any:
            return schedule

        def invoke(self, ctx: Any) -> None:
            ctx.emit({"n": [[row["n"] for row in ctx.rows(port)] for port in range(2)]})

    return runner_for(Rows(), **options)


def numbered(*numbers: int) -> list[dict[str, int]]:
    return [{"n": n} for n in numbers]


@pytest.mark.parametrize(("overflow", "left"), [("drop oldest", [3, 4]), ("drop newest", [1, 2])])
def test_rows_above_the_limit_are_dropped_and_counted(overflow: str, left: list[int]) -> None:
    runner = total(penstock.when_all(rows=1), limit=2, overflow=overflow)
    runner.feed(numbered(1, 2, 3, 4), [])
    assert runner.waiting()[0] == numbered(*left)
    assert runner.dropped == 2


def test_the_limit_applies_after_the_invocations() -> None:
    runner = total(penstock.when_all(rows=1), limit=1)
    assert len(runner.feed(numbered(1, 2, 3, 4), numbered(5, 6, 7))) == 3
    with pytest.raises(InvocationError, match=r"2 rows wait at port 0 of operator 'operator', but limit=1; raise"):
        runner.feed(numbered(8), [])


def test_an_operator_that_is_never_invoked_discards_its_rows() -> None:
    runner = total(penstock.never())
    assert runner.feed(numbered(1), numbered(2)) == []
    assert runner.waiting() == [[], []]


def test_a_periodic_operator_receives_all_rows_at_multiples_of_its_period() -> None:
    runner = runner_for(Clock(), keys=["key"], inputs=1, seconds=0.5)
    assert runner.feed([{"key": 1}, {"key": 1}, {"key": 2}]) == []
    assert runner.tick(at_s=100.7) == [
        {"key": 1, "rows": 2, "is_multiple": True},
        {"key": 2, "rows": 1, "is_multiple": True},
    ]
    runner.feed([{"key": 2}])
    assert [row["rows"] for row in runner.tick(at_s=101.0)] == [2, 2]


def test_rows_leave_through_the_port_that_is_given() -> None:
    runner = runner_for(Divided(), inputs=1)
    even, odd = runner.feed([{"key": 1, "n": n} for n in range(4)])
    assert even == [{"key": 1, "n": 0}, {"key": 1, "n": 2}]
    assert odd == [{"n": 1, "text": "1"}, {"n": 3, "text": "3"}]


def test_an_emitted_row_does_not_change_afterwards() -> None:
    @penstock.operator(inputs=1, global_state=True, schema="all array<int>")
    class Collecting:
        def invoke(self, ctx: Any) -> None:
            ctx.state.setdefault("all", []).append(ctx.row["n"])
            ctx.emit({"all": ctx.state["all"]})

    assert runner_for(Collecting()).feed(numbered(1, 2)) == [{"all": [1]}, {"all": [1, 2]}]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda ctx: ctx.rows(2), r"ctx\.rows\(2\): the ports are 0 to 1"),
        (lambda ctx: ctx.row, r"ctx\.row: the invocation received 2 rows"),
        (lambda ctx: ctx.now, r"ctx\.now: only an operator that is scheduled with penstock\.every"),
        (lambda ctx: ctx.emit({}, port=1), r"ctx\.emit\(port=1\): the output ports are 0 to 0"),
        (lambda ctx: ctx.emit(3), r"ctx\.emit\(3\): a row is a dict"),
        (lambda ctx: ctx.state, r"ctx\.state: the operator is stateless"),
    ],
)
def test_a_wrong_use_of_the_context_is_explained(use: Any, message: str) -> None:
    is_stateless = "stateless" in message

    @penstock.operator(inputs=2, global_state=not is_stateless, schema="n int")
    class Wrong:
        def schedule(self, config: Any) -> Any:
            return penstock.when_any(rows=1) if is_stateless else penstock.when_all(rows=1)

        def invoke(self, ctx: Any) -> None:
            use(ctx)

    with pytest.raises(UserFunctionError, match=message):
        runner_for(Wrong()).feed(numbered(1), numbered(2))


def test_an_error_names_the_operator_the_key_the_line_and_the_row() -> None:
    @penstock.operator(inputs=1, keys=["key"], schema="n int")
    class Dividing:
        def invoke(self, ctx: Any) -> None:
            ctx.emit({"n": 1 // ctx.row["n"]})

    pattern = (
        r"operator 'operator' with key \{'key': 'a'\} failed in .*test_invocation\.py, line \d+: ZeroDivisionError: .*; "
        r"row: \{'key': 'a', 'n': 0\}"
    )
    with pytest.raises(UserFunctionError, match=pattern):
        runner_for(Dividing()).feed([{"key": "a", "n": 0}])


def test_a_state_that_cannot_be_stored_names_the_operator_and_the_key() -> None:
    message = (
        r"operator 'operator' with key \{'n': 3\} cannot store its state: ctx\.state\['seen'\] is of type builtins\.set"
    )
    with pytest.raises(StateError, match=message):
        runner_for(Storing(), keys=["n"], inputs=1).feed(numbered(3))


def test_a_state_that_contains_itself_is_refused() -> None:
    @penstock.operator(inputs=1, global_state=True, schema="n int")
    class Circular:
        def invoke(self, ctx: Any) -> None:
            ctx.state["all"] = ctx.state

    with pytest.raises(StateError, match="cannot store its state: a value contains itself"):
        runner_for(Circular()).feed(numbered(1))


def test_a_returned_row_is_not_lost_silently() -> None:
    @penstock.operator(inputs=1, schema="n int")
    class Returning:
        def invoke(self, ctx: Any) -> Any:
            return ctx.row

    pattern = r"operator 'operator' \(.*line \d+\) returns \{'n': 1\}; a method invoke returns nothing and emits"
    with pytest.raises(InvocationError, match=pattern):
        runner_for(Returning()).feed(numbered(1))


def test_a_state_that_becomes_empty_is_removed() -> None:
    @penstock.operator(inputs=1, global_state=True, schema="n int")
    class Clearing:
        def invoke(self, ctx: Any) -> None:
            ctx.state["n"] = ctx.row["n"]
            if ctx.row["n"] == 0:
                ctx.state.clear()

    runner = runner_for(Clearing())
    runner.feed(numbered(1))
    assert runner.state() == {"n": 1}
    runner.feed(numbered(0))
    assert runner.state() == {}


def test_the_runner_refuses_wrong_ports_and_rows_without_keys() -> None:
    runner = runner_for(Recorder(), inputs=2, keys=["key"], ports="all", count="exact", rows=1)
    with pytest.raises(DataflowError, match=r"feed\(\) is given 1 port\(s\), but the operator has 2"):
        runner.feed([])
    with pytest.raises(DataflowError, match=r"lacks the key 'key'"):
        runner.feed([{"n": 1}], [])
    with pytest.raises(DataflowError, match=r"tick\(\) needs"):
        runner.tick(1.0)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text() | st.sampled_from(["$bytes", "$dict", "$"]), VALUES))
def test_a_state_is_the_same_after_it_was_stored(state: dict[str, Any]) -> None:
    again = state_of_text(state_text(state))
    assert again == state
    assert repr(again) == repr(state)  # 1, 1.0 and True are equal


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {1, 2}}, r"ctx\.state\['a'\] is of type builtins\.set, which cannot be stored; use None"),
        ({"a": [1, {2: 3}]}, r"ctx\.state\['a'\]\[1\] has the key 2 of type int"),
        ({3: 1}, r"ctx\.state has the key 3 of type int, which cannot be stored; use strings as keys"),
        ({"a": (1, object)}, r"ctx\.state\['a'\]\[1\] is of type builtins\.type"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named(state: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        state_text(state)
