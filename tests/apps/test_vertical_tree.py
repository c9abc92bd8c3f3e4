from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.apps.mst import decision_tree, vertical_tree
from penstock.apps.mst.hoeffding import Example, Prediction
from penstock.apps.mst.vertical_hoeffding import Attempt, Model, Sorted, Split, Statistics, best_split
from penstock.apps.seeded_random import random_bits
from penstock.dataflow import regions
from tests.support.spark_runs import engine_for, play

ROWS = 1_200
SHAPE = {"features": 7, "classes": 3}
EXAMPLES = [decision_tree.example(*decision_tree.generator(n, **SHAPE)) for n in range(ROWS)]


def in_batches(examples: list[Example], sizes: list[int], chance: random.Random) -> tuple[list[Prediction], Model]:
    """Run the model and the statistics without Spark.

    Batches have random sizes and mix the order of their rows. Messages arrive after one to four batches, a request also
    before the rows that it counts. The model is saved and loaded between batches."""
    model, statistics = Model(**SHAPE), {}
    predicted: list[Prediction] = []
    to_statistics: list[list[tuple[int, int, int, int, int]]] = [[] for _ in range(8)]
    to_model: list[list[tuple[int, int, Split]]] = [[] for _ in range(8)]
    at = 0
    while at < len(examples) or any(to_statistics) or any(to_model):
        model = msgspec.json.decode(msgspec.json.encode(model), type=Model)
        coming = examples[at : at + chance.choice(sizes)]
        at += len(coming)
        chance.shuffle(coming)
        answers = to_model.pop(0)
        chance.shuffle(answers)
        said = [message for answer in answers for message in model.answer(*answer)] + list(model.learn(coming))
        for message in said:
            if isinstance(message, Sorted):
                predicted.append((*message.example[:2], message.predicted))
            for attribute in range(SHAPE["features"]):
                asked = message.rows if isinstance(message, Attempt) else 0
                value, label = (0, 0) if asked else (message.example[2][attribute], message.example[1])
                to_statistics[chance.randrange(4)].append((message.leaf, attribute, value, label, asked))
        by_key: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        batch = to_statistics.pop(0)
        chance.shuffle(batch)
        for leaf, attribute, *row in batch:
            by_key.setdefault((leaf, attribute), []).append((row[0], row[1], row[2]))
        for key, rows in by_key.items():
            known = statistics.setdefault(key, Statistics.empty(SHAPE["classes"]))
            split = known.batch(rows)
            if split is not None:
                to_model[chance.randrange(4)].append((*key, split))
        to_statistics.append([])
        to_model.append([])
    return predicted, model


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([1, 20, 90, 500]), min_size=1, max_size=3), st.integers(0, 10_000))
def test_predictions_do_not_depend_on_batches_their_order_or_the_lag_of_the_loop(sizes: list[int], seed: int) -> None:
    predicted, model = in_batches(EXAMPLES[:700], sizes, random.Random(seed))
    assert Counter(predicted) == vertical_tree.oracle(700, **SHAPE)
    assert not model.early and not any(leaf.held or leaf.asking for leaf in model.leaves.values())


def test_the_tree_splits_at_the_features_of_the_hidden_tree_and_learns_the_labels() -> None:
    """Node 1 of the hidden tree separates class 0 from node 2, which separates the others. One row in 16 is noise."""
    predicted, model = in_batches(EXAMPLES, [100], random.Random(1))
    for node in (1, 2):
        concept = random_bits(node, decision_tree._CONCEPT_SEED)
        attribute, threshold = model.nodes[node]
        assert attribute == (concept >> 8) % SHAPE["features"]
        assert threshold == pytest.approx(64 + concept % 128, abs=16)
    late = [label == guess for n, label, guess in predicted if n >= ROWS // 2]
    assert 0.8 < sum(late) / len(late) < 0.98


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2)), min_size=2, max_size=40))
def test_the_best_split_has_the_highest_mutual_information(rows: list[tuple[int, int]]) -> None:
    """The gain is the mutual information of the class and of the side, for each threshold by brute force."""

    def information(threshold: int) -> float:
        joint = Counter((value < threshold, label) for value, label in rows)
        sides, labels = Counter(value < threshold for value, _ in rows), Counter(label for _, label in rows)
        n = len(rows)
        return sum(k / n * math.log2(k * n / (sides[side] * labels[label])) for (side, label), k in joint.items())

    counts = [[0] * 3 for _ in range(16)]
    for value, label in rows:
        counts[value // 16][label] += 1
    split = best_split(counts)
    assert split.gain == pytest.approx(max(map(information, range(0, 256, 16))), abs=1e-9)
    assert split.gain == 0 or split.gain == pytest.approx(information(split.threshold), abs=1e-9)
    assert split.gain == 0 or split.left == tuple(
        sum(value < split.threshold and label == known for value, label in rows) for known in range(3)
    )


def test_the_statistics_have_replicas_and_the_model_has_one() -> None:
    flow = vertical_tree.flow(rows=ROWS, **SHAPE)
    flow.check()
    replicable = {region.operators[0]: region.replicable for region in regions(flow)}
    assert replicable == {"rows": True, "parse": True, "model": False, "attributes": True, "statistics": True} | {
        "predictions": True
    }
    with pytest.raises(penstock.DataflowError, match="give at least 1 feature and 2 classes"):
        vertical_tree.flow(features=0)


@pytest.mark.spark
@pytest.mark.soak  # a loop needs many small batches
def test_on_spark_the_predictions_are_the_oracle_s_also_through_a_plan_change(spark: Any, tmp_path: Path) -> None:
    """The root is not split after 100 rows, and is split after 200 rows."""
    rows, shape = 260, {"features": 4, "classes": 3}
    guesses = [guess for _, _, guess in sorted(vertical_tree.oracle(rows, **shape))]
    assert len(set(guesses[150:200])) == 1 < len(set(guesses[200:]))  # the tree has one leaf, and then two
    flow = vertical_tree.flow(rows=rows, rows_per_s=100, **shape)
    engine = engine_for(flow, spark, tmp_path / "run", penstock.default_plan(flow, slots=2, replicas={"statistics": 1}))
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"statistics": 2})])
        assert vertical_tree.check(engine.rows("out"), rows, **shape) == []
    finally:
        engine.stop()


def test_no_row_is_held_before_the_first_attempt() -> None:
    model = Model(**SHAPE)
    said = list(itertools.chain(model.learn(EXAMPLES[1:100]), model.learn(EXAMPLES[:1])))
    assert [message.example[0] for message in said if isinstance(message, Sorted)] == list(range(100))
    assert said[-1] == Attempt(leaf=1, rows=100)
    assert list(model.learn(EXAMPLES[100:130])) == []  # the root holds them back until it has all answers
