"""Results of two dataflows on Spark, as one batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps.stepwise import linear, star, twitter_sentiment, waiting_word_count, word_count
from penstock.engines.spark.batch_result import batch_results, input_samples, row_sizes

pytestmark = pytest.mark.spark


def test_the_batch_result_is_that_of_the_oracle(spark: SparkSession) -> None:
    for app, rows in ((word_count, 100), (star, 12)):
        flow = app.flow(rows=rows)
        (output,) = batch_results(flow, input_samples(flow, rows), spark).values()
        assert app.check(output, rows) == []
    # In a batch all windows are complete, also those that a stream leaves open.
    flow = twitter_sentiment.flow(rows=400)
    (output,) = batch_results(flow, input_samples(flow, 400), spark).values()
    assert not twitter_sentiment.oracle(400) - twitter_sentiment.actual(output)
    # Spark has no applyInPandasWithState in batches.
    with pytest.raises(penstock.PenstockError, match="'linear' has no result of one batch.*--no-check"):
        batch_results(linear.flow(rows=4), input_samples(linear.flow(rows=4), 4), spark)


def test_equal_and_different_results(spark: SparkSession, tmp_path: Path) -> None:
    """The first rows of endless sources are compared, and different results are shown and not profiled."""
    costs: dict[str, Any] = {"behaviour_a": word_count.behaviour(), "slots": 4, "sample_rows": 60}
    same = penstock.compare(
        word_count.flow(), waiting_word_count.flow(), behaviour_b=waiting_word_count.behaviour(), at=tmp_path, **costs
    )
    assert same.check is not None and same.check.equal
    assert same.check.rows_a == len(word_count.oracle(60))
    assert same.faster == "a" and same.cause is not None and same.cause.operator == "wait"

    shouting = penstock.Dataflow("shouting")
    shouting.source("tweets", word_count.flow()["tweets"].source).rows(
        "parse", lambda row: {"word": row["tweet"][:1], "count": 1}, schema="word string, count bigint"
    ).sink("result", penstock.noop())
    other = penstock.compare(word_count.flow(), shouting, behaviour_b=word_count.behaviour(), **costs)
    assert other.check is not None and not other.check.equal and other.a is None
    assert (other.check.rows_b, other.check.differences[0].count_b) == (60, 0)


def test_files_are_sampled_and_other_sources_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    (tmp_path / "b.csv").write_text("n\n3\n4\n")
    flow = penstock.Dataflow("files")
    flow.source("rows", penstock.backlog(tmp_path / "*.csv", schema="n bigint")).sink("out", penstock.noop())
    assert input_samples(flow, 3)["rows"].to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]
    own = penstock.Dataflow("own")
    own.source("rows", penstock.spark_source(lambda spark: spark.readStream.format("rate").load())).sink(
        "out", penstock.noop()
    )
    with pytest.raises(penstock.PenstockError, match="do not compare results"):
        input_samples(own, 3)


def test_the_sizes_of_rows_are_measured_on_a_sample(spark: SparkSession) -> None:
    """A bigint has 8 bytes. A string has its characters and an offset of 4 bytes; no offset is longer than 8."""
    flow = penstock.Dataflow("sizes")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=1.0))
    texts = numbers.rows("text", lambda row: {"text": "x" * 100}, schema="text string")
    texts.rows("nothing", lambda row: [], schema="text string").sink("out", penstock.noop())
    sizes = row_sizes(flow, input_samples(flow, 20), spark)
    assert sizes["numbers"] == pytest.approx(8.0, abs=1.0)
    assert 100.0 <= sizes["text"] <= 110.0
    assert "nothing" not in sizes
