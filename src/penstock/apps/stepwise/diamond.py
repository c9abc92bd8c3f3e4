"""Diamond: four operators receive every row, and one merges their output (figure 9 of the paper).

One operator computes, one parses JSON and two wait, so that the bottleneck is not obvious. Other work can be given.
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
from penstock.apps.stepwise.work import SCHEMA as SCORED
from penstock.apps.stepwise.work import costs, expected_rows, row_work, scores, works
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour

OPERATORS = ("compute", "parse", "wait", "wait_again")
WORK = ("cpu", "json", "wait", "wait")


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    work: str | Sequence[str] = WORK,
    selectivity: float = 1.0,
) -> penstock.Dataflow:
    """Return the dataflow. `work` is "cpu", "json" or "wait", for all four operators or for each of them.

    Each of them emits `selectivity` rows per row.
    """
    flow = penstock.Dataflow("diamond")
    tweets = flow.source("tweets", generated(generator, SCHEMA, rows, rows_per_s))
    kinds = zip(OPERATORS, works(work, len(OPERATORS)), strict=True)
    branches = [tweets.rows(name, row_work(kind, selectivity), schema=SCORED) for name, kind in kinds]
    flow.stateless("merge", lambda rows: rows, inputs=branches, columns=RESULT).sink("out", default_sink(output, rows))
    return flow


def behaviour(work: str | Sequence[str] = WORK, selectivity: float = 1.0) -> Behaviour:
    kinds = zip(OPERATORS, works(work, len(OPERATORS)), strict=True)
    return Behaviour(operators={name: costs(kind, selectivity) for name, kind in kinds})


def oracle(rows: int, work: str | Sequence[str] = WORK, selectivity: float = 1.0) -> Counter[tuple[int, int]]:
    """Return each id with the score of each of the four operators."""
    tweets = [dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows)]
    kinds = works(work, len(OPERATORS))
    return scores(result for row in tweets for kind in kinds for result in expected_rows(row, [(kind, selectivity)]))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, work: str | Sequence[str] = WORK, selectivity: float = 1.0
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, work, selectivity), actual(output))
