"""Star: two sources, one operator in the centre, and two operators that receive its output (figure 9 of the paper).

All operators parse JSON. The centre drops every second row.
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


def flow(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> penstock.Dataflow:
    """Return the dataflow. Each of the two sources has `rows` rows, and half of the rate."""
    flow = penstock.Dataflow("star")
    rate = None if rows_per_s is None else rows_per_s / len(SOURCES)
    sources = [flow.source(name, generated(generator, SCHEMA, rows, rate)) for name in SOURCES]
    centre = flow.rows("centre", row_work(WORK, KEPT), schema=SCORED, inputs=sources)
    outer = [centre.rows(name, row_work(WORK), schema=SCORED) for name in OUTER]
    flow.stateless("collect", lambda rows: rows, inputs=outer, columns=RESULT).sink("out", default_sink(output, rows))
    return flow


def behaviour() -> Behaviour:
    return Behaviour(operators={"centre": costs(WORK, KEPT)} | {name: costs(WORK) for name in OUTER})


def oracle(rows: int) -> Counter[tuple[int, int]]:
    """Return each id that the centre keeps, once per source and outer operator."""
    tweets = [dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows)]
    results = [result for row in tweets for result in expected_rows(row, [(WORK, KEPT), (WORK, 1.0)])]
    return scores(results * (len(SOURCES) * len(OUTER)))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
