"""The engine: topologies of dataflows, queries that a change does not affect, and resuming."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.sources.paced import PaceFile
from penstock.plan import default_plan
from tests.support.number_flows import failing, numbers
from tests.support.spark_runs import engine_for, play, rows_read, wait_until

pytestmark = pytest.mark.spark


def test_fan_out_several_inputs_a_global_state_and_a_user_s_sink(spark: SparkSession, tmp_path: Path) -> None:
    written: dict[int, list[int]] = {}

    def keep(df: DataFrame, batch_id: int) -> None:
        last = max(written, default=-1)  # only the last batch may be repeated, also after the change of plan
        assert batch_id in (last, last + 1) and batch_id >= 0
        written[batch_id] = [row.n for row in df.collect()]

    flow = penstock.Dataflow("shapes")
    both = flow.stateless("both", inputs=[numbers(flow, 300), numbers(flow, 200, name="more")])
    both.sink("all", penstock.foreach_batch(keep))
    total = both.global_state("total", lambda df: df.groupBy().agg(F.sum("n").alias("s"), F.count("*").alias("c")))
    total.stateless("shown", lambda df: df.select("s", "c")).sink("sums", penstock.parquet(str(tmp_path / "sums")))
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"both": 3, "shown": 1})])
        assert Counter(n for some in written.values() for n in some) == Counter([*range(300), *range(200)])
        last = spark.read.parquet(str(tmp_path / "sums")).orderBy(F.desc("c")).first()
        assert (last.s, last.c) == (sum(range(300)) + sum(range(200)), 500)
    finally:
        engine.stop()


def test_the_clock_of_a_paced_source_starts_when_all_queries_have_made_their_first_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = penstock.Dataflow("clock")
    source = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=200))
    source.stateless("same", lambda df: df).sink("out", penstock.memory())
    plan = default_plan(flow, slots=2).replace(cuts=frozenset({"same"}))
    run = tmp_path / "run"
    for _ in range(2):  # a new run and a resumed one
        engine = engine_for(flow, spark, run, plan)
        before = {folder.name: Checkpoint(folder).committed() for folder in run.glob("checkpoints/*")}
        try:
            engine.start()
            started = PaceFile(run / "sources" / "numbers.pace.json").load().legs[-1]
            for query in engine.queries:
                committed = before.get(query.checkpoint)
                batch = 0 if committed is None else committed + 1
                commit = run / "checkpoints" / query.checkpoint / "commits" / str(batch)
                assert commit.stat().st_mtime <= started.at_s
            assert started.rows_per_s == 200
            reached = rows_read(engine) + 50
            wait_until(lambda engine=engine, reached=reached: rows_read(engine) > reached, engine)
            numbers_out = [row["n"] for row in engine.rows("out")]
            assert sorted(numbers_out) == list(range(len(numbers_out)))
        finally:
            engine.stop()


def test_ctrl_c_does_not_cancel_the_jobs_of_queries(spark: SparkSession) -> None:
    """PySpark's own handler would cancel the jobs of queries, and the queries would fail."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loop_brings_rows_back_until_they_are_done(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("collatz")
    back = flow.feedback("back", schema="n bigint, steps bigint")
    seeds = numbers(flow, 40).stateless("seed", lambda df: df.selectExpr("n + 1 as n", "cast(0 as bigint) as steps"))
    halved = flow.stateless(
        "halve", lambda df: df.selectExpr("n div 2 as n", "steps + 1 as steps"), inputs=[seeds, back]
    )
    halved.stateless("again", lambda df: df.where("n > 0")).feed(back)
    halved.stateless("done", lambda df: df.where("n = 0").select("steps")).sink("out", penstock.memory())
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
    flow = penstock.Dataflow("texts")
    events = flow.source("events", penstock.files(str(drop / "*.json"), schema="n bigint, word string"))
    events.sink("seen", penstock.memory())
    flow.source("lines", penstock.replay(str(books / "*.txt"), rows_per_s=5)).sink("read", penstock.memory())
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
        with pytest.raises(penstock.PenstockError, match="it has no rate that can be changed"):
            engine.set_rate("events", 5)
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
        assert engine.apply(penstock.rescaled(flow, plan, {"count": 3})).stopped == ("out",)
        after = {query.pipeline: engine.run_id(query) for query in engine.queries}
        assert after["double"] == before["double"] and after["out"] != before["out"]
        wait_until(engine.idle, engine)
        assert len(engine.rows("out")) == 1_500
        rescaled = engine.apply(penstock.rescaled(flow, engine.plan, {"count": 2}))
        assert rescaled.moved_rows == 1_500 and rescaled.moved_bytes  # each row has a key of its own
        fused = engine.apply(engine.plan.replace(cuts=frozenset()))
        assert (fused.moved_rows, fused.moved_bytes) == (0, 0)
    finally:
        engine.stop()


