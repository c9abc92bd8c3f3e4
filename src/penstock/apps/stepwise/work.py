"""Operators with known work for each row: they compute, parse JSON or wait, and emit a given number of rows."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame

import penstock
from penstock.apps.seeded_random import random_bits
from penstock.apps.stepwise.tweets import text_of
from penstock.engines.simulated import Exponential, Fixed, OperatorBehaviour

SCHEMA = "id bigint, user bigint, topic bigint, place bigint, value string, score bigint"
COLUMNS = ("id", "user", "topic", "place", "value", "score")
WAIT_S = 0.005
_ITERATIONS = 10_000  # random numbers per row
_NUMBERS = 1 << 20  # random numbers that decide how often a row is emitted


class Work(StrEnum):
    CPU = "cpu"
    JSON = "json"
    WAIT = "wait"


_SECONDS = {Work.CPU: 1.0e-3, Work.JSON: 0.25e-3, Work.WAIT: WAIT_S}  # assumed for one core


def works(given: str | Sequence[str], operators: int) -> tuple[Work, ...]:
    """Return the work of each operator, given as one name for all of them or as one name each.

    >>> [work.value for work in works("wait", 2)], [work.value for work in works(["cpu", "json"], 2)]
    (['wait', 'wait'], ['cpu', 'json'])
    """
    names = [given] * operators if isinstance(given, str) else list(given)
    known = [work.value for work in Work]
    if len(names) != operators or not set(names) <= set(known):
        raise penstock.DataflowError(
            f"work={given!r} is not the work of {operators} operators; give one of {', '.join(known)} for all of them, "
            f"or {operators} of these names."
        )
    return tuple(Work(name) for name in names)


def score(work: Work, row: Mapping[str, Any]) -> int:
    """Do the work for one row and return a number that depends on the row only.

    >>> score(Work.JSON, {"id": 1, "value": '{"text": "to be"}'})
    5
    """
    if work is Work.JSON:
        return len(text_of(row["value"]))
    if work is Work.WAIT:
        time.sleep(WAIT_S)
        return 1
    state = int(row["id"]) + 1
    for _ in range(_ITERATIONS):
        state = (state * 48_271) % 2_147_483_647  # the minimal standard generator of Park and Miller
    return state


def copies(id_: int, selectivity: float, stage: int = 0) -> int:
    """Return the number of rows to emit for the row with this id, so that the mean is the selectivity.

    The first stage of a path emits rows at regular distances. Later stages choose rows at random, because otherwise all
    stages would choose the same rows.

    >>> [copies(id_, 0.5) for id_ in range(4)], [copies(id_, 1.0) for id_ in range(3)]
    ([0, 1, 0, 1], [1, 1, 1])
    """
    number = id_ if stage == 0 else random_bits(id_, stage) % _NUMBERS
    return math.floor((number + 1) * selectivity) - math.floor(number * selectivity)


def worked(row: Mapping[str, Any], work: Work, selectivity: float = 1.0, stage: int = 0) -> Iterator[dict[str, Any]]:
    """Do the work for one row, and yield it as often as the selectivity demands, with the score added."""
    added = score(work, row)
    for _ in range(copies(row["id"], selectivity, stage)):
        yield {**{name: row[name] for name in COLUMNS[:-1]}, "score": row.get("score", 0) + added}


def costs(work: Work, selectivity: float = 1.0) -> OperatorBehaviour:
    """Return the simulated behaviour of an operator with this work. A waiting task occupies its slot, as on Spark."""
    seconds = _SECONDS[work]
    service = Fixed(value=seconds) if work is Work.WAIT else Exponential(mean=seconds)
    return OperatorBehaviour(service_s=service, selectivity=Fixed(value=selectivity))


def keyed_work(work: Work, key: str, selectivity: float = 1.0, stage: int = 0) -> Callable[[DataFrame], DataFrame]:
    """Return an operator that does the work in replicas partitioned by a key. Its rows do not depend on their order."""

    def of_key(_: tuple[int], frames: Iterator[pd.DataFrame], __: Any) -> Iterator[pd.DataFrame]:
        return worked_frames(frames, work, selectivity, stage)

    def operator(rows: DataFrame) -> DataFrame:
        return rows.groupBy(key).applyInPandasWithState(of_key, SCHEMA, "unused bigint", "update", "NoTimeout")

    return operator


def worked_frames(
    frames: Iterator[pd.DataFrame], work: Work, selectivity: float, stage: int = 0
) -> Iterator[pd.DataFrame]:
    """Do the work for all rows of some pandas frames."""
    for frame in frames:
        rows = [result for row in frame.to_dict("records") for result in worked(row, work, selectivity, stage)]
        yield pd.DataFrame(rows, columns=list(COLUMNS))


def row_work(
    work: Work, selectivity: float = 1.0, stage: int = 0
) -> Callable[[dict[str, Any]], Iterator[dict[str, Any]]]:
    """Return a row function that does the work."""

    def operator(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        return worked(row, work, selectivity, stage)

    return operator


def scores(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    """Return how often each id occurs with each score."""
    return Counter((row["id"], row["score"]) for row in output)


def expected_rows(
    row: Mapping[str, Any], path: Sequence[tuple[Work, float]], stage: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the rows that leave a path of operators for one row that enters it."""
    if stage == len(path):
        yield dict(row)
        return
    for result in worked(row, *path[stage], stage):
        yield from expected_rows(result, path, stage + 1)
