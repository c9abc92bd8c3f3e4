"""The operators of the profiled applications, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps.stepwise import diamond, linear, star, tweets, waiting_word_count, word_count
from penstock.apps.stepwise.work import COLUMNS, Work, copies, worked, worked_frames


def row_of(n: int) -> dict[str, object]:
    return dict(zip(tweets.COLUMNS, tweets.generator(n), strict=True))


@given(st.integers(0, 10_000), st.floats(0, 20))
def test_the_mean_number_of_copies_is_the_selectivity(first: int, selectivity: float) -> None:
    total = sum(copies(first + i, selectivity) for i in range(100))
    assert abs(total - 100 * selectivity) <= 1.0 + 1e-6


def test_tweets_have_texts_of_varying_length() -> None:
    texts = [json.loads(tweets.tweet(n))["text"].split() for n in range(300)]
    assert {len(words) for words in texts} == {4, 8, 12}
    assert sum(map(len, texts)) / 300 == tweets.WORDS_PER_TWEET


def test_work_adds_to_the_score_and_keeps_the_row() -> None:
    row = row_of(7)
    (once,) = worked(row, Work.JSON)
    (twice,) = worked(once, Work.JSON)
    length = len(json.loads(tweets.tweet(7))["text"])
    assert (once["score"], twice["score"]) == (length, 2 * length)
    assert {name: twice[name] for name in tweets.COLUMNS} == row


def test_frames_are_processed_row_by_row() -> None:
    frames = [pd.DataFrame([row_of(n) for n in range(4)]), pd.DataFrame([row_of(n) for n in range(4, 6)])]
    results = list(worked_frames(iter(frames), Work.JSON, 0.5))
    assert [list(frame.columns) for frame in results] == [list(COLUMNS)] * 2
    assert [frame["id"].tolist() for frame in results] == [[1, 3], [5]]
    assert next(worked_frames(iter([frames[0].head(1)]), Work.JSON, 0.5)).empty


def test_linear_adds_three_scores() -> None:
    score = 1
    for _ in range(10_000):
        score = score * 48_271 % 2_147_483_647
    # The C++ standard gives this value for the 10,000th number of minstd_rand with seed 1.
    assert score == 399_268_537
    assert linear.oracle(1) == Counter({(0, 3 * score): 1})


def test_diamond_has_one_row_per_operator_and_star_one_per_source_and_outer_operator() -> None:
    assert diamond.oracle(3).total() == 3 * 4
    assert star.oracle(10).total() == 5 * 2 * 2


def test_both_word_counts_have_the_same_result() -> None:
    expected = Counter(word for n in range(20) for word in json.loads(tweets.tweet(n))["text"].split())
    assert word_count.oracle(20) == waiting_word_count.oracle(20) == expected
    assert waiting_word_count.wait({"value": "to be"}) == {"value": "to be"}


@pytest.mark.parametrize("name", ["linear", "diamond", "star", "word_count", "waiting_word_count"])
def test_the_behaviour_fits_the_dataflow(name: str) -> None:
    app = import_module(f"penstock.apps.stepwise.{name}")
    app.behaviour().check(app.flow())
