"""Operator classes on Spark: invocations batch by batch, order, types, output ports, timers, limits and errors."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.dataflow.operator_class import PortOperator
from penstock.engines.spark.compile.ports import apply_ports
from penstock.engines.spark.queries import retries
from penstock.operators import Barrier, TumblingWindow
from tests.support.port_operators import (
    Clock,
    Divided,
    Echo,
    Failing,
    Recorder,
    Scheduled,
    Storing,
    naive_calls,
    naive_calls_within,
)
from tests.support.spark_runs import engine_for, play, wait_until

pytestmark = pytest.mark.spark

BATCHES, ROWS, KEYS = 5, 40, 4
Batches = list[list[tuple[int, int, int]]]
COLUMNS = "port bigint, key bigint, n bigint"


def random_batches(seed: int) -> Batches:
    """Return batches of (port, key, n). The shares of the two ports differ between batches."""
    chance = random.Random(seed)
    batches: Batches = []
    for batch in range(BATCHES):
        share = chance.random()
        batches.append([(int(chance.random() < share), chance.randrange(KEYS), batch * ROWS + i) for i in range(ROWS)])
    return batches


def declared(instance: Any, **options: Any) -> PortOperator:
    """Return an operator as a dataflow declares it, with two ports."""
    flow = penstock.Dataflow("declared")
    source = penstock.generate(lambda n: (n, n), schema="key bigint, n bigint", rows=9)
    flow.operator("calls", instance, inputs=[flow.source(f"port{port}", source) for port in range(2)], **options)
    operator = flow["calls"].fn
    assert isinstance(operator, PortOperator)
    return operator


def emitted(
    spark: SparkSession, at: Path, batches: Batches, apply: Callable[[list[DataFrame]], DataFrame]
) -> list[dict[str, Any]]:
    """Run a streaming query with exactly these batches, one file for each, and return what it emits."""
    (at / "input").mkdir()
    for number, rows in enumerate(batches):
        file = at / "input" / f"{number}.parquet"
        columns = dict(zip(("port", "key", "n"), zip(*rows, strict=True), strict=True))
        pyarrow.parquet.write_table(
            pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}), file
        )
        os.utime(file, (1_700_000_000 + number,) * 2)
    output: list[dict[str, Any]] = []
    ports = [
        spark.readStream.schema(COLUMNS)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(at / "input"))
        .where(f"port = {port}")
        .select("key", "n")
        for port in range(2)
    ]

    def collect(df: DataFrame, _: int) -> None:
        output.extend(row.asDict(recursive=True) for row in df.collect())

    writer = apply(ports).writeStream.foreachBatch(collect).option("checkpointLocation", f"file://{at}/checkpoint")
    writer.outputMode("append").trigger(availableNow=True).start().awaitTermination()
    return output


@pytest.mark.parametrize(
    ("ports", "count", "rows"),
    [
        ("all", "exact", [2, 3]),
        ("all", "at least", [2, 1]),
        ("all", "equal", [2, 2]),
        ("any", "exact", [2, 3]),
        ("any", "at least", [3, 2]),
    ],
)
def test_invocations_of_random_batches(
    plain_spark: SparkSession, tmp_path: Path, ports: str, count: str, rows: Sequence[int]
) -> None:
    batches = random_batches(seed=len(ports + count))
    operator = declared(Recorder(), keys=["key"], ports=ports, count=count, rows=rows)
    output = emitted(
        plain_spark,
        tmp_path,
        batches,
        lambda frames: apply_ports(frames, "calls", operator, None, replicas=2, is_ordered=[True, True]),
    )
    calls = sorted((row["key"], row["call"], row["port"], row["ports"]) for row in output)
    assert calls == naive_calls(ports, count, rows, batches)
    assert len(calls) > 5


@pytest.mark.parametrize("overflow", ["drop oldest", "drop newest"])
def test_rows_beyond_the_limit_are_dropped(plain_spark: SparkSession, tmp_path: Path, overflow: str) -> None:
    batches = random_batches(seed=17)
    operator = declared(Recorder(), keys=["key"], ports="all", count="exact", rows=[2, 3], limit=3, overflow=overflow)
    output = emitted(
        plain_spark,
        tmp_path,
        batches,
        lambda frames: apply_ports(frames, "calls", operator, None, replicas=2, is_ordered=[True, True]),
    )
    calls = sorted((row["key"], row["call"], row["port"], row["ports"]) for row in output)
    expected, dropped = naive_calls_within(
        "all", "exact", [2, 3], batches, limit=3, drops_oldest=overflow == "drop oldest"
    )
    assert calls == expected and dropped > 5


def test_rows_without_an_order_are_sorted_within_a_batch(plain_spark: SparkSession, tmp_path: Path) -> None:
    batches = random_batches(seed=3)
    operator = declared(Recorder(), keys=["key"], order=["n"], ports="any", count="at least", rows=1)
    output = emitted(
        plain_spark,
        tmp_path,
        batches,
        lambda frames: apply_ports(
            [df.repartition(3) for df in frames],
            "calls",
            operator,
            None,
            replicas=2,
            is_ordered=[False, False],
        ),
    )
    calls = sorted((row["key"], row["call"], row["port"], row["ports"]) for row in output)
    assert calls == naive_calls("any", "at least", [1, 1], batches)


TYPES = {
    "long": "n",
    "text": "cast(n as string)",
    "price": "cast(n as decimal(10,2))",
    "bytes": "cast('x' as binary)",
    "time": "timestamp_seconds(1.7e9 + n)",
    "local_time": "cast(timestamp_seconds(1.7e9 + n) as timestamp_ntz)",
    "day": "date '2024-02-29'",
    "fraction": "cast(n as float) / 3",
    "nested": "named_struct('a', n, 'b', named_struct('time', timestamp_seconds(n)))",
    "list": "array(named_struct('q', n), null)",
    "map": "map('a', n)",
    "missing": "if(n % 2 = 0, n, null)",
}


def test_rows_are_the_same_after_they_have_waited(spark: SparkSession, tmp_path: Path) -> None:
    """A row of port 1 waits for many batches; the row of port 0 does not. Both are equal to a row of a row function."""
    flow = penstock.Dataflow("types")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=60, rows_per_s=30))
    typed = numbers.stateless(
        "typed", lambda df: df.selectExpr("n % 3 as key", *(f"{e} as {c}" for c, e in TYPES.items()))
    )
    early = typed.stateless("early", lambda df: df.where("long < 3"))
    late = typed.stateless("late", lambda df: df.where("long >= 57"))
    typed.rows(
        "plain", lambda row: {"key": row["key"], "row": repr(sorted(row.items()))}, schema="key bigint, row string"
    ).sink("rows", penstock.memory())
    both = flow.operator("both", Echo(), inputs=[early, late], keys=["key"])
    both.sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"both": 3})])
        plain = Counter(row["row"] for row in engine.rows("rows"))
        assert len(plain) == 60
        output = Counter(row["row"] for row in engine.rows("out"))
        assert output.total() == 6
        assert output <= plain
    finally:
        engine.stop()


def test_output_ports_timers_and_a_global_state(spark: SparkSession, tmp_path: Path) -> None:
    """Their plan changes while they run. An operator without a schedule discards its rows, and tasks are closed."""
    closed = tmp_path / "closed"
    flow = penstock.Dataflow("kinds")
    source = penstock.generate(lambda n: (n % 2, n), schema="key bigint, n bigint", rows=40, rows_per_s=40)
    numbers = flow.source("numbers", source)
    even, odd = flow.operator("divided", Divided(str(closed)), inputs=[numbers])
    assert (even.name, odd.name) == ("divided_even", "divided_odd")
    clock = flow.operator("clock", Clock(str(closed)), inputs=[even], keys=["key"], seconds=0.2)
    clock.sink("ticks", penstock.memory())
    silent = flow.operator("silent", Scheduled(), inputs=[odd], global_state=True, when=penstock.never())
    silent.sink("silence", penstock.memory())
    recorder = flow.operator("all", Recorder(), inputs=[odd], global_state=True, ports="any", count="exact", rows=5)
    recorder.sink("fives", penstock.memory())
    nothing = even.stateless("nothing", lambda df: df.where("false").select("n"))
    starved = {"ports": "all", "count": "exact", "rows": 1, "limit": 3, "overflow": "drop oldest"}
    flow.operator("starved", Recorder(), inputs=[odd, nothing], global_state=True, **starved).sink(
        "none", penstock.noop()
    )
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        more = penstock.rescaled(flow, engine.plan, {"clock": 3})
        play(engine, [more, more.replace(replicas=more.replicas | {"clock": 2}, cuts=more.cuts | {"numbers", "clock"})])
        assert engine.rows("silence") == []
        assert set(closed.read_text().split()) == {"divided", "clock"}
        ticks = [row["rows"] for row in engine.rows("ticks")]
        assert ticks == sorted(ticks)
        assert ticks[-1] == 20
        assert all(row["is_multiple"] for row in engine.rows("ticks"))
        odds = list(range(1, 40, 2))
        received = [(row["key"], row["call"], row["ports"]) for row in engine.rows("fives")]
        assert received == [(None, i + 1, str([odds[5 * i : 5 * i + 5]])) for i in range(4)]
        dropped = {operator.operator: operator.dropped_rows_total for operator in engine.observe().operators}
        assert dropped["starved"] == 20 - 3
        assert dropped["all"] is None
    finally:
        engine.stop()


def test_two_operators_in_one_query_under_changes_of_replicas_and_cuts(spark: SparkSession, tmp_path: Path) -> None:
    """Pairs of rows, and a window of three pairs: the order of the pairs of a key must not change."""
    rows, keys = 1_200, 7
    flow = penstock.Dataflow("two")
    inputs = [
        flow.source(
            f"s{i}",
            penstock.generate(lambda n: (n * n % keys, n), schema="key bigint, n bigint", rows=rows, rows_per_s=400),
        )
        for i in range(2)
    ]
    pair = Barrier(lambda left, right: {"key": left["key"], "n": left["n"], "other": right["n"]})
    pairs = flow.operator("pairs", pair, inputs=inputs, keys=["key"], schema="key bigint, n bigint, other bigint")
    window = TumblingWindow(
        3, lambda some: {"key": some[0]["key"], "all": str([(each["n"], each["other"]) for each in some])}
    )
    windows = flow.operator("windows", window, inputs=[pairs], keys=["key"], schema="key bigint, all string")
    windows.sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", penstock.default_plan(flow, slots=2, replicas={"pairs": 2}))
    try:
        engine.start()
        assert len(engine.queries) == 1
        more = penstock.rescaled(flow, engine.plan, {"pairs": 3})
        play(engine, [more, more.replace(cuts=more.cuts | {"pairs"})])
        expected: Counter[tuple[int, str]] = Counter()
        for key in range(keys):
            of_key = [n for n in range(rows) if n * n % keys == key]
            for low in range(0, len(of_key) - 2, 3):
                expected[key, str([(n, n) for n in of_key[low : low + 3]])] += 1
        assert Counter((row["key"], row["all"]) for row in engine.rows("out")) == expected
    finally:
        engine.stop()


@pytest.mark.parametrize(
    ("instance", "options", "message"),
    [
        (Failing(), {}, "ZeroDivisionError"),
        (Storing(), {"keys": ["n"]}, "ctx.state['seen'] is of type builtins.set"),
        (
            Recorder(),
            {"global_state": True, "limit": 5, "ports": "all", "count": "exact", "rows": 5},
            "rows wait at port 0 of operator 'fails', but limit=5",
        ),
    ],
)
def test_errors_name_the_operator_the_line_and_the_row(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    instance: Any,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr(retries, "RETRY_DELAYS_S", (0.0,))
    flow = penstock.Dataflow("fails")
    numbers = [
        flow.source(f"s{i}", penstock.generate(lambda n: n, schema="n bigint", rows=10 * (1 - i))) for i in range(2)
    ]
    flow.operator("fails", instance, inputs=numbers, **options).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        with pytest.raises(AssertionError) as failure:
            wait_until(lambda: False, engine)
        text = str(failure.value)
        assert "operator 'fails'" in text
        assert message in text
        if isinstance(instance, Failing):
            assert "port_operators.py, line " in text
            assert "row: {'n': 7}" in text
    finally:
        engine.stop()
