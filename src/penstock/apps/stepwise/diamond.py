"""Diamond: four operators receive every row, and one merges their output (figure 9 of the paper).

One operator computes, one parses JSON and two wait, so that the bottleneck is not obvious.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.stepwise.tweets import COLUMNS, SCHEMA, generator
from penstock.apps.stepwise.work import COLUMNS as RESULT
from penstock.apps.stepwise.work import SCHEMA as SCORED
from penstock.apps.stepwise.work import Work, costs, expected_rows, row_work, scores
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour

OPERATORS = {"compute": Work.CPU, "parse": Work.JSON, "wait": Work.WAIT, "wait_again": Work.WAIT}


def flow(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> penstock.Dataflow:
    flow = penstock.Dataflow("diamond")
    tweets = flow.source("tweets", generated(generator, SCHEMA, rows, rows_per_s))
    branches = [tweets.rows(name, row_work(work), schema=SCORED) for name, work in OPERATORS.items()]
    flow.stateless("merge", lambda rows: rows, inputs=branches, columns=RESULT).sink("out", default_sink(output, rows))
    return flow


def behaviour() -> Behaviour:
    return Behaviour(operators={name: costs(work) for name, work in OPERATORS.items()})


def oracle(rows: int) -> Counter[tuple[int, int]]:
    """Return each id with the score of each of the four operators."""
    tweets = [dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows)]
    return scores(
        result for row in tweets for work in OPERATORS.values() for result in expected_rows(row, [(work, 1.0)])
    )


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
