"""Linear: three operators in a row, each partitioned by another key (figure 9 of the paper). All compute by default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.stepwise.tweets import COLUMNS, SCHEMA, generator
from penstock.apps.stepwise.work import COLUMNS as RESULT
from penstock.apps.stepwise.work import Work, costs, expected_rows, keyed_work, scores
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour

OPERATORS = {"first": "user", "second": "topic", "third": "place"}  # operator -> key
WORK = Work.CPU
_FIRST = next(iter(OPERATORS))


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    work: str = WORK,
    selectivity: float = 1.0,
) -> penstock.Dataflow:
    """Return the dataflow. Each operator does `work` ("cpu", "json" or "wait"); the first one has a selectivity."""
    flow = penstock.Dataflow("linear")
    stream = flow.source("tweets", generated(generator, SCHEMA, rows, rows_per_s))
    for name, key in OPERATORS.items():
        emitted = selectivity if name == _FIRST else 1.0
        stream = stream.keyed(name, keyed_work(Work(work), key, emitted), keys=[key], columns=RESULT)
    stream.sink("out", default_sink(output, rows))
    return flow


def behaviour(work: str = WORK, selectivity: float = 1.0) -> Behaviour:
    return Behaviour(operators={name: costs(Work(work), selectivity if name == _FIRST else 1.0) for name in OPERATORS})


def oracle(rows: int, work: str = WORK, selectivity: float = 1.0) -> Counter[tuple[int, int]]:
    """Return each id with its score, which all three operators increase."""
    tweets = (dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows))
    path = [(Work(work), selectivity), (Work(work), 1.0), (Work(work), 1.0)]
    return scores(result for row in tweets for result in expected_rows(row, path))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(output: Iterable[Mapping[str, Any]], rows: int, work: str = WORK, selectivity: float = 1.0) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, work, selectivity), actual(output))
