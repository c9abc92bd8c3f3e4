"""The engine: shapes of dataflows, failures that leave the old plan in force, and resuming."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playing import engine_for, play, rows_read, wait_until
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock as ps
from penstock.dataflow import Dataflow
from penstock.engines.spark import retries
from penstock.engines.spark.changeover import Changeover
from penstock.engines.spark.committed import Query
from penstock.engines.spark.directory import RunDirectory
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.executors import lasting
from penstock.engines.spark.executors.contract import Standing
from penstock.engines.spark.files import write_whole
from penstock.plan import default_plan

pytestmark = pytest.mark.spark


def numbers(flow: Dataflow, rows: int, rows_per_s: float | None = None, name: str = "numbers") -> ps.Stream:
    return flow.source(name, ps.generate(lambda n: n, schema="n bigint", rows=rows, rows_per_s=rows_per_s))


def test_fan_out_several_inputs_a_stateful_operator_and_a_user_s_sink(spark: SparkSession, tmp_path: Path) -> None:
    written: dict[str, list[int]] = {}

    def keep(df: DataFrame, key: str) -> None:
        written[key] = [row.n for row in df.collect()]

    flow = ps.Dataflow("shapes")
    both = flow.stateless("both", inputs=[numbers(flow, 300), numbers(flow, 200, name="more")])
    both.sink("all", ps.foreach_batch(keep))
    total = both.stateful("total", lambda df: df.groupBy().agg(F.sum("n").alias("s"), F.count("*").alias("c")))
    total.stateless("shown", lambda df: df.select("s", "c")).sink("sums", ps.parquet(str(tmp_path / "sums")))
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        play(engine, [ps.rescaled(flow, engine.plan, {"both": 3, "shown": 1})])
        assert Counter(n for some in written.values() for n in some) == Counter([*range(300), *range(200)])
        last = spark.read.parquet(str(tmp_path / "sums")).orderBy(F.desc("c")).first()
        assert (last.s, last.c) == (sum(range(300)) + sum(range(200)), 500)
    finally:
        engine.stop()


def test_a_loop_brings_rows_back_until_they_are_done(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Dataflow("collatz")
    back = flow.feedback("back", "n bigint, steps bigint")
    seeds = numbers(flow, 40).stateless("seed", lambda df: df.selectExpr("n + 1 as n", "cast(0 as bigint) as steps"))
    halved = flow.stateless(
        "halve", lambda df: df.selectExpr("n div 2 as n", "steps + 1 as steps"), inputs=[seeds, back]
    )
    halved.stateless("again", lambda df: df.where("n > 0")).feed(back)
    halved.stateless("done", lambda df: df.where("n = 0").select("steps")).sink("out", ps.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(engine.idle, engine)
        assert Counter(row["steps"] for row in engine.rows("out")) == Counter(n.bit_length() for n in range(1, 41))
    finally:
        engine.stop()


def test_files_are_read_as_they_appear_and_replayed_at_a_rate(spark: SparkSession, tmp_path: Path) -> None:
    drop, books = tmp_path / "drop", tmp_path / "books"
    drop.mkdir()
    books.mkdir()
    (drop / "empty.json").touch()
    (books / "empty.txt").touch()
    for part in range(3):
        (books / f"{part}.txt").write_text("".join(f"book {part} line {line}\n" for line in range(50)))
    flow = ps.Dataflow("texts")
    events = flow.source("events", ps.files(str(drop / "*.json"), schema="n bigint, word string"))
    events.sink("seen", ps.memory())
    flow.source("lines", ps.replay(str(books / "*.txt"), rows_per_s=5)).sink("read", ps.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        engine.set_rate("lines", 5_000)
        for part in range(3):
            aside = tmp_path / f"{part}.json"
            aside.write_text("".join(f'{{"n": {10 * part + n}, "word": "w"}}\n' for n in range(10)))
            aside.rename(drop / f"{part}.json")
            wait_until(lambda part=part: len(engine.rows("seen")) == 10 * (part + 1), engine)
        wait_until(engine.idle, engine)
        assert sorted(row["n"] for row in engine.rows("seen")) == list(range(30))
        expected = [f"book {part} line {line}" for part in range(3) for line in range(50)]
        assert sorted(row["value"] for row in engine.rows("read")) == sorted(expected)
        with pytest.raises(ps.PenstockError, match="it has no rate to change"):
            engine.set_rate("events", 5)
    finally:
        engine.stop()


def failing(flow_rows: int, broken: list[bool]) -> Dataflow:
    """Its function can be made to fail when it is next compiled."""

    def doubled(df: DataFrame) -> DataFrame:
        return df.select(F.col("nowhere")) if broken[0] else df.selectExpr("n * 2 as m")

    flow = ps.Dataflow("failing")
    numbers(flow, flow_rows, 400).stateless("double", doubled).keyed(
        "count", keys=["m"], fn=lambda df: df.groupBy("m").count()
    ).sink("out", ps.memory())
    return flow


def test_a_failed_change_leaves_the_old_plan_and_every_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [False]
    flow = failing(2_000, broken)
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        before = engine.plan
        cut = ps.rescaled(flow, before, {"count": 3}).replace(cuts=frozenset({"double"}))

        broken[0] = True  # Spark refuses the query: nothing is stopped
        with pytest.raises(ps.DataflowError, match="operator 'double': .*nowhere"):
            engine.apply(cut)
        assert engine.plan == before and engine.failure() is None
        broken[0] = False

        def refuse(*_: Any) -> None:
            raise OSError("no space left")

        with monkeypatch.context() as patched:  # the middle of the change: queries are stopped, state is being moved
            patched.setattr(type(spark._streamingCheckpointManager), "repartition", refuse)
            with pytest.raises(ps.PenstockError, match="OSError: no space left; the old plan is in force again"):
                engine.apply(cut)
        assert engine.plan == before and engine.failure() is None

        def spoil(changeover: Changeover, *rest: Any) -> Query:
            query = prepare(changeover, *rest)
            for offsets in (tmp_path / "run" / "checkpoints" / query.checkpoint / "offsets").glob("[0-9]*"):
                write_whole(offsets, b"v9")
            return query

        prepare = Changeover._prepare
        with monkeypatch.context() as patched:  # a query that Spark cannot take up, which it says when it has started
            patched.setattr(Changeover, "_prepare", spoil)
            with pytest.raises(ps.PenstockError, match="pipeline 'out' does not start: "):
                engine.apply(cut)
        assert engine.plan == before

        with monkeypatch.context() as patched:  # the last moment before the commit
            patched.setattr("penstock.engines.spark.committed.Committed.save", refuse)
            with pytest.raises(ps.PenstockError, match="the old plan is in force again"):
                engine.apply(cut)
        assert engine.plan == before

        engine.apply(cut)
        assert engine.plan == cut
        wait_until(engine.idle, engine)
        rows = engine.rows("out")
        assert Counter(row["m"] for row in rows) == Counter(2 * n for n in range(2_000))
        assert all(row["count"] == 1 for row in rows)
    finally:
        engine.stop()


def test_bad_plans_harm_nothing_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    flow = failing(1_000, [False])
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        before = engine.plan
        for bad, says in (
            (before.replace(slots=7), "the plan has 7 slots but this run has 2"),
            (before.replace(dataflow="other"), "this plan is for dataflow 'other'"),
            (before.replace(replicas=before.replicas | {"count": 0}), "1 or more"),
        ):
            with pytest.raises(ps.PlanError, match=says):
                engine.apply(bad)
        assert engine.apply(before).stopped == ()
        wait_until(engine.idle, engine)
        assert len(engine.rows("out")) == 1_000
    finally:
        engine.stop()


def test_untouched_queries_are_not_stopped(spark: SparkSession, tmp_path: Path) -> None:
    flow = failing(1_500, [False])
    plan = default_plan(flow, slots=2).replace(cuts=frozenset({"double"}))
    engine = engine_for(flow, spark, tmp_path / "run", plan)
    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        before = {query.pipeline: engine.run_id(query) for query in engine.queries}
        assert engine.apply(ps.rescaled(flow, plan, {"count": 3})).stopped == ("out",)
        after = {query.pipeline: engine.run_id(query) for query in engine.queries}
        assert after["double"] == before["double"] and after["out"] != before["out"]
        wait_until(engine.idle, engine)
        assert len(engine.rows("out")) == 1_500
    finally:
        engine.stop()


def test_resuming_goes_on_where_it_was_and_another_dataflow_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = failing(1_500, [False])
    engine = engine_for(flow, spark, tmp_path / "run")
    engine.start()
    wait_until(lambda: rows_read(engine) > 0, engine)
    plan = ps.rescaled(flow, engine.plan, {"count": 3})
    engine.apply(plan)
    engine.stop()
    other = ps.Dataflow("failing")
    numbers(other, 10).sink("out", ps.memory())
    with pytest.raises(ps.PlanError, match="other operators, streams or keys"):
        engine_for(other, spark, tmp_path / "run").start()
    named = ps.Dataflow("named")
    numbers(named, 10).sink("out", ps.memory())
    with pytest.raises(ps.PlanError, match="holds a run of dataflow 'failing', not of 'named'"):
        engine_for(named, spark, tmp_path / "run").start()
    again = engine_for(flow, spark, tmp_path / "run")
    try:
        again.start()
        assert again.plan == plan
        wait_until(again.idle, again)
        assert Counter(row["m"] for row in again.rows("out")) == Counter(2 * n for n in range(1_500))
    finally:
        again.stop()
    (tmp_path / "run" / "plan.json").write_text('{"generation": "x"')
    with pytest.raises(ps.PenstockError, match="is not a committed plan"):
        engine_for(flow, spark, tmp_path / "run").start()


def test_a_function_that_fails_at_run_time_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def fail(row: dict[str, int]) -> dict[str, int]:
        if row["n"] == 7:
            raise ValueError("seven is not allowed")
        return row

    flow = ps.Dataflow("raising")
    numbers(flow, 100).rows("check", fail, "n bigint").sink("out", ps.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        deadline = time.monotonic() + 60
        while engine.failure() is None and time.monotonic() < deadline:
            engine.mend()
            time.sleep(0.1)
        failure = engine.failure()
        assert failure is not None and "pipeline 'out' failed" in failure and "seven is not allowed" in failure
    finally:
        engine.stop()


def test_executors_that_do_not_come_back_are_not_counted_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "LOOK_S", 0.0)
    flow = ps.Dataflow("lonely")
    numbers(flow, 10).rows("work", lambda row: row, "n bigint").sink("out", ps.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        there = {"one": Standing(planned=2, requested=2, observed=("1",))}
        engine._executors = SimpleNamespace(slots_each=1, standing=lambda: there["one"])
        engine._lasting.patience_s = 0.2
        assert engine.mend() == () and engine.plan.slots == 2  # it may come back
        wait_until(lambda: engine.plan.slots == 1 or bool(engine.mend()), engine)
        assert engine.plan.slots == 1 and engine.plan.replicas == {"work": 2}
        there["one"] = Standing(planned=2, requested=2, observed=("1", "7"))
        wait_until(lambda: "goes on with 2 slots instead of 1" in str(engine.mend()), engine)
        assert engine.plan.slots == 2
    finally:
        engine.stop()


def test_a_query_that_falls_is_started_again_and_given_up_only_where_it_stands_still(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first row of its kind fails once, as a lost worker would; the second fails whenever it comes."""
    monkeypatch.setattr(retries, "WAITS_S", (0.0, 0.1, 0.2))
    stumbled, healed = tmp_path / "stumbled", tmp_path / "healed"

    def work(row: dict[str, int]) -> dict[str, int]:
        if row["n"] == 700 and not stumbled.exists():
            stumbled.touch()
            raise OSError("a passing error")
        if row["n"] == 1_400 and not healed.exists():
            raise ValueError("an error that stays")
        return row

    flow = ps.Dataflow("falling")
    numbers(flow, 1_500).rows("work", work, "n bigint").sink("out", ps.memory())
    engine = engine_for(flow, spark, tmp_path / "run", most_rows_a_batch=300)
    said: list[str] = []
    try:
        engine.start()
        deadline = time.monotonic() + 90
        while engine.failure() is None and time.monotonic() < deadline:
            said += engine.mend()
            time.sleep(0.05)
        assert [("a passing error" in one, "an error that stays" in one) for one in said] == [
            (True, False),
            *3 * [(False, True)],
        ]
        failure = engine.failure()
        assert failure is not None and "an error that stays (4 times at the same place)" in failure
        healed.touch()
        engine.restart(engine.queries[0])
        comes_to_its_end(engine, rows=1_500)
    finally:
        engine.stop()


