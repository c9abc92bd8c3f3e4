"""The Hoeffding tree of river, and its serialisation for the state of Spark.

Domingos and Hulten, "Mining high-speed data streams", KDD 2000. Only the depth limits the tree. The memory limit of
river is not used: its size estimates change when a tree is saved and loaded, and the predictions would change with
them.
"""

from __future__ import annotations

import io
import pickle
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import penstock

GRACE_ROWS = 100  # rows of a leaf between two attempts to split it
DELTA = 1e-3  # probability of a split that more rows would not have chosen
MAX_DEPTH = 8

Example = tuple[int, int, list[int]]  # row number, class, features
Prediction = tuple[int, int, int | None]  # row number, class, predicted class; None if the tree has seen no row

# A tree consists of these classes and of plain values. Unpickling refuses everything else, because a pickle can call
# any function.
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


def empty_tree() -> Any:
    """Return an empty tree.

    Raises:
        PenstockError: The package river is not installed.
    """
    try:
        from river.tree import HoeffdingTreeClassifier
    except ModuleNotFoundError as error:
        raise penstock.PenstockError(
            f"The decision tree needs the package river ({error}); install it with: pip install 'penstock[apps]'"
        ) from None
    return HoeffdingTreeClassifier(
        grace_period=GRACE_ROWS, delta=DELTA, max_depth=MAX_DEPTH, memory_estimate_period=sys.maxsize
    )


def learn(tree: Any, examples: Iterable[Example]) -> Iterator[Prediction]:
    """Yield the prediction for each example, and then train the tree with it."""
    for n, label, features in examples:
        x = dict(enumerate(features))
        yield n, label, tree.predict_one(x)
        tree.learn_one(x, label)


def to_bytes(tree: Any) -> bytes:
    """Return the serialised tree."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    # Each normal distribution of a leaf has a random generator of 4 kB that is never used.
    pickler.dispatch_table = {random.Random: lambda unused: (random.Random, (0,))}
    pickler.dump(tree)
    return file.getvalue()


def from_bytes(saved: bytes) -> Any:
    """Return the tree of `to_bytes`.

    Raises:
        PenstockError: The bytes contain a class that is not part of a tree.
    """
    return _Unpickler(io.BytesIO(saved)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PARTS:
            raise penstock.PenstockError(
                f"The saved tree contains {module}.{name}, which is not part of a tree: another version of penstock "
                "wrote "
                "the state. Start a new run in another directory."
            )
        return super().find_class(module, name)
