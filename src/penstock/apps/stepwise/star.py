"""Star: two sources, one operator in the centre, and two operators that receive its output (figure 9 of the paper).

All operators parse JSON, and the centre drops every second row, unless another work or selectivity is given.
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

WORK = Work.JSON
KEPT = 0.5  # share of the rows that the centre emits
SOURCES, OUTER = ("west", "east"), ("north", "south")


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    work: str = WORK,
    selectivity: float = KEPT,
) -> penstock.Dataflow:
    """Return the dataflow. Each of the two sources has `rows` rows, and half of the rate.

    All operators do `work` ("cpu", "json" or "wait"). The centre emits `selectivity` rows per row.
    """
    flow = penstock.Dataflow("star")
    rate = None if rows_per_s is None else rows_per_s / len(SOURCES)
    sources = [flow.source(name, generated(generator, SCHEMA, rows, rate)) for name in SOURCES]
    centre = flow.rows("centre", row_work(Work(work), selectivity), schema=SCORED, inputs=sources)
    outer = [centre.rows(name, row_work(Work(work)), schema=SCORED) for name in OUTER]
    flow.stateless("collect", lambda rows: rows, inputs=outer, columns=RESULT).sink("out", default_sink(output, rows))
    return flow


def behaviour(work: str = WORK, selectivity: float = KEPT) -> Behaviour:
    own = Work(work)
    return Behaviour(operators={"centre": costs(own, selectivity)} | {name: costs(own) for name in OUTER})


def oracle(rows: int, work: str = WORK, selectivity: float = KEPT) -> Counter[tuple[int, int]]:
    """Return each id that the centre keeps, once per source and outer operator."""
    tweets = [dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows)]
    path = [(Work(work), selectivity), (Work(work), 1.0)]
    results = [result for row in tweets for result in expected_rows(row, path)]
    return scores(results * (len(SOURCES) * len(OUTER)))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(output: Iterable[Mapping[str, Any]], rows: int, work: str = WORK, selectivity: float = KEPT) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, work, selectivity), actual(output))
