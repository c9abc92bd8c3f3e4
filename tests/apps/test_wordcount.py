from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.apps import wordcount
from penstock.dataflow import regions
from tests.support.plain_query import collect_stream, compose, write_files

ROWS = 2_000


def test_another_process_with_another_hash_seed_generates_the_same_lines() -> None:
    code = "from penstock.apps.wordcount import generator; print(*map(generator, range(50)), sep='\\n')"
    paths = ":".join(path for path in sys.path if path)
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": paths, "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.splitlines() == [wordcount.generator(n) for n in range(50)]


def test_words_follow_zipf() -> None:
    counts = wordcount.oracle(6_000)
    harmonic = sum(1 / rank for rank in range(1, wordcount.VOCABULARY + 1))
    total = sum(counts.values())
    assert total == 6_000 * 8  # four, eight and twelve in turn
    ranked = [n for _, n in counts.most_common(20)]
    for rank, n in enumerate(ranked[:10], start=1):
        assert n == pytest.approx(total / rank / harmonic, rel=0.15)
    assert len(counts) > wordcount.VOCABULARY / 2


def test_the_dataflow_has_a_stateless_and_a_keyed_region() -> None:
    flow = wordcount.flow()
    flow.check()
    assert [(region.operators, region.keys) for region in regions(flow)][1:] == [
        (("split",), ()),
        (("count", "out"), ("word",)),
    ]
    source = flow["lines"].source
    assert pickle.loads(pickle.dumps(source)) == source


def test_files_take_the_place_of_generated_lines_but_not_with_a_number_of_rows() -> None:
    assert wordcount.flow("books/*.txt", rows_per_s=10)["lines"].source == penstock.replay("books/*.txt", rows_per_s=10)
    with pytest.raises(penstock.DataflowError, match="rows is for generated data only"):
        wordcount.flow("books/*.txt", rows=10)


def test_the_check_sees_loss_and_repetition() -> None:
    words = wordcount.generator(0).split()  # four different words
    whole = [{"word": word, "count": 1} for word in words]
    assert len(set(words)) == 4
    assert wordcount.check(whole, 1) == []
    assert wordcount.check(whole[1:], 1) == [f"'{words[0]}': expected 1, got 0"]
    assert wordcount.check([*whole, {"word": words[0], "count": 2}], 1) == [f"'{words[0]}': expected 1, got 2"]
    assert wordcount.check([*whole, whole[0]], 1) == [f"'{words[0]}': count 1 was sent 2 times"]


@pytest.mark.spark
def test_in_one_batch_the_counts_are_the_oracle_s(plain_spark: Any) -> None:
    lines = plain_spark.createDataFrame([(wordcount.generator(n),) for n in range(ROWS)], "value string")
    output = [row.asDict() for row in compose(wordcount.flow(rows=ROWS), {"lines": lines}).collect()]
    assert wordcount.check(output, ROWS) == []


@pytest.mark.spark
def test_blanks_are_not_words(plain_spark: Any) -> None:
    lines = plain_spark.createDataFrame([("  to  be ",), ("",)], "value string")
    assert [row["word"] for row in wordcount.split(lines).collect()] == ["to", "be"]


@pytest.mark.spark
def test_as_a_stream_the_last_counts_are_the_oracle_s(plain_spark: Any, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "lines", map(wordcount.generator, range(ROWS)), [1, 800, 0])
    lines = plain_spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    output = collect_stream(compose(wordcount.flow(rows=ROWS), {"lines": lines}), tmp_path / "checkpoint", "update")
    assert len(output) > len(wordcount.oracle(ROWS))  # counts were updated from batch to batch
    assert wordcount.check(output, ROWS) == []
