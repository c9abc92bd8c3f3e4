"""A Hoeffding tree, as river grows it, and its bytes for Spark's state.

Domingos and Hulten, "Mining high-speed data streams", KDD 2000. The tree is bounded by its depth alone: river's other
bound, on memory, estimates sizes that differ after a tree has been saved and loaded, and so would its predictions.
"""

from __future__ import annotations

import io
import pickle
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import penstock

GRACE_ROWS = 100  # seen by a leaf between two attempts to split it
DELTA = 1e-3  # how unlikely a split is that more rows would not have chosen
MAX_DEPTH = 8

Example = tuple[int, int, list[int]]  # row number, class, features
Prediction = tuple[int, int, int | None]  # row number, class, what it was taken for; None by a tree that saw no row

# A tree consists of these and of plain values. A pickle may name anything to be called; ours may name no more.
_PARTS = frozenset(
    {
        ("random", "Random"),
        ("river.proba.gaussian", "Gaussian"),
        ("river.stats.mean", "Mean"),
        ("river.stats.var", "Var"),
        ("river.tree.hoeffding_tree_classifier", "HoeffdingTreeClassifier"),
        ("river.tree.nodes.branch", "NumericBinaryBranch"),
        ("river.tree.nodes.htc_nodes", "LeafNaiveBayesAdaptive"),
        ("river.tree.splitter.gaussian_splitter", "GaussianSplitter"),
    }
)


def seedling() -> Any:
    """A tree that has seen nothing."""
    try:
        from river.tree import HoeffdingTreeClassifier
    except ModuleNotFoundError as error:
        raise penstock.PenstockError(
            f"the decision tree needs the package river ({error}); install it with: pip install 'penstock[apps]'"
        ) from None
    return HoeffdingTreeClassifier(
        grace_period=GRACE_ROWS, delta=DELTA, max_depth=MAX_DEPTH, memory_estimate_period=sys.maxsize
    )


def learn(tree: Any, examples: Iterable[Example]) -> Iterator[Prediction]:
    """Tests the tree on each example before it learns from it."""
    for n, label, features in examples:
        x = dict(enumerate(features))
        yield n, label, tree.predict_one(x)
        tree.learn_one(x, label)


def to_bytes(tree: Any) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    # Each of a leaf's normal distributions has a random generator that nobody asks, of 4 kB.
    pickler.dispatch_table = {random.Random: lambda unused: (random.Random, (0,))}
    pickler.dump(tree)
    return file.getvalue()


def from_bytes(saved: bytes) -> Any:
    """The tree; an error if the bytes name anything that no tree is made of."""
    return _Unpickler(io.BytesIO(saved)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PARTS:
            raise penstock.PenstockError(
                f"the saved tree names {module}.{name}, which no tree consists of: the state is not one that this "
                "version of penstock wrote; start the run anew in a fresh directory"
            )
        return super().find_class(module, name)
