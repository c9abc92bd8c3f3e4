"""A streaming decision tree whose model and statistics are separate operators, so that the statistics have replicas.

The paper runs the vertical Hoeffding tree of SAMOA on random rows of 200 features and 10 classes. `model` is one global
state: it sorts rows to leaves and predicts their classes. `attributes` makes one row for each attribute, and
`statistics` counts them by leaf and attribute. It answers a request of the model with the best split of its attribute,
through a loop. `vertical_hoeffding` explains why the predictions do not depend on the delay of the loop.

The rows are those of `decision_tree`, whose tree has the model and the statistics in one state. The tree there is
river's: it estimates normal distributions and predicts with naive Bayes. The tree here counts values in 16 parts and
predicts the most frequent class.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.mst import decision_tree
from penstock.apps.mst.decision_tree import CLASSES, COLUMNS, FEATURES, actual, example, generator
from penstock.apps.mst.hoeffding import Prediction
from penstock.apps.mst.vertical_hoeffding import Model, Sorted, Split, Statistics, sequential
from penstock.dataflow.sinks import Sink

__all__ = ["actual", "check", "flow", "oracle"]

# Rows of the source have leaf 0. Answers of the statistics have n = -1.
INPUT = "n bigint, label int, features array<int>, leaf bigint, attribute int, gain double, threshold int, \
left array<int>"
INPUT_COLUMNS = ["n", "label", "features", "leaf", "attribute", "gain", "threshold", "left"]
# Sorted rows have asked = 0. Requests for splits have n = -1 and one feature for each attribute.
SORTED = "leaf bigint, n bigint, label int, predicted int, features array<int>, asked bigint"
SORTED_COLUMNS = ["leaf", "n", "label", "predicted", "features", "asked"]
ATTRIBUTE_COLUMNS = ["leaf", "attribute", "value", "label", "asked"]


def with_answer_columns(examples: DataFrame) -> DataFrame:
    """Return the rows of the source with the columns of the answers."""
    none = {"leaf": F.lit(0).cast("bigint"), "attribute": F.lit(0), "gain": F.lit(0.0), "threshold": F.lit(0)}
    return decision_tree.parse(examples).withColumns(none | {"left": F.array().cast("array<int>")})


class TreeModel(StatefulProcessor):
    """The state: the model as JSON."""

    def __init__(self, features: int, classes: int) -> None:
        self._shape = (features, classes)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._model = handle.getValueState("model", "model binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        model = Model(*self._shape)
        if self._model.exists():
            model = msgspec.json.decode(bytes((self._model.get() or (b"",))[0]), type=Model)
        produced = [row for frame in rows for row in messages(model, frame)]
        self._model.update((msgspec.json.encode(model),))
        frame = pd.DataFrame(produced, columns=SORTED_COLUMNS)
        yield frame.astype({"leaf": "int64", "n": "int64", "label": "int32", "predicted": "Int32", "asked": "int64"})

    def close(self) -> None:
        pass


def messages(model: Model, frame: pd.DataFrame) -> Iterator[tuple[int, int, int, int | None, list[int], int]]:
    """Give examples and answers to the model, and yield its rows."""
    examples = []
    for n, label, features, leaf, attribute, gain, threshold, left in zip(
        *(frame[name].tolist() for name in INPUT_COLUMNS), strict=True
    ):
        if leaf == 0:
            examples.append((int(n), int(label), [int(value) for value in features]))
            continue
        split = Split(float(gain), int(threshold), tuple(map(int, left)))
        yield from (_row(model, said) for said in model.answer(int(leaf), int(attribute), split))
    yield from (_row(model, said) for said in model.learn(examples))


def _row(model: Model, said: Any) -> tuple[int, int, int, int | None, list[int], int]:
    if isinstance(said, Sorted):
        n, label, features = said.example
        return said.leaf, n, label, said.predicted, features, 0
    return said.leaf, -1, 0, None, [0] * model.features, said.rows


def sort(rows: DataFrame, features: int = FEATURES, classes: int = CLASSES) -> DataFrame:
    all_in_one = rows.withColumn("tree", F.lit(0)).groupBy("tree")
    return all_in_one.transformWithStateInPandas(
        TreeModel(features, classes), SORTED, outputMode="Append", timeMode="None"
    )


def attributes(rows: DataFrame) -> DataFrame:
    """Return one row for each attribute."""
    exploded = rows.select("leaf", "label", "asked", F.posexplode("features").alias("attribute", "value"))
    return exploded.select(*ATTRIBUTE_COLUMNS)


def predictions(rows: DataFrame) -> DataFrame:
    return rows.where("n >= 0").select(*COLUMNS)


def answered(key: tuple[int, int], frames: Iterator[pd.DataFrame], state: Any, classes: int) -> Iterator[pd.DataFrame]:
    """Process the rows of one attribute of one leaf in one batch."""
    known = msgspec.json.decode(state.get[0], type=Statistics) if state.exists else Statistics.empty(classes)
    split = known.batch(
        row for frame in frames for row in zip(*(frame[c].tolist() for c in ("value", "label", "asked")), strict=True)
    )
    state.update((msgspec.json.encode(known).decode(),))
    answers: list[tuple[Any, ...]] = (
        [] if split is None else [(-1, 0, [], *key, split.gain, split.threshold, list(split.left))]
    )
    types = {"n": "int64", "label": "int32", "leaf": "int64", "attribute": "int32", "gain": float, "threshold": "int32"}
    yield pd.DataFrame(answers, columns=INPUT_COLUMNS).astype(types)


def statistics(rows: DataFrame, classes: int = CLASSES) -> DataFrame:
    def of_attribute(key: tuple[int, int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        return answered(key, frames, state, classes)

    by_attribute = rows.groupBy("leaf", "attribute")
    return by_attribute.applyInPandasWithState(of_attribute, INPUT, "statistics string", "update", "NoTimeout")


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    features: int = FEATURES,
    classes: int = CLASSES,
) -> penstock.Dataflow:
    """Return the dataflow on the rows of `decision_tree`."""
    if features < 1 or classes < 2:
        raise penstock.DataflowError(
            f"The tree is given {features} features and {classes} classes; give at least 1 feature and 2 classes."
        )
    flow = penstock.Dataflow("vertical_tree")
    fn = functools.partial(generator, features=features, classes=classes)
    examples = flow.source("rows", generated(fn, "n bigint, value string", rows, rows_per_s)).stateless(
        "parse", with_answer_columns, columns=INPUT_COLUMNS
    )
    splits = flow.feedback("splits", schema=INPUT)
    model = flow.global_state(
        "model",
        functools.partial(sort, features=features, classes=classes),
        inputs=[examples, splits],
        output_mode="append",
        columns=SORTED_COLUMNS,
    )
    model.stateless("attributes", attributes, columns=ATTRIBUTE_COLUMNS, selectivity=features).keyed(
        "statistics",
        functools.partial(statistics, classes=classes),
        keys=["leaf", "attribute"],
        columns=INPUT_COLUMNS,
    ).feed(splits)
    model.stateless("predictions", predictions, columns=COLUMNS).sink("out", default_sink(output, rows))
    return flow


def oracle(rows: int, features: int = FEATURES, classes: int = CLASSES) -> Counter[Prediction]:
    """Return the predictions of one tree for the first `rows` rows, in order."""
    examples = (example(*generator(n, features, classes)) for n in range(rows))
    return Counter(sequential(examples, features, classes))


def check(
    output: Iterable[Mapping[str, Any]], rows: int, features: int = FEATURES, classes: int = CLASSES
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, features, classes), actual(output))
