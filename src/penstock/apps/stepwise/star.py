"""Star: two sources, one operator in the centre, and two operators that receive its output (figure 9 of the paper).

All operators parse JSON, unless other work is given. The centre drops every second row, unless another selectivity is
given.
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

WORK = "json"
KEPT = 0.5  # rows that the centre emits per row
SOURCES, CENTRE, OUTER = ("west", "east"), "centre", ("north", "south")
OPERATORS = (CENTRE, *OUTER)


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    work: str | Sequence[str] = WORK,
    selectivity: float = KEPT,
) -> penstock.Dataflow:
    """Return the dataflow. Each of the two sources has `rows` rows, and half of the rate.

    `work` is "cpu", "json" or "wait", for all operators or for the centre and the two outer ones. The centre emits
    `selectivity` rows per row.
    """
    flow = penstock.Dataflow("star")
    rate = None if rows_per_s is None else rows_per_s / len(SOURCES)
    sources = [flow.source(name, generated(generator, SCHEMA, rows, rate)) for name in SOURCES]
    central, *outer_work = works(work, len(OPERATORS))
    centre = flow.rows(CENTRE, row_work(central, selectivity), schema=SCORED, inputs=sources)
    outer = [
        centre.rows(name, row_work(kind, stage=1), schema=SCORED) for name, kind in zip(OUTER, outer_work, strict=True)
    ]
    flow.stateless("collect", lambda rows: rows, inputs=outer, columns=RESULT).sink("out", default_sink(output, rows))
    return flow


def behaviour(work: str | Sequence[str] = WORK, selectivity: float = KEPT) -> Behaviour:
    kinds = zip(OPERATORS, works(work, len(OPERATORS)), strict=True)
    return Behaviour(operators={name: costs(kind, selectivity if name == CENTRE else 1.0) for name, kind in kinds})


def oracle(rows: int, work: str | Sequence[str] = WORK, selectivity: float = KEPT) -> Counter[tuple[int, int]]:
    """Return each id that the centre emits, once per source and outer operator."""
    tweets = [dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows)]
    central, *outer_work = works(work, len(OPERATORS))
    paths = [[(central, selectivity), (kind, 1.0)] for kind in outer_work]
    results = [result for row in tweets for path in paths for result in expected_rows(row, path)]
    return scores(results * len(SOURCES))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return scores(output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, work: str | Sequence[str] = WORK, selectivity: float = KEPT
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, work, selectivity), actual(output))
