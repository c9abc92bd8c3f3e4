"""Checks of a dataflow during its declaration, and their error messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.dataflow import Dataflow, DataflowError, OutputMode, graph


def numbers(flow: Dataflow, name: str = "numbers") -> penstock.Stream:
    return flow.source(name, penstock.generate(lambda n: n, schema="n bigint, key string", rows=10))


def same(df: object) -> object:
    return df


def test_the_example_of_the_readme_is_a_dataflow() -> None:
    flow = penstock.Dataflow("wordcount")
    lines = flow.source("lines", penstock.replay("books/*.txt", rows_per_s=2000))
    words = lines.stateless("split", same)
    words.keyed("count", same, keys=["word"]).sink("out", penstock.parquet("out"))
    flow.check()
    assert [operator.name for operator in flow.operators] == ["lines", "split", "count", "out"]


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda flow: numbers(flow).keyed("count", same, keys=[]), "'count' has no keys"),
        (
            lambda flow: numbers(flow).keyed("count", same, keys=["user"]),
            "by 'user', which its input 'numbers'",
        ),
        (
            lambda flow: flow.keyed(
                "join",
                lambda a, b: a,
                keys=["key"],
                inputs=[numbers(flow), flow.source("users", penstock.generate(same, schema="id bigint", rows=1))],
            ),
            "its input 'users' does not have; the columns of the input are id. A key has the same name on all inputs: rename the column",
        ),
        (lambda flow: numbers(flow).keyed("count", same, keys="key"), "give a list"),
        (lambda flow: numbers(flow).keyed("count", same, keys=["key", "key"]), "give each key once"),
        (
            lambda flow: numbers(flow).keyed("count", same, keys=["key"], output_mode="all"),
            "'append', 'update' or 'complete'",
        ),
        (lambda flow: [numbers(flow), numbers(flow)], "already uses the name 'numbers'"),
        (lambda flow: numbers(flow, "two words"), "use a letter, then letters"),
        (lambda flow: numbers(flow).stateless("f", same, selectivity=-1), "rows out per row in, 0 or more"),
        (lambda flow: numbers(flow).stateless("f", same, selectivity=float("nan")), "rows out per row in, 0 or more"),
        (lambda flow: numbers(flow).stateless("f", "select *"), "give a function"),  # type: ignore[arg-type]
        (lambda flow: numbers(flow).stateless("f", lambda a, b: a), "takes 2 DataFrames but the operator has 1 input"),
        (lambda flow: flow.stateless("f", same, inputs=[]), "has no input"),
        (lambda flow: numbers(flow).watermark("ts", "1 minute"), "not among its columns n, key"),
        (lambda flow: numbers(flow).watermark("n", "soon"), "write it like '10 minutes'"),
        (lambda flow: numbers(flow).stateless("f", numbers(penstock.Dataflow("b")).name), "give a function"),  # type: ignore[arg-type]
        (
            lambda flow: flow.stateless("f", same, inputs=[numbers(penstock.Dataflow("b"))]),
            "not a stream of dataflow 'a'",
        ),
        (lambda flow: flow.source("s", "kafka"), "give it penstock.replay"),  # type: ignore[arg-type]
        (lambda flow: numbers(flow).sink("out", "out"), "give it penstock.parquet"),  # type: ignore[arg-type]
        (lambda flow: penstock.generate(same, schema="n bigint"), "needs an end"),
        (
            lambda flow: penstock.generate(same, schema="", rows=1) and numbers(flow).rows("f", same, schema="n"),
            "'name type'",
        ),
        (lambda flow: penstock.replay("a.csv", rows_per_s=1), "csv files need a schema"),
        (lambda flow: penstock.replay("a.txt", rows_per_s=-1), "0 or more"),
        (lambda flow: penstock.files("a.xml", format="xml"), "choose one of text, csv, json, parquet"),
        (lambda flow: penstock.parquet("s3a://bucket/out"), "is not on a local or shared disk"),
        (lambda flow: penstock.files("hdfs://host/in/*.txt"), "is not on a local or shared disk"),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(declare: object, says: str) -> None:
    with pytest.raises(DataflowError, match="(?s).*" + says.replace("(", r"\(")):
        declare(penstock.Dataflow("a"))  # type: ignore[operator]


def test_two_sinks_on_one_path_are_refused() -> None:
    flow = penstock.Dataflow("a")
    stream = numbers(flow)
    stream.sink("one", penstock.parquet("out"))
    with pytest.raises(DataflowError, match="Sinks 'one' and 'two' both write to '.*/out'"):
        stream.sink("two", penstock.parquet("./out"))


def test_a_sink_s_path_is_of_the_folder_in_which_it_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert penstock.parquet("out") == penstock.parquet(f"file://{tmp_path}/out") == penstock.parquet(tmp_path / "out")


def test_nothing_can_follow_a_sink() -> None:
    flow = penstock.Dataflow("a")
    assert numbers(flow).sink("out", penstock.noop()) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda flow: None, "is empty"),
        (lambda flow: numbers(flow), "has no sink"),
        (
            lambda flow: [numbers(flow).sink("out", penstock.noop()), numbers(flow, "more")],
            "No operator reads the output of 'more'",
        ),
        (
            lambda flow: [numbers(flow).sink("out", penstock.noop()), flow.feedback("back", schema="n bigint")],
            "never closed",
        ),
    ],
)
def test_an_incomplete_dataflow_is_refused(declare: object, says: str) -> None:
    flow = penstock.Dataflow("a")
    declare(flow)  # type: ignore[operator]
    with pytest.raises(DataflowError, match=says):
        flow.check()


def test_a_cycle_without_a_cut_is_named() -> None:
    flow = penstock.Dataflow("a")
    first = numbers(flow).stateless("first", same)
    first.stateless("second", same).sink("out", penstock.noop())
    looped = [
        replace(operator, inputs=("numbers", "second")) if operator.name == "first" else operator
        for operator in flow.operators
    ]
    with pytest.raises(DataflowError, match="a cycle without a cut: (first|second) -> (second|first) -> "):
        graph.refuse_cycles("a", looped)


def test_a_loop_is_closed_through_feedback() -> None:
    flow = penstock.Dataflow("a")
    back = flow.feedback("back", schema="n bigint, key string")
    halves = flow.stateless("halve", same, inputs=[numbers(flow), back])
    again = halves.stateless("again", same)
    again.feed(back)
    halves.sink("out", penstock.noop())
    flow.check()
    assert flow["halve"].inputs == ("numbers", "again") and flow["halve"].feedback == {"again"}


def test_results_are_final_where_event_time_says_when() -> None:
    flow = penstock.Dataflow("a")
    stream = flow.source("s", penstock.generate(same, schema="ts timestamp, k string", rows=1))
    stream.watermark("ts", "1 minute")
    stream.stateless("f", same).keyed("final", same, keys=["k"])
    numbers(flow).keyed("running", same, keys=["key"])
    assert (flow["final"].output_mode, flow["running"].output_mode) == (OutputMode.APPEND, OutputMode.UPDATE)


def test_a_function_of_each_input_is_distinguished_from_one_of_their_union() -> None:
    flow = penstock.Dataflow("a")
    left, right = numbers(flow, "one"), numbers(flow, "two")
    flow.keyed("join", lambda a, b: a.join(b, "key"), keys=["key"], inputs=[left, right])
    flow.stateless("both", same, inputs=[left, right])
    assert flow["join"].takes_each_input and not flow["both"].takes_each_input


def test_a_parameter_with_a_default_is_no_input() -> None:
    flow = penstock.Dataflow("a")
    left, right = numbers(flow, "one"), numbers(flow, "two")
    flow.stateless("both", lambda df, part=3: df, inputs=[left, right])
    flow.stateless("each", lambda *dfs: dfs[0], inputs=[left, right])
    flow.stateless("maybe", lambda a, b=None: a, inputs=[left, right])
    assert not flow["both"].takes_each_input
    assert flow["each"].takes_each_input and flow["maybe"].takes_each_input


def test_the_schema_of_a_row_function_may_be_positional() -> None:
    flow = penstock.Dataflow("f")
    doubled = numbers(flow).rows("double", lambda row: row, "n bigint")
    flow.rows("both", lambda row: row, "n bigint", inputs=[doubled])
    assert flow["double"].columns == flow["both"].columns == ("n",)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"threads": 0}, "threads of 'call' = 0 is not possible"),
        ({"threads": 2, "timeout_s": 0}, "timeout_s=0; give a finite number"),
        ({"retries": -1}, "retries=-1; give 0 or more"),
        ({"threads": 2, "ordered": "some"}, "ordered='some'; give True"),
        ({"threads": 2, "ordered": "key"}, "ordered='key' but no keys"),
        ({"threads": 2, "keys": ["key"]}, "without ordered='key'"),
        ({"threads": 2, "ordered": "key", "keys": ["user"]}, "'user', which its input 'numbers' does not have"),
        ({"dead_letters": True, "schema": "dead_letter string"}, "column 'dead_letter', which is reserved"),
    ],
)
def test_concurrent_calls_are_checked_when_they_are_declared(options: dict[str, object], says: str) -> None:
    with pytest.raises(DataflowError, match=says):
        numbers(penstock.Dataflow("f")).rows("call", same, **{"schema": "n bigint"} | options)  # type: ignore[arg-type]


def test_dead_letters_are_a_second_stream_behind_a_cut() -> None:
    flow = penstock.Dataflow("f")
    results = numbers(flow).rows("call", same, "n bigint", dead_letters=True)
    results.sink("out", penstock.noop())
    with pytest.raises(DataflowError, match="No operator reads the output of 'call_dead_letters'"):
        flow.check()
    results.dead_letters.sink("failed", penstock.noop())
    assert penstock.default_plan(flow).cuts == {"call"}
    assert flow["call_dead_letters"].columns == ("operator", "row", "error", "attempts")
    with pytest.raises(
        DataflowError, match=r"'again' has no dead letters; declare it with rows\(..., dead_letters=True"
    ):
        _ = numbers(flow, "others").rows("again", same, "n bigint").dead_letters
