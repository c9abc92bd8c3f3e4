from __future__ import annotations

import itertools
import pickle
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.apps.mst import decision_tree, hoeffding
from penstock.dataflow import regions

ROWS = 1_200
SHAPE = {"features": 8, "classes": 3}


def examples() -> list[hoeffding.Example]:
    return [decision_tree.example(*decision_tree.generator(n, **SHAPE)) for n in range(ROWS)]


def test_the_hidden_tree_uses_every_class_and_one_label_in_sixteen_is_drawn() -> None:
    rows = [decision_tree.example(*decision_tree.generator(n)) for n in range(400)]
    assert {label for _, label, _ in rows} == set(range(decision_tree.CLASSES))
    assert {len(features) for _, _, features in rows} == {decision_tree.FEATURES}
    # Except for noise, the label is a function of the features, so it is mostly equal for other row numbers.
    same = [decision_tree.label(n + 1, features, 10) == label for n, label, features in rows]
    assert 0.8 < sum(same) / len(same) < 0.95


def test_the_tree_learns_the_labels_without_noise() -> None:
    """15 of 16 labels follow the hidden tree, and a third of the others agree by chance: at most 0.958."""
    seen = sorted(decision_tree.oracle(ROWS, **SHAPE))
    assert [n for n, _, _ in seen] == list(range(ROWS))
    assert seen[0][2] is None
    late = [label == predicted for _, label, predicted in seen[ROWS // 2 :]]
    assert 0.8 < sum(late) / len(late) < 0.98


def test_saving_and_loading_a_tree_at_any_time_does_not_change_it() -> None:
    rows = examples()
    whole = hoeffding.empty_tree()
    expected = list(hoeffding.learn(whole, rows))
    assert whole.n_branches >= 2  # the tree has split, so the saved tree contains every kind of node
    tree, got, chance = hoeffding.empty_tree(), [], random.Random(5)
    while len(got) < ROWS:
        got += hoeffding.learn(tree, rows[len(got) : len(got) + chance.randrange(1, 200)])
        tree = hoeffding.from_bytes(hoeffding.to_bytes(tree))
    assert got == expected
    assert len(hoeffding.to_bytes(tree)) < 40_000


def test_bytes_that_name_anything_but_parts_of_a_tree_are_refused() -> None:
    class MaliciousObject:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("raise SystemExit",)

    with pytest.raises(penstock.PenstockError, match="contains builtins.exec, which is not part of a tree"):
        hoeffding.from_bytes(pickle.dumps(MaliciousObject()))


@settings(deadline=None)
@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=4))
def test_rows_are_learned_in_order_for_any_order_and_batches(order: list[int], ends: list[int]) -> None:
    waiting: dict[int, hoeffding.Example] = {}
    taken: list[int] = []
    edges = [0, *sorted(ends), 12]
    for start, end in itertools.pairwise(edges):
        waiting |= {n: (n, 0, []) for n in order[start:end]}
        taken += [n for n, _, _ in decision_tree.in_turn(waiting, len(taken))]
    assert taken == list(range(12))
    assert waiting == {}


def test_without_river_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river.tree", None)
    with pytest.raises(penstock.PenstockError, match=r"needs the package river .*pip install 'penstock\[apps\]'"):
        decision_tree.flow()


def test_the_dataflow_has_a_stateless_region_and_one_replica_that_learns() -> None:
    flow = decision_tree.flow(rows=ROWS, **SHAPE)
    flow.check()
    assert [(region.operators, region.replicable) for region in regions(flow)][1:] == [
        (("parse",), True),
        (("predict", "out"), False),
    ]
    assert flow["rows"].source.fn(7) == decision_tree.generator(7, **SHAPE)
    with pytest.raises(
        penstock.DataflowError, match="given 8 features and 1 classes; give at least 1 feature and 2 classes"
    ):
        decision_tree.flow(features=8, classes=1)
