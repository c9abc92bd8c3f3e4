"""Linear: three operators in a row, each partitioned by another key (figure 9 of the paper).

All of them compute, unless other work is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.stepwise.tweets import COLUMNS, SCHEMA, generator
from penstock.apps.stepwise.work import COLUMNS as RESULT
from penstock.apps.stepwise.work import costs, expected_rows, keyed_work, scores, works
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour

OPERATORS = {"first": "user", "second": "topic", "third": "place"}  # operator -> key
WORK = "cpu"


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    work: str | Sequence[str] = WORK,
    selectivity: float = 1.0,
) -> penstock.Dataflow:
    """Return the dataflow. `work` is "cpu", "json" or "wait", for all operators or for each of them.

    Each operator emits `selectivity` rows per row.
    """
    flow = penstock.Dataflow("linear")
    stream = flow.source("tweets", generated(generator, SCHEMA, rows, rows_per_s))
    for stage, ((name, key), kind) in enumerate(zip(OPERATORS.items(), works(work, len(OPERATORS)), strict=True)):
        stream = stream.keyed(name, keyed_work(kind, key, selectivity, stage), keys=[key], columns=RESULT)
    stream.sink("out", default_sink(output, rows))
    return flow


def behaviour(work: str | Sequence[str] = WORK, selectivity: float = 1.0) -> Behaviour:
    kinds = zip(OPERATORS, works(work, len(OPERATORS)), strict=True)
    return Behaviour(operators={name: costs(kind, selectivity) for name, kind in kinds})


def oracle(rows: int, work: str | Sequence[str] = WORK, selectivity: float = 1.0) -> Counter[tuple[int, int]]:
    """Return each id with its score, which all three operators increase."""
    tweets = (dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows))
    path = [(kind, selectivity) for kind in works(work, len(OPERATORS))]
    return scores(result for row in tweets for result in expected_rows(row, path))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, work: str | Sequence[str] = WORK, selectivity: float = 1.0
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, work, selectivity), actual(output))
