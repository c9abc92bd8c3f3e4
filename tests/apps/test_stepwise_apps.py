"""The operators of the profiled applications, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.apps.stepwise import (
    diamond,
    lexicon,
    linear,
    multilingual_tweets,
    star,
    tweets,
    twitter_sentiment,
    waiting_word_count,
    word_count,
)
from penstock.apps.stepwise.languages import detected_language
from penstock.apps.stepwise.work import COLUMNS, Work, copies, worked, worked_frames
from penstock.dataflow import Kind
from penstock.study.stepwise.operator_types import OperatorType


def row_of(n: int) -> dict[str, object]:
    return dict(zip(tweets.COLUMNS, tweets.generator(n), strict=True))


@given(st.integers(0, 10_000), st.floats(0, 20))
def test_the_mean_number_of_copies_is_the_selectivity(first: int, selectivity: float) -> None:
    total = sum(copies(first + i, selectivity) for i in range(100))
    assert abs(total - 100 * selectivity) <= 1.0 + 1e-6


def test_stages_choose_rows_independently() -> None:
    kept = [id_ for id_ in range(4_000) if copies(id_, 0.5) and copies(id_, 0.5, 1) and copies(id_, 0.5, 2)]
    assert len(kept) == pytest.approx(4_000 / 8, rel=0.15)
    assert all(copies(id_, 2.0, stage) == 2 for id_ in range(100) for stage in range(3))


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


@pytest.mark.parametrize("app", [linear, diamond, star])
def test_work_and_selectivity_can_be_chosen(app: ModuleType) -> None:
    count = len(app.OPERATORS)
    flow = app.flow(rows=5, work="json", selectivity=2.0)
    app.behaviour(work="json", selectivity=2.0).check(flow)
    lengths = [len(json.loads(tweets.tweet(n))["text"]) for n in range(5)]
    # Operators on a path add their scores; each of them emits two rows per row, except for the outer ones of the star.
    added, copied = {"linear": (3, 8), "diamond": (1, 4 * 2), "star": (2, 2 * 2 * 2)}[flow.name]
    expected = Counter({(n, added * length): copied for n, length in enumerate(lengths)})
    assert app.oracle(5, work="json", selectivity=2.0) == expected
    with pytest.raises(penstock.DataflowError, match="sleep"):
        app.flow(work="sleep")
    with pytest.raises(penstock.DataflowError, match=f"the work of {count} operators"):
        app.flow(work=["cpu"])


def test_both_word_counts_have_the_same_result() -> None:
    expected = Counter(word for n in range(20) for word in json.loads(tweets.tweet(n))["text"].split())
    assert word_count.oracle(20) == waiting_word_count.oracle(20) == expected
    assert waiting_word_count.wait({"value": "to be"}) == {"value": "to be"}


@pytest.mark.parametrize("name", ["linear", "diamond", "star", "word_count", "waiting_word_count", "twitter_sentiment"])
def test_the_behaviour_fits_the_dataflow(name: str) -> None:
    app = import_module(f"penstock.apps.stepwise.{name}")
    app.behaviour().check(app.flow())


def test_sentiment_analysis_is_a_tree_of_eleven_operators_and_eight_stages() -> None:
    flow = twitter_sentiment.flow()
    operators = [operator for operator in flow.operators if operator.kind is not Kind.SINK]
    assert len(operators) == 11
    depth = {}
    for operator in operators:
        assert len(operator.inputs) == (0 if operator.kind is Kind.SOURCE else 1)  # a tree
        depth[operator.name] = 1 + max((depth[name] for name in operator.inputs), default=0)
    assert max(depth.values()) == 8
    assert twitter_sentiment.TYPES.keys() <= depth.keys()
    assert set(twitter_sentiment.TYPES.values()) <= {kind.value for kind in OperatorType}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Our neighbours bought a small boat and they are very proud of it.", "en"),
        ("I think this is where you should have turned left", "en"),
        ("Unsere Nachbarn haben ein kleines Boot gekauft und sind sehr stolz darauf.", "de"),
        ("Ich glaube, hier hättest du links abbiegen müssen", "de"),
        ("Nuestros vecinos compraron un barco pequeño y están muy orgullosos de él.", "es"),
        ("Creo que aquí tenías que girar a la izquierda", "es"),
        ("Nos voisins ont acheté un petit bateau et ils en sont très fiers.", "fr"),
        ("Je crois que c'est ici que tu devais tourner à gauche", "fr"),
    ],
)
def test_languages_of_sentences_that_are_not_in_the_profiles(text: str, language: str) -> None:
    assert detected_language(text) == language


def test_detected_languages_are_those_of_the_generator() -> None:
    detected = [twitter_sentiment.language({"tweet": multilingual_tweets.generator(n)}) for n in range(1000)]
    right = [row["language"] == multilingual_tweets.language_of(n) for n, row in enumerate(detected)]
    assert sum(right) >= 970
    lengths = {len(row["text"].split()) for row in detected}
    assert min(lengths) == 4 and max(lengths) >= 20


def test_rows_are_not_later_than_the_watermark_allows() -> None:
    rows = 500
    times = [twitter_sentiment.language({"tweet": multilingual_tweets.generator(n, rows)})["at"] for n in range(rows)]
    latest = times[0]
    for before, at in pairwise(times):
        latest = max(latest, before)
        assert (latest - at).total_seconds() < multilingual_tweets.WATERMARK_DELAY_S


def test_valences_cover_the_whole_scale() -> None:
    assert set(lexicon.VALENCES.values()) == {-5, -4, -3, -2, -1, 1, 2, 3, 4, 5}
    assert lexicon.sentiment("Never bad! Superb, superb.") == 2 + 5 + 5


def test_the_oracle_averages_scores_and_ranks_hashtags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four tweets in the first window and one that closes it, counted by hand."""

    def tweet(at_s: int, text: str) -> str:
        return json.dumps({"created_at": f"2026-01-01T00:00:{at_s:02}+00:00", "place": "oslo", "text": text})

    given = [
        tweet(1, "the train was good this morning #b #a"),  # 2
        tweet(6, "the people in the house are terrible #a"),  # -4
        tweet(7, "das wetter in der stadt ist horrible #c #b"),  # German: no score
        tweet(9, "what the children said was not nice #d"),  # -2
        tweet(40, "the end of the story"),
    ]
    monkeypatch.setattr(twitter_sentiment, "generator", lambda n, rows: given[n])
    start_ms = 1_767_225_600_000  # 2026-01-01, midnight
    rankings = {  # windows of ten seconds, every five seconds
        5: [("#a", 1), ("#b", 1)],
        10: [("#a", 2), ("#b", 2), ("#c", 1), ("#d", 1)],
        15: [("#a", 1), ("#b", 1), ("#c", 1), ("#d", 1)],
    }
    expected = Counter({(start_ms + 10_000, "sentiment", 0, (2 - 4 - 2) / 3): 1})
    for end_s, tags in rankings.items():
        for rank, (tag, count) in enumerate(tags, start=1):
            expected[start_ms + 1000 * end_s, tag, rank, float(count)] += 1
    assert twitter_sentiment.oracle(len(given)) == expected


def test_tweets_are_stored_in_a_file_of_the_process(tmp_path: Path) -> None:
    rows = [{"tweet": multilingual_tweets.generator(n)} for n in range(3)]
    assert [twitter_sentiment.store(row, str(tmp_path)) for row in rows] == rows
    (file,) = tmp_path.iterdir()
    assert file.read_text().splitlines() == [row["tweet"] for row in rows]
    assert twitter_sentiment.store(rows[0], None) == rows[0]
