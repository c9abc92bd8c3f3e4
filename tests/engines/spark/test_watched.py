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
from penstock.engines.spark.jvm import FileSource, JvmError
from penstock.engines.spark.queries.progress import Progress, decode_progress
from penstock.engines.spark.watched import WatchedEngine
from penstock.engines.spark.watched.backlog import FileCount, left_rows, rows_read
from penstock.engines.spark.watched.history import Executors, QueryHistory
from penstock.measure.window import Window


@pytest.mark.parametrize("names", [("orders-eu", "orders eu"), ("заказы", "платежи")])
def test_queries_keep_their_names_apart(names: tuple[str, str]) -> None:
    nothing = SimpleNamespace(recentProgress=list)
    running = [SimpleNamespace(id=number, name=name, _jsq=nothing) for number, name in enumerate(names)]
    engine = WatchedEngine.__new__(WatchedEngine)
    engine._spark = SimpleNamespace(streams=SimpleNamespace(active=running))
    engine._running, engine._histories = {}, {}
    assert [reports.name for reports in engine._reports()] == list(names)


def test_a_program_has_no_cuts_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.spark.watched.engine.StageTimes", lambda spark, from_now: None)
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
    history, rates = QueryHistory(), []
    for number, (began_s, took_s, rows) in enumerate(
        [(0.0, 9.0, 0), (9.0, 0.5, 1800), (9.5, 0.1, 100), (9.6, 0.1, 20)]
    ):
        add(history, batch(number, began_s, took_s, rows))
        rates.append(history.arrivals.rate_per_s(horizon_s=30.0))
    assert rates[0] is None and rates[1:] == pytest.approx([200.0, 200.0, 200.0])


@pytest.mark.parametrize("trigger_s", [2.0, 60.0, 300.0])
def test_rows_arrive_between_batches_however_far_apart(trigger_s: float) -> None:
    history, rates = QueryHistory(), []
    add(history, batch(0, 0.0, 1.0, 5_000_000))  # the rows that had piled up
    for number in range(1, 4):
        for look_s in range(10, int(trigger_s), 10):
            history.add_idle_time((number - 1) * trigger_s + look_s, 10.0)
            rates.append(history.arrivals.rate_per_s(horizon_s=30.0))
        add(history, batch(number, number * trigger_s, 1.0, round(1000 * trigger_s)))
        rates.append(history.arrivals.rate_per_s(horizon_s=30.0))
    known = [rate for rate in rates if rate is not None]
    assert known and known == pytest.approx([1000.0] * len(known))
    history.add_idle_time(4 * 3 * trigger_s + 100, 10.0)
    assert history.arrivals.rate_per_s(horizon_s=30.0) == 0.0


@pytest.mark.parametrize("batch_s", [0.3, 0.77, 1.3, 1.6])
def test_rows_that_a_source_releases_once_per_second_are_measured_without_bias(batch_s: float) -> None:
    """The rate source has 300 rows at each full second. Batches of any length see them at other times."""
    history, at_s, read, rates = QueryHistory(), 0.0, 0, []
    for _ in range(400):
        rows = 300 * int(at_s) - read
        if rows:
            add(history, batch(len(rates), at_s, batch_s, rows))
            rates.append(history.arrivals.rate_per_s(horizon_s=15.0))
        read, at_s = read + rows, at_s + batch_s
    settled = [rate for rate in rates[40:] if rate is not None]
    assert sum(settled) / len(settled) == pytest.approx(300.0, rel=0.01)
    assert max(settled) < 330.0 and min(settled) > 270.0


def test_a_backlog_that_grows_has_arrived_and_one_that_was_there_has_not() -> None:
    history = QueryHistory()
    for number, (rows, left) in enumerate(((100, 10_000), (100, 10_400))):
        offsets = {"startOffset": 0, "endOffset": rows, "latestOffset": rows + left, "numInputRows": rows}
        add(history, batch(number, 10.0 * number, 1.0, rows) | {"sources": [offsets]})
    assert history.arrivals.rate_per_s(horizon_s=30.0) == pytest.approx(50.0)
    assert history.backlog_rows == 10_400


def test_the_backlog_is_unknown_unless_all_sources_report_it() -> None:
    kafka = {
        "startOffset": {"topic": {"0": 10, "1": 10}},
        "endOffset": {"topic": {"0": 60, "1": 60}},
        "latestOffset": {"topic": {"0": 100, "1": 90}},
        "numInputRows": 100,
    }
    hidden = {"startOffset": 3, "endOffset": 4, "latestOffset": None, "numInputRows": 5}
    assert left_rows(report({"batchId": 0, "sources": [kafka]})) == 70
    assert left_rows(report({"batchId": 0, "sources": [hidden]})) is None
    assert left_rows(report({"batchId": 0, "sources": [kafka, hidden]})) is None
    assert left_rows(report({"batchId": 0})) is None


def test_rows_that_are_read_three_times_arrived_once() -> None:
    """`foreachBatch` with three actions reads each row three times, and Spark counts all of them."""
    kafka = {
        "description": "KafkaV2[Subscribe[rows]]",
        "startOffset": {"rows": {"0": 100}},
        "endOffset": {"rows": {"0": 200}},
        "latestOffset": {"rows": {"0": 200}},
        "numInputRows": 300,
    }
    assert rows_read(report({"batchId": 1, "numInputRows": 300, "sources": [kafka]})) == 100


