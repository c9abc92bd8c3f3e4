"""Diamond: four operators receive every row, and one merges their output (figure 9 of the paper).

One operator computes, one parses JSON and two wait by default, so that the bottleneck is not obvious.
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


def works(work: str | None) -> dict[str, Work]:
    """Return the work of each operator: the given one, or the default if there is none."""
    return OPERATORS if work is None else dict.fromkeys(OPERATORS, Work(work))


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    work: str | None = None,
    selectivity: float = 1.0,
) -> penstock.Dataflow:
    """Return the dataflow. `work` ("cpu", "json" or "wait") is that of all four operators."""
    flow = penstock.Dataflow("diamond")
    tweets = flow.source("tweets", generated(generator, SCHEMA, rows, rows_per_s))
    branches = [tweets.rows(name, row_work(own, selectivity), schema=SCORED) for name, own in works(work).items()]
    flow.stateless("merge", lambda rows: rows, inputs=branches, columns=RESULT).sink("out", default_sink(output, rows))
    return flow


def behaviour(work: str | None = None, selectivity: float = 1.0) -> Behaviour:
    return Behaviour(operators={name: costs(own, selectivity) for name, own in works(work).items()})


def oracle(rows: int, work: str | None = None, selectivity: float = 1.0) -> Counter[tuple[int, int]]:
    """Return each id with the score of each of the four operators."""
    tweets = [dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows)]
    return scores(
        result for row in tweets for own in works(work).values() for result in expected_rows(row, [(own, selectivity)])
    )


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, work: str | None = None, selectivity: float = 1.0
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, work, selectivity), actual(output))
