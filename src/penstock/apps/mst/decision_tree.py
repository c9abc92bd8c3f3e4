"""A streaming decision tree: it predicts the class of each row and then learns from the row.

The paper runs the vertical Hoeffding tree of SAMOA on random rows of 200 features and 10 classes. Here the tree is one
global state, so the operator has one replica. A prediction depends on the order of all earlier rows. The tree therefore
processes rows in the order of their numbers, and a row that arrives early waits in the state.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.mst.hoeffding import Example, Prediction, empty_tree, from_bytes, learn, to_bytes
from penstock.apps.seeded_random import random_bits
from penstock.dataflow.sinks import Sink

FEATURES, CLASSES = 200, 10
COLUMNS = ["n", "label", "predicted"]
_FEATURE_SEED, _LABEL_SEED, _CONCEPT_SEED = 0x66656174, 0x6C61626C, 0x636F6E63


def generator(n: int, features: int = FEATURES, classes: int = CLASSES) -> tuple[int, str]:
    """Return row n: its number, and its class and features (0 to 255) as text.

    >>> generator(0, features=4, classes=3)
    (0, '0,188,112,203,252')
    """
    draws = -(-features // 8)
    octets = b"".join(random_bits(n * draws + part, _FEATURE_SEED).to_bytes(8, "little") for part in range(draws))
    values = list(octets[:features])
    return n, ",".join(map(str, [label(n, values, classes), *values]))


def label(n: int, features: list[int], classes: int) -> int:
    """Return the class that a hidden tree assigns to these features; one row in 16 has a random class.

    Each node of the hidden tree compares one feature with a threshold. The tree is just deep enough for all classes.
    """
    noise = random_bits(n, _LABEL_SEED)
    if noise & 15 == 0:
        return (noise >> 4) % classes
    node = 1
    while node < classes:
        concept = random_bits(node, _CONCEPT_SEED)
        node = 2 * node + (features[(concept >> 8) % len(features)] >= 64 + concept % 128)
    return node % classes


def parse(rows: DataFrame) -> DataFrame:
    values = F.split("value", ",").cast("array<int>")
    return rows.select("n", values[0].alias("label"), F.slice(values, 2, 1_000_000).alias("features"))


class Learner(StatefulProcessor):
    """The state: one tree, the number of the next row, and the rows that arrived early."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._tree = handle.getValueState("tree", "next bigint, tree binary")
        self._early = handle.getListState("early", "n bigint, label int, features array<int>")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        turn, tree = 0, empty_tree()
        if self._tree.exists():
            turn, saved = self._tree.get() or (0, b"")
            tree = from_bytes(bytes(saved))
        waiting: dict[int, Example] = {row[0]: (row[0], row[1], list(row[2])) for row in self._early.get()}
        for frame in rows:
            columns = (frame[name] for name in ("n", "label", "features"))
            waiting |= {
                int(n): (int(n), int(label), values.tolist()) for n, label, values in zip(*columns, strict=True)
            }
        predictions = list(learn(tree, in_turn(waiting, turn)))
        self._tree.update((turn + len(predictions), to_bytes(tree)))
        if waiting:
            self._early.put(list(waiting.values()))
        else:
            self._early.clear()
        frame = pd.DataFrame(predictions, columns=COLUMNS)
        yield frame.astype({"n": "int64", "label": "int32", "predicted": "Int32"})

    def close(self) -> None:
        pass


def in_turn(waiting: dict[int, Example], turn: int) -> Iterator[Example]:
    """Remove and yield the rows from number `turn` on, up to the first missing one.

    >>> waiting = {n: (n, 0, []) for n in (4, 1, 2)}
    >>> [n for n, _, _ in in_turn(waiting, 1)], list(waiting)
    ([1, 2], [4])
    """
    while turn in waiting:
        yield waiting.pop(turn)
        turn += 1


def predict(examples: DataFrame) -> DataFrame:
    all_in_one = examples.withColumn("tree", F.lit(0)).groupBy("tree")
    return all_in_one.transformWithStateInPandas(
        Learner(), "n bigint, label int, predicted int", outputMode="Append", timeMode="None"
    )


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    features: int = FEATURES,
    classes: int = CLASSES,
) -> penstock.Dataflow:
    if features < 1 or classes < 2:
        raise penstock.DataflowError(
            f"The tree is given {features} features and {classes} classes; give at least 1 feature and 2 classes."
        )
    empty_tree()  # fails early if river is not installed
    flow = penstock.Dataflow("decision_tree")
    fn = functools.partial(generator, features=features, classes=classes)
    (
        flow.source("rows", generated(fn, "n bigint, value string", rows, rows_per_s))
        .stateless("parse", parse, columns=["n", "label", "features"])
        .global_state("predict", predict, output_mode="append", columns=COLUMNS)
        .sink("out", default_sink(output, rows))
    )
    return flow


def oracle(rows: int, features: int = FEATURES, classes: int = CLASSES) -> Counter[Prediction]:
    """Return the predictions of one tree for the first `rows` rows, in order."""
    return Counter(learn(empty_tree(), (example(*generator(n, features, classes)) for n in range(rows))))


def example(n: int, value: str) -> Example:
    label, *features = map(int, value.split(","))
    return n, label, features


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Prediction]:
    return Counter((row["n"], row["label"], row["predicted"]) for row in output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, features: int = FEATURES, classes: int = CLASSES
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, features, classes), actual(output))
