"""A streaming decision tree: it is asked for the class of each row, and then learns from it.

The paper runs the vertical Hoeffding tree of SAMOA on random rows of 200 features and 10 classes. Here the tree is one
state, hence a global-state operator with one replica. What a tree predicts depends on the order of all rows before: it
takes them by row number, and a row that comes before its turn waits in the state, so batches make no difference.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.mst.hoeffding import Example, Prediction, from_bytes, learn, seedling, to_bytes
from penstock.apps.seeded_random import random_bits
from penstock.dataflow.sinks import Sink

FEATURES, CLASSES = 200, 10
COLUMNS = ["n", "label", "predicted"]
_FEATURE_SEED, _LABEL_SEED, _CONCEPT_SEED = 0x66656174, 0x6C61626C, 0x636F6E63


def generator(n: int, features: int = FEATURES, classes: int = CLASSES) -> tuple[int, str]:
    """Row n: its number, and its class and features as text. Features are 0 to 255.

    >>> generator(0, features=4, classes=3)
    (0, '0,188,112,203,252')
    """
    draws = -(-features // 8)
    octets = b"".join(random_bits(n * draws + part, _FEATURE_SEED).to_bytes(8, "little") for part in range(draws))
    values = list(octets[:features])
    return n, ",".join(map(str, [label(n, values, classes), *values]))


def label(n: int, features: list[int], classes: int) -> int:
    """The class that a hidden tree gives to these features; of one row in 16 any class.

    Each node of the hidden tree compares one feature with one threshold, and it is just deep enough for all classes.
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


class Learner(StatefulProcessor):  # type: ignore[misc]  # pyspark is not type-checked
    """One tree, the number of the row that is its next, and the rows that are not: they came too early."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._tree = handle.getValueState("tree", "next bigint, tree binary")
        self._early = handle.getListState("early", "n bigint, label int, features array<int>")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        turn, tree = 0, seedling()
        if self._tree.exists():
            turn, saved = self._tree.get()
            tree = from_bytes(bytes(saved))
        waiting: dict[int, Example] = {one[0]: (one[0], one[1], list(one[2])) for one in self._early.get()}
        for some in rows:
            columns = (some[name] for name in ("n", "label", "features"))
            waiting |= {
                int(n): (int(n), int(label), values.tolist()) for n, label, values in zip(*columns, strict=True)
            }
        predictions = list(learn(tree, in_turn(waiting, turn)))
        self._tree.update((turn + len(predictions), to_bytes(tree)))
        if waiting:
            self._early.put(list(waiting.values()))
        else:
            self._early.clear()
        found = pd.DataFrame(predictions, columns=COLUMNS)
        yield found.astype({"n": "int64", "label": "int32", "predicted": "Int32"})

    def close(self) -> None:
        pass


def in_turn(waiting: dict[int, Example], turn: int) -> Iterator[Example]:
    """Takes out those whose turn it is: number `turn` and as many behind it as are there without a gap.

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
            f"the tree is given {features} features and {classes} classes; it needs 1 and 2 or more"
        )
    seedling()  # says at once what to install
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
    """What one tree says that gets the first `rows` rows one after the other."""
    return Counter(learn(seedling(), (example(*generator(n, features, classes)) for n in range(rows))))


def example(n: int, value: str) -> Example:
    label, *features = map(int, value.split(","))
    return n, label, features


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Prediction]:
    return Counter((row["n"], row["label"], row["predicted"]) for row in output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, features: int = FEATURES, classes: int = CLASSES
) -> list[str]:
    """How the output differs from the oracle's: predictions that are missing, other, or there more than once."""
    return differences(oracle(rows, features, classes), actual(output))