def comes_to_its_end(engine: SparkEngine, rows: int) -> None:
    """With each of so many rows once."""
    wait_until(engine.idle, engine)
    assert Counter(row["n"] for row in engine.rows("out")) == Counter(range(rows))


def test_a_plan_that_is_in_force_stays_also_where_the_old_one_cannot_be_cleared_away(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = ps.Dataflow("cluttered")
    numbers(flow, 900, rows_per_s=300).stateless("same", lambda df: df).sink("out", ps.memory())
    engine = engine_for(flow, spark, tmp_path / "run")

    def fails(*_: Any, **__: Any) -> None:
        raise PermissionError("not yours")

    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        with monkeypatch.context() as broken:
            broken.setattr(RunDirectory, "clear", fails)
            engine.apply(ps.rescaled(flow, engine.plan, {"same": 1}))
        assert engine.generation == 2
        comes_to_its_end(engine, rows=900)
    finally:
        engine.stop()


def test_a_change_that_failed_leaves_nothing_in_the_way_of_the_same_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try's query makes its first batch, which is empty, and is stopped; the second's has the same name."""
    flow = ps.Dataflow("again")
    first = numbers(flow, 900, rows_per_s=200).stateless("first", lambda df: df)
    first.stateless("second", lambda df: df).sink("out", ps.memory())
    whole = default_plan(flow, slots=2)
    engine = engine_for(flow, spark, tmp_path / "run", whole.replace(cuts=frozenset({"first"})))
    commit = SparkEngine._commit

    def fails(engine: SparkEngine, *rest: Any) -> None:
        offsets = engine.run / "checkpoints" / "out_g2" / "offsets"
        deadline = time.monotonic() + 60
        while not any(offsets.glob("0")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        raise OSError("a passing error")

    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        monkeypatch.setattr(SparkEngine, "_commit", fails)
        with pytest.raises(ps.PenstockError, match="a passing error; the old plan is in force again"):
            engine.apply(whole)
        monkeypatch.setattr(SparkEngine, "_commit", commit)
        assert engine.generation == 1
        engine.apply(whole)
        comes_to_its_end(engine, rows=900)
    finally:
        engine.stop()


def test_an_operator_feeds_itself_and_columns_go_by_name(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Dataflow("itself")
    back = flow.feedback("back", "n bigint, steps array<bigint>")
    seeds = numbers(flow, 20).stateless("seed", lambda df: df.selectExpr("n", "array(n) as steps"))
    halved = flow.stateless(
        "halve",
        lambda df: df.where("n > 0").selectExpr("concat(steps, array(n)) as steps", "n div 2 as n"),
        inputs=[seeds, back],
    )
    halved.feed(back)
    halved.stateless("done", lambda df: df.where("n = 0").selectExpr("size(steps) - 1 as steps")).sink(
        "out", ps.memory()
    )
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(engine.idle, engine)
        assert Counter(row["steps"] for row in engine.rows("out")) == Counter(n.bit_length() for n in range(1, 20))
    finally:
        engine.stop()
    wrong = ps.Dataflow("wrong")
    back = wrong.feedback("back", "n bigint")
    loop = wrong.stateless("loop", lambda df: df.selectExpr("'x' as n"), inputs=[numbers(wrong, 5), back])
    loop.feed(back)
    loop.sink("out", ps.memory())
    with pytest.raises(ps.DataflowError, match="the loop that 'loop' closes is declared with"):
        engine_for(wrong, spark, tmp_path / "wrong").start()


def test_keys_that_only_spark_can_see_are_checked_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Dataflow("unkeyed")
    numbers(flow, 10).stateless("f", lambda df: df.selectExpr("n as m")).keyed(
        "count", keys=["n"], fn=lambda df: df.groupBy("n").count()
    ).sink("out", ps.memory())
    with pytest.raises(ps.DataflowError, match="keyed by 'n', which its input does not have; its columns are m"):
        engine_for(flow, spark, tmp_path / "run").start()


def test_two_runs_may_write_to_one_folder(spark: SparkSession, tmp_path: Path) -> None:
    for part in range(2):
        flow = ps.Dataflow("writing")
        numbers(flow, 50).stateless("shift", lambda df, part=part: df.selectExpr(f"n + {100 * part} as n")).sink(
            "out", ps.parquet(str(tmp_path / "out"))
        )
        engine = engine_for(flow, spark, tmp_path / f"run{part}")
        try:
            engine.start()
            wait_until(engine.idle, engine)
        finally:
            engine.stop()
    written = sorted(row.n for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert written == [*range(50), *range(100, 150)]
