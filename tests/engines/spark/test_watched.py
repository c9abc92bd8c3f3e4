"""What a watcher makes of somebody else's queries, as far as it needs no Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.jvm import JvmError
from penstock.engines.spark.queries.progress import Progress, decode_progress
from penstock.engines.spark.watched import QueryLoad, WatchedEngine
from penstock.measure.window import Window


@pytest.mark.parametrize("names", [("orders-eu", "orders eu"), ("заказы", "платежи")])
def test_queries_keep_their_names_apart(names: tuple[str, str]) -> None:
    nothing = SimpleNamespace(recentProgress=list)
    running = [SimpleNamespace(id=number, name=name, _jsq=nothing) for number, name in enumerate(names)]
    engine = WatchedEngine.__new__(WatchedEngine)
    engine._spark = SimpleNamespace(streams=SimpleNamespace(active=running))
    engine._running = {}
    assert [name for name, _, _ in engine._reports()] == list(names)


def test_a_program_has_no_cuts_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.spark.watched.StageTimes", lambda spark: None)
    monkeypatch.setattr(WatchedEngine, "executors", lambda self: (3, 2))
    engine = WatchedEngine(SimpleNamespace(sparkContext=SimpleNamespace(appName="theirs")))
    assert (engine.plan.slots, engine.plan.cuts) == (6, frozenset())


EXECUTORS_REQUIRED = "give the smallest and the largest number of executors, from 1 to 10,000, such as (1, 6)."
SECONDS_REQUIRED = "give a finite number of seconds above 0."


@pytest.mark.parametrize(
    ("argument", "value", "required"),
    [
        ("executors", 4, EXECUTORS_REQUIRED),
        ("executors", (1, 2, 3), EXECUTORS_REQUIRED),
        ("executors", (1.5, 3), EXECUTORS_REQUIRED),
        ("executors", (2, 1), EXECUTORS_REQUIRED),
        ("executors", (1, 10**9), EXECUTORS_REQUIRED),  # the capacity of each count would be computed
        ("window_s", nan, SECONDS_REQUIRED),
        ("window_s", "10", SECONDS_REQUIRED),
        ("window_s", 0, SECONDS_REQUIRED),
        ("catch_up_s", inf, SECONDS_REQUIRED),
    ],
)
def test_an_invalid_argument_is_refused_before_the_session_is_used(argument: str, value: Any, required: str) -> None:
    with pytest.raises(penstock.PenstockError) as refused:
        penstock.watch(None, at="nowhere", **{argument: value})
    assert str(refused.value) == f"{argument}={value} is invalid; {required}"


def test_behind_a_cold_batch_the_load_is_what_it_is() -> None:
    """200 rows/s. Python starts in the first batch, for 9 s; the next takes half a second for all that came then."""
    query, came = QueryLoad(), []
    for number, (began_s, took_s, rows) in enumerate(
        [(0.0, 9.0, 0), (9.0, 0.5, 1800), (9.5, 0.1, 100), (9.6, 0.1, 20)]
    ):
        query.add_batches([report(batch(number, began_s, took_s, rows))])
        came.append(query.arriving_rows_per_s)
    assert came == pytest.approx([0.0, 200.0, 200.0, 200.0])


def test_a_local_program_is_told_why_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.spark.watched.StageTimes", lambda spark: None)
    monkeypatch.setattr(WatchedEngine, "executors", lambda self: (1, 2))
    engine = WatchedEngine(SimpleNamespace(sparkContext=SimpleNamespace(appName="theirs", master="local[2]")))
    with pytest.raises(penstock.PenstockError, match=r"runs on master 'local\[2\]'.*Start it on a cluster"):
        engine.apply(engine.plan.replace(slots=4))


def test_a_topic_that_has_lost_its_oldest_rows_brings_no_more_for_that() -> None:
    """Spark does not say where the first batch began. 20,000 rows are there, 500 a batch are read, 100 rows/s come."""
    first, query, seen = 10**9, QueryLoad(), []
    for number in range(3):
        at = first + 500 * number
        offsets = {"startOffset": {"t": {"0": at}} if number else None, "endOffset": {"t": {"0": at + 500}}}
        latest = {"latestOffset": {"t": {"0": first + 20_000 + 100 * number}}, "numInputRows": 500}
        query.add_batches([report(batch(number, float(number), 0.9, 500) | {"sources": [offsets | latest]})])
        seen.append((query.backlog_rows, query.arriving_rows_per_s))
    assert seen == [(19_500.0, 0.0), (19_100.0, 100.0), (18_700.0, 100.0)]


def _gone() -> dict[str, bool]:
    raise JvmError("the query has ended")


@pytest.mark.parametrize(
    ("status", "arriving"),
    [
        (lambda: {"isTriggerActive": True, "isDataAvailable": True}, 100.0),
        (lambda: {"isTriggerActive": False, "isDataAvailable": True}, 0.0),
        (lambda: {"isTriggerActive": True, "isDataAvailable": False}, 0.0),
        (_gone, 0.0),
    ],
    ids=["in the middle of a batch", "between two", "looking for rows", "gone"],
)
def test_no_rows_come_only_where_no_batch_is_made_of_them(
    status: Callable[[], Any], arriving: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 rows/s came, and no batch has ended for 90 s."""
    began_s = time.time() - 100.0
    made = [batch(0, began_s, 1.0, 500), batch(1, began_s + 5.0, 1.0, 500), batch(2, began_s + 10.0, 1.0, 500)]
    look = looks(monkeypatch, [theirs(made, status)])
    assert look().external_rows_per_s == pytest.approx(100.0)
    assert look().external_rows_per_s == pytest.approx(arriving)


