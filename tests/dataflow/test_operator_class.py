"""Operator classes in a dataflow: properties at design time and at composition time, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import penstock
from penstock.dataflow import DataflowError, Kind, OutputMode, regions
from penstock.operators import ExponentialAverage, SlidingWindow
from penstock.plan import required_cuts
from tests.support.port_operators import Divided, Recorder


@penstock.operator(inputs=2, outputs=1, keys=["key"], schema="key long, batch_sum long")
class SumBarrier:
    def schedule(self, config: Mapping[str, Any]) -> Any:
        return penstock.when_all(rows=config.get("rows", 10), count="exact")

    def invoke(self, ctx: Any) -> None: ...


def streams(count: int = 2, schema: str = "key long, num long") -> tuple[penstock.Dataflow, list[penstock.Stream]]:
    flow = penstock.Dataflow("ports")
    return flow, [flow.source(f"in{i}", penstock.generate(lambda n: n, schema=schema, rows=9)) for i in range(count)]


def scheduled(schedule: Any, **properties: Any) -> Any:
    @penstock.operator(**{"schema": "n int"} | properties)
    class Scheduled:
        def schedule(self, config: Mapping[str, Any]) -> Any:
            return schedule() if callable(schedule) else schedule

        def invoke(self, ctx: Any) -> None: ...

    return Scheduled()


def test_the_example_of_the_paper() -> None:
    flow, inputs = streams()
    sums = flow.operator("sums", SumBarrier(), inputs=inputs, rows=10)
    operator = flow["sums"]
    assert sums.name == "sums"
    assert (operator.kind, operator.keys, operator.columns) == (Kind.KEYED, ("key",), ("key", "batch_sum"))
    assert operator.fn.required == (10, 10)
    assert operator.fn.config == {"rows": 10}
    assert operator.output_mode is OutputMode.APPEND
    assert [region.operators for region in regions(flow) if region.kind is Kind.KEYED] == [("sums",)]


def test_properties_may_be_given_when_the_dataflow_is_built() -> None:
    class Plain:  # not even decorated
        def invoke(self, ctx: Any) -> None: ...

    flow, inputs = streams(3)
    schema = StructType([StructField("key", LongType())])
    flow.operator("plain", Plain(), inputs=inputs, keys=["key"], schema=schema)
    operator = flow["plain"]
    assert (operator.kind, operator.fn.inputs, operator.fn.required) == (Kind.KEYED, 3, (1, 1, 1))
    assert operator.columns == ("key",)


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, Kind.STATELESS), ({"global_state": True}, Kind.GLOBAL_STATE), ({"keys": ["num"]}, Kind.KEYED)],
)
def test_keys_and_state_decide_the_kind(options: dict[str, Any], kind: Kind) -> None:
    flow, inputs = streams()
    flow.operator("op", scheduled(penstock.when_any(rows=1)), inputs=inputs, **options)
    assert flow["op"].kind is kind


def test_several_output_ports_are_several_streams() -> None:
    flow, (numbers,) = streams(1, "key long, n long")
    even, odd = flow.operator("divided", Divided(), inputs=[numbers])
    assert (even.name, odd.name) == ("divided_even", "divided_odd")
    assert (flow["divided_even"].columns, flow["divided_odd"].columns) == (("key", "n"), ("n", "text"))
    for stream in (even, odd):
        stream.sink(f"{stream.name}_out", penstock.noop())
    flow.check()
    assert "divided" in required_cuts(flow, {})


def test_output_ports_are_numbered_without_names() -> None:
    flow, (numbers,) = streams(1)
    ports = flow.operator("op", scheduled(penstock.when_any(), outputs=3), inputs=[numbers])
    assert [stream.name for stream in ports] == ["op_0", "op_1", "op_2"]


def test_a_declared_operator_can_be_sent_to_workers() -> None:
    flow, inputs = streams()
    flow.operator("sums", SumBarrier(), inputs=inputs, rows=3)
    again = pickle.loads(pickle.dumps(flow["sums"].fn))
    assert (again.required, dict(again.config)) == ((3, 3), {"rows": 3})


def invoked(method: Any) -> Any:
    """Return an operator with this method, without a decorator."""
    return type("Invoked", (), {"invoke": method})()


async def asynchronous(self: Any, ctx: Any) -> None: ...


KEYED = {"keys": ["key"]}


@pytest.mark.parametrize(
    ("instance", "options", "message"),
    [
        (scheduled(penstock.when_any(rows=2, count="equal")), KEYED, "equal numbers need rows on all ports"),
        (scheduled(penstock.when_all(rows=[1, 2], count="equal")), KEYED, "give one number for all ports"),
        (scheduled(penstock.when_all(rows={0: 1, 2: 1})), KEYED, "it has no port 2; its ports are 0, 1"),
        (scheduled(penstock.when_all(rows={0: 1})), KEYED, "no number for port 1"),
        (scheduled(penstock.when_all(rows=[1, 1, 1])), KEYED, "has 2 input port"),
        (scheduled(penstock.when_all(rows=0)), KEYED, "a port needs a whole number of rows, 1 or more"),
        (scheduled(penstock.when_all(rows=[1, -1])), KEYED, "a port needs a whole number of rows, 1 or more"),
        (scheduled(penstock.when_all(rows=2.5)), KEYED, "a port needs a whole number of rows, 1 or more"),
        (scheduled(penstock.when_all(rows=True)), KEYED, "a port needs a whole number of rows, 1 or more"),
        (scheduled(lambda: penstock.when_all(count="some")), KEYED, "give count='exact', 'at least' or 'equal'"),
        (scheduled(lambda: penstock.every(0)), KEYED, "is not a period"),
        (scheduled(lambda: None), KEYED, r"The method schedule of operator 'op' \(.*\) returns None; return"),
        (scheduled(lambda: 1 // 0), KEYED, r"The method schedule of operator 'op' failed in .*ZeroDivisionError"),
        (scheduled(penstock.when_all(rows=1)), {}, "waits for rows on all ports, but it is stateless"),
        (scheduled(penstock.when_any(rows=2)), {}, "waits for 2 rows, but it is stateless"),
        (scheduled(penstock.every(1)), {}, "is periodic, but it is stateless"),
        (scheduled(penstock.when_all(rows=7)), KEYED | {"limit": 6}, "limit=6 rows may wait; raise the limit"),
        (scheduled(penstock.when_all()), KEYED | {"limit": 0}, "give the rows that may wait, 1 or more"),
        (scheduled(penstock.when_all()), KEYED | {"overflow": "drop"}, "give 'error', 'drop oldest' or 'drop newest'"),
        (scheduled(penstock.when_all()), {"keys": ["user"]}, "keyed by 'user', which its input 'in0' does not have"),
        (scheduled(penstock.when_all()), {"keys": []}, "has no keys"),
        (scheduled(penstock.when_all()), KEYED | {"global_state": False}, "remove one of them"),
        (scheduled(penstock.when_all()), KEYED | {"order": ["ts"]}, "'ts'"),
        (
            scheduled(penstock.when_all()),
            KEYED | {"input_schemas": ["key long", "x int"]},
            "Port 1 of operator 'op' needs",
        ),
        (scheduled(penstock.when_all()), KEYED | {"input_schemas": ["key long"] * 3}, "3 schemas in input_schemas"),
        (scheduled(penstock.when_all(), schema=None), KEYED, "has no schema of its output"),
        (
            scheduled(penstock.when_all(), outputs=3),
            KEYED | {"schema": ["n int"] * 2},
            "but its class is declared with",
        ),
        (scheduled(penstock.when_all(), schema=["n int"] * 2, outputs=3), KEYED, "2 schemas in schema, but 3 port"),
        (scheduled(penstock.when_all(), inputs=3), KEYED, r"has 3 input port\(s\), but is given 2 stream"),
        (scheduled(penstock.when_all(), keys=["num"]), KEYED, "class is declared with keys=\\['num'\\]"),
        (SumBarrier, {}, "is given the class SumBarrier; give an instance"),
        (object(), {}, "has no method invoke"),
        (scheduled(penstock.when_all()), {"outputs": 0} | KEYED, "give the number of ports, 1 or more"),
        (scheduled(penstock.when_all()), {"outputs": ["a", "a"]} | KEYED, "give each name once"),
        (scheduled(penstock.when_all()), {"outputs": "ab"} | KEYED, "give a number, or a list of names"),
        (scheduled(penstock.when_all()), KEYED | {"global_state": True}, "give keys for a state per key, or"),
        (scheduled(penstock.when_all()), {"keys": "key"}, "^Operator 'op' has keys='key'; give a list"),
        (scheduled(penstock.when_any()), {"limit": 5}, "has limit, which concerns rows that wait, but it is stateless"),
        (scheduled(penstock.when_any()), {"overflow": "drop oldest"}, "has overflow, which concerns rows that wait"),
        (scheduled(penstock.when_any()), {"order": ["num"]}, "has order, which concerns rows that wait"),
        (scheduled(penstock.when_any()), KEYED | {"order": "num"}, r"give a list, order=\['num'\]"),
        (scheduled(penstock.when_any(), needs_state=True), {}, "is a Scheduled, which needs state; give keys"),
        (invoked(lambda self, ctx: (yield ctx)), KEYED, r"invoke \(.*line \d+\) that is a generator; use ctx.emit"),
        (invoked(asynchronous), KEYED, r"that is asynchronous; use ctx.emit"),
        (invoked(lambda self: None), KEYED, r"does not take one argument; write invoke\(self, ctx\)"),
    ],
)
def test_combinations_that_are_not_possible_are_refused(instance: Any, options: dict[str, Any], message: str) -> None:
    flow, inputs = streams()
    with pytest.raises(DataflowError, match=message):
        flow.operator("op", instance, inputs=inputs, **options)
    assert "op" not in flow


@pytest.mark.parametrize("instance", [ExponentialAverage("num", 0.5), SlidingWindow(2, dict)])
def test_operators_of_the_library_that_need_state_are_refused_without_it(instance: Any) -> None:
    flow, (numbers,) = streams(1)
    with pytest.raises(DataflowError, match=f"is a {type(instance).__name__}, which needs state; give keys"):
        flow.operator("op", instance, inputs=[numbers], schema="n int")


def test_a_refused_operator_leaves_nothing_behind() -> None:
    flow, (numbers,) = streams(1)
    numbers.stateless("op_1", lambda df: df)
    before = [operator.name for operator in flow.operators]
    with pytest.raises(DataflowError, match="already uses the name 'op_1'"):
        flow.operator("op", scheduled(penstock.when_any(), outputs=2), inputs=[numbers])
    assert [operator.name for operator in flow.operators] == before


def test_the_decorator_refuses_a_class_that_cannot_be_invoked() -> None:
    with pytest.raises(DataflowError, match="has no method invoke"):
        penstock.operator(inputs=1)(type("Empty", (), {}))
    with pytest.raises(DataflowError, match="use it with a class"):
        penstock.operator(inputs=1)(print)
    with pytest.raises(DataflowError, match="inputs=0"):
        penstock.operator(inputs=0)
    with pytest.raises(DataflowError, match="that is a generator; use ctx.emit"):
        penstock.operator(inputs=1)(type("Yields", (), {"invoke": lambda self, ctx: (yield ctx)}))
    with pytest.raises(DataflowError, match="needs_state=1; give True or False"):
        penstock.operator(needs_state=1)


def test_a_recorder_without_its_configuration_names_the_line() -> None:
    flow, inputs = streams()
    with pytest.raises(
        DataflowError, match=r"schedule of operator 'op' failed in .*port_operators\.py, line \d+: KeyError"
    ):
        flow.operator("op", Recorder(), inputs=inputs, keys=["key"])