@pytest.mark.parametrize("running_at_start", [False, True])
@pytest.mark.parametrize("batches_per_listing", [1, 3])
def test_pending_files_are_converted_into_rows(running_at_start: bool, batches_per_listing: int) -> None:
    """Batches read 1, 2, 3, ... files of 50 rows, as they do when rows wait. A listing finds one of them running."""
    files, seen = FileCount(), 2
    files.update([FileSource(seen=seen + running_at_start, pending=16, is_limited=False)], in_batch=running_at_start)
    assert files.pending_rows is None  # the rows of a file are not known yet
    for number in range(1, 10):
        files.add_batch(50 * number)
        seen += number
        if number % batches_per_listing == 0:
            files.update([FileSource(seen=seen + number + 1, pending=4, is_limited=False)], in_batch=True)
    assert files.pending_rows == pytest.approx(200.0)
    assert files.arrived_files == seen + 10 + 4
    files.update([FileSource(seen=60, pending=0, is_limited=False)], in_batch=False)
    assert files.pending_rows == 0.0


def test_a_batch_of_files_is_full_if_it_has_the_largest_number_of_files() -> None:
    """Files that appear during a batch are pending at its end, although it read all files that were there before."""
    files = FileCount()
    for number in range(3):
        files.update([FileSource(seen=4 * number, pending=3, is_limited=True, most_files=4)], in_batch=False)
        files.add_batch(200)
    assert files.limit_rows == 200
    assert [files.is_full(rows) for rows in (50, 150, 200)] == [False, False, True]


def test_a_local_program_is_told_why_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.spark.watched.engine.StageTimes", lambda spark, from_now: None)
    monkeypatch.setattr(WatchedEngine, "executors", lambda self: (1, 2))
    engine = WatchedEngine(SimpleNamespace(sparkContext=SimpleNamespace(appName="theirs", master="local[2]")))
    with pytest.raises(penstock.PenstockError, match=r"runs on master 'local\[2\]'.*Start it on a cluster"):
        engine.apply(engine.plan.replace(slots=4))


def test_a_topic_that_has_lost_its_oldest_rows_brings_no_more_for_that() -> None:
    """Spark does not say where the first batch began. 20,000 rows are there, 500 a batch are read, 100 rows/s come."""
    first, history, seen = 10**9, QueryHistory(), []
    for number in range(3):
        at = first + 500 * number
        offsets = {"startOffset": {"t": {"0": at}} if number else None, "endOffset": {"t": {"0": at + 500}}}
        latest = {"latestOffset": {"t": {"0": first + 20_000 + 100 * number}}, "numInputRows": 500}
        add(history, batch(number, float(number), 0.9, 500) | {"sources": [offsets | latest]})
        seen.append((history.backlog_rows, history.arrivals.rate_per_s(horizon_s=30.0)))
    assert seen == [(19_500.0, None), (19_100.0, 100.0), (18_700.0, pytest.approx(100.0))]


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


@pytest.mark.parametrize(
    "error", [None, RuntimeError("Query failed.\nValueError: broken row\n  at o.a.s.X(X.scala:1)")]
)
def test_a_query_that_has_ended_is_recorded_with_its_error(error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running = [theirs([batch(0, time.time() - 5.0, 1.0, 10)])]
    look = looks(monkeypatch, running)
    assert look().pipelines[0].state == "running"
    running[0].exception = lambda: error
    running.clear()
    (query,) = look().pipelines
    assert (query.state, query.error) == (("ended", None) if error is None else ("crashed", "ValueError: broken row"))
    assert look().pipelines == ()


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


def add(history: QueryHistory, progress: dict[str, Any]) -> None:
    executors = Executors(slots=2, slots_per_executor=2, max_executors=1, changed=False)
    history.add([report(progress)], lambda run_id, batch_id: None, executors, is_running=True)


def report(progress: dict[str, Any]) -> Progress:
    return decode_progress(json.dumps(progress))


def theirs(made: list[dict[str, Any]], status: Callable[[], Any] = _gone) -> Any:
    def reports() -> list[Any]:
        return [SimpleNamespace(json=lambda progress=progress: json.dumps(progress)) for progress in made]

    class Query(SimpleNamespace):
        status = property(lambda self: status())

    java_query = SimpleNamespace(recentProgress=reports)
    return Query(id="id", name="theirs", _jsq=java_query, exception=lambda: None)


def looks(monkeypatch: pytest.MonkeyPatch, running: list[Any]) -> Callable[[], Window]:
    """A watcher of these queries."""
    stages = SimpleNamespace(refresh=lambda: None, stages=lambda run, number: None)
    monkeypatch.setattr("penstock.engines.spark.watched.engine.StageTimes", lambda spark, from_now: stages)
    monkeypatch.setattr(WatchedEngine, "executors", lambda self: (1, 2))
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(appName="theirs"), streams=SimpleNamespace(active=running)
    )
    return WatchedEngine(spark).observe


def measured(window: Window) -> tuple[int, int, float | None, int | None]:
    """Batches, their rows and seconds; and the rows that were read."""
    (query,) = window.pipelines
    return query.batches, query.rows_in, query.batch_s, window.operators[0].rows_in