def test_a_resumed_run_continues_and_another_dataflow_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = failing(1_500, [False])
    engine = engine_for(flow, spark, tmp_path / "run")
    engine.start()
    wait_until(lambda: rows_read(engine) > 0, engine)
    plan = penstock.rescaled(flow, engine.plan, {"count": 3})
    engine.apply(plan)
    engine.stop()
    other = penstock.Dataflow("failing")
    numbers(other, 10).sink("out", penstock.memory())
    with pytest.raises(penstock.PlanError, match="other operators, streams or keys"):
        engine_for(other, spark, tmp_path / "run").start()
    named = penstock.Dataflow("named")
    numbers(named, 10).sink("out", penstock.memory())
    with pytest.raises(penstock.PlanError, match="contains a run of dataflow 'failing', not of 'named'"):
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
    with pytest.raises(penstock.PenstockError, match="is not a valid committed plan"):
        engine_for(flow, spark, tmp_path / "run").start()


def test_an_operator_feeds_itself_and_columns_go_by_name(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("itself")
    back = flow.feedback("back", schema="n bigint, steps array<bigint>")
    seeds = numbers(flow, 20).stateless("seed", lambda df: df.selectExpr("n", "array(n) as steps"))
    halved = flow.stateless(
        "halve",
        lambda df: df.where("n > 0").selectExpr("concat(steps, array(n)) as steps", "n div 2 as n"),
        inputs=[seeds, back],
    )
    halved.feed(back)
    halved.stateless("done", lambda df: df.where("n = 0").selectExpr("size(steps) - 1 as steps")).sink(
        "out", penstock.memory()
    )
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(engine.idle, engine)
        assert Counter(row["steps"] for row in engine.rows("out")) == Counter(n.bit_length() for n in range(1, 20))
    finally:
        engine.stop()
    for schema, message in (
        ("n bigint", "is declared with"),
        ("n bigintt", "has schema='n bigintt', which Spark cannot parse"),
    ):
        wrong = penstock.Dataflow("wrong")
        back = wrong.feedback("back", schema=schema)
        loop = wrong.stateless("loop", lambda df: df.selectExpr("'x' as n"), inputs=[numbers(wrong, 5), back])
        loop.feed(back)
        loop.sink("out", penstock.memory())
        with pytest.raises(penstock.DataflowError, match=f"the loop that 'loop' closes {message}"):
            engine_for(wrong, spark, tmp_path / "wrong").start()


def test_columns_keep_names_that_are_ambiguous_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Names contain a dot or differ only in case; rows pass cuts, row functions, watermarks and a sink."""

    def mirrored(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"A.B": -row["a.b"]}

    flow = penstock.Dataflow("names")
    made = penstock.generate(
        lambda n: (n, datetime.fromtimestamp(n, UTC)), schema="`a.b` bigint, `t.s` timestamp", rows=60
    )
    rows = flow.source("rows", made).watermark("t.s", "1 second")
    both = rows.rows("both", mirrored, schema="`a.b` bigint, `A.B` bigint, `t.s` timestamp")
    both.sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", default_plan(flow).replace(cuts=frozenset({"rows", "both"})))
    try:
        engine.start()
        wait_until(engine.idle, engine)
        expected = [{"a.b": n, "A.B": -n, "t.s": datetime.fromtimestamp(n, UTC)} for n in range(60)]
        assert sorted(engine.rows("out"), key=lambda row: row["a.b"]) == expected
    finally:
        engine.stop()


def test_keys_that_only_spark_knows_are_checked_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("unkeyed")
    numbers(flow, 10).stateless("f", lambda df: df.selectExpr("n as m")).keyed(
        "count", lambda df: df.groupBy("n").count(), keys=["n"]
    ).sink("out", penstock.memory())
    with pytest.raises(
        penstock.DataflowError, match="keyed by 'n', which is not a column of its input; the columns are m"
    ):
        engine_for(flow, spark, tmp_path / "run").start()


def test_two_runs_may_write_to_one_folder(spark: SparkSession, tmp_path: Path) -> None:
    for part in range(2):
        flow = penstock.Dataflow("writing")
        numbers(flow, 50).stateless("shift", lambda df, part=part: df.selectExpr(f"n + {100 * part} as n")).sink(
            "out", penstock.parquet(str(tmp_path / "out"), existing="append")
        )
        engine = engine_for(flow, spark, tmp_path / f"run{part}")
        try:
            engine.start()
            wait_until(engine.idle, engine)
        finally:
            engine.stop()
    written = sorted(row.n for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert written == [*range(50), *range(100, 150)]