def test_the_first_batch_of_each_start_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 s in which code is compiled and Python is started; then 0.5 s a batch. Its rows were read all the same."""
    began_s = time.time() - 60.0
    made = [batch(0, began_s, 12.0, 700)]
    running = [theirs(made)]
    look = looks(monkeypatch, running)
    assert measured(look()) == (0, 0, None, 700)
    made += [batch(1, began_s + 12.0, 0.5, 100), batch(2, began_s + 13.0, 0.5, 100)]
    assert measured(look()) == (2, 200, 0.5, 200)
    again = [batch(3, began_s + 30.0, 12.0, 300, run="again"), batch(4, began_s + 42.0, 0.5, 100, run="again")]
    running[:] = [theirs(again)]
    assert measured(look()) == (1, 100, 0.5, 400)


def test_of_a_query_that_ends_with_its_first_batch_that_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    running = [theirs(made)]
    look = looks(monkeypatch, running)
    look()
    made.append(batch(0, time.time(), 2.0, 700))
    running.clear()
    assert measured(look()) == (1, 700, 2.0, 700)


def batch(number: int, began_s: float, took_s: float, rows: int, *, run: str = "run") -> dict[str, Any]:
    """As Spark tells of it."""
    return {
        "batchId": number,
        "runId": run,
        "timestamp": datetime.fromtimestamp(began_s, UTC).isoformat(),
        "durationMs": {"triggerExecution": took_s * 1000, "addBatch": took_s * 1000},
        "numInputRows": rows,
    }


def report(progress: dict[str, Any]) -> Progress:
    return decode_progress(json.dumps(progress))


def theirs(made: list[dict[str, Any]], status: Callable[[], Any] = _gone) -> Any:
    def reports() -> list[Any]:
        return [SimpleNamespace(json=lambda progress=progress: json.dumps(progress)) for progress in made]

    class Query(SimpleNamespace):
        status = property(lambda self: status())

    return Query(id="id", name="theirs", _jsq=SimpleNamespace(recentProgress=reports))


def looks(monkeypatch: pytest.MonkeyPatch, running: list[Any]) -> Callable[[], Window]:
    """A watcher of these queries."""
    stages = SimpleNamespace(refresh=lambda: None, busy_s=lambda run, number: None)
    monkeypatch.setattr("penstock.engines.spark.watched.StageTimes", lambda spark: stages)
    monkeypatch.setattr(WatchedEngine, "executors", lambda self: (1, 2))
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(appName="theirs"), streams=SimpleNamespace(active=running)
    )
    return WatchedEngine(spark).observe


def measured(window: Window) -> tuple[int, int, float | None, int | None]:
    """Batches, their rows and seconds; and the rows that were read."""
    (query,) = window.pipelines
    return query.batches, query.rows_in, query.batch_s, window.operators[0].rows_in
