"""`penstock report` on generated stores."""

from __future__ import annotations

import json
import sqlite3
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.control.policies.drs import Drs, DrsSettings, LeastLatency
from penstock.dataflow import PenstockError
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.report.mst_curve import mst_curve
from penstock.report.page import run_page
from penstock.report.run_report import RunReport, run_report
from penstock.store import ErrorRecord, RunStart, Store, StoreReader, Trial
from tests.support.applications import plan_of, video
from tests.support.driving import drive
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import QueueingEngine
from tests.support.sample_runs import HOSTILE, START_S, changed, decided, eventful, plan, window_at

RUN = RunStart(dataflow="wordcount", flow_file="wordcount.py", pid=1, master="local[2]", started_s=START_S)


class Parsed(HTMLParser):
    """Collect tags with their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def printed(*arguments: object, fails: bool = False) -> str:
    result = CliRunner().invoke(cli, ["report", *map(str, arguments)])
    assert isinstance(result.exception, PenstockError) if fails else result.exception is None, result.output
    return str(result.exception) if fails else result.output


def page_of(at: Path) -> Parsed:
    """Write a page with the command and assert that it is self-contained."""
    printed(at)
    text = (at / "report.html").read_text()
    page = Parsed(text)
    for tag, attributes in page.tags:
        assert tag not in ("script", "img", "iframe", "object", "base"), tag
        for name, value in attributes.items():
            assert not name.startswith("on") and name != "src"
            assert name != "href" or (value or "").startswith(("#", "data:"))
    assert "url(" not in text and "@import" not in text
    return page


def read(at: Path, **options: object) -> RunReport:
    with StoreReader(at) as reader:
        return run_report(at, reader, now_s=START_S + 1e6, **options)  # type: ignore[arg-type]


def test_everything_is_on_the_page(tmp_path: Path) -> None:
    eventful(tmp_path)
    text = page_of(tmp_path).text
    for phrase in (
        "split",
        "Throughput, rows/s",
        "Backlog",
        "Latency",
        "Replicas",
        "kept",
        "rolled back",
        "recommended",
    ):
        assert phrase in text
    assert "count: 2 → 8 replicas" in text and "600 ms, 4 slots" in text and "700 ms, 4 slots" in text
    assert "within-target 58 times" in text and "no wordcount" in text and "Traceback" in text
    ids = [attributes["id"] for _, attributes in page_of(tmp_path).tags if "id" in attributes]
    links = {str(attributes["href"])[1:] for tag, attributes in page_of(tmp_path).tags if tag == "a"}
    assert len(ids) == len(set(ids)) and links <= set(ids)


def test_names_of_a_run_are_never_markup(tmp_path: Path) -> None:
    eventful(tmp_path, name=HOSTILE)
    assert page_of(tmp_path).text.count(HOSTILE) > 10
    assert json.loads(printed(tmp_path, "--json"))["run"]["dataflow"] == HOSTILE


def test_json_is_the_same_report(tmp_path: Path) -> None:
    eventful(tmp_path)
    made = msgspec.json.decode(printed(tmp_path, "--json", "--price", "0.1"), type=RunReport)
    assert msgspec.structs.replace(made, made_s=START_S + 1e6) == read(tmp_path, price_per_slot_hour=0.1)


@pytest.mark.parametrize("windows", [0, 1, 2])
@pytest.mark.parametrize("ended", [True, False])
def test_a_run_with_few_or_no_windows(tmp_path: Path, windows: int, ended: bool) -> None:
    with Store(tmp_path) as store:
        store.begin_run(RUN)
        store.run_started(plan())
        for number in range(windows):
            store.add_window(window_at(number))
        if ended:
            store.end_run(at_s=START_S + 60, reason="asked to stop")
        else:
            store._run = None  # without an end, as after kill -9
    page = page_of(tmp_path)
    assert ("No windows yet" in page.text) is (windows == 0)
    assert ("asked to stop" if ended else "killed") in page.text


def test_an_empty_store(tmp_path: Path) -> None:
    Store(tmp_path).close()
    assert "no run has started here yet" in page_of(tmp_path).text


def test_no_store_or_a_broken_one_is_one_error(tmp_path: Path) -> None:
    assert "There is no run in" in printed(tmp_path / "none", fails=True)
    eventful(tmp_path)
    (tmp_path / "report.html").touch()
    with sqlite3.connect(tmp_path / "store.sqlite") as db:
        db.execute("UPDATE windows SET body = 'no window' WHERE id = 40")
    assert "is corrupt or is not a Penstock store" in printed(tmp_path, fails=True)
    assert (tmp_path / "report.html").read_bytes() == b""  # the existing file is unchanged
    (tmp_path / "store.sqlite").write_bytes(b"no database" * 1000)
    assert "is corrupt or is not a Penstock store" in printed(tmp_path, fails=True)


def test_a_report_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    eventful(tmp_path)
    assert "Choose another path" in printed(tmp_path, "-o", tmp_path / "no" / "such" / "page.html", fails=True)
    assert printed(tmp_path, "-o", "-").startswith("<!DOCTYPE html>")


def test_an_hour_is_small_and_keeps_its_peaks(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_run(RUN)
        store.run_started(plan())
        for number in range(1800):
            store.add_window(window_at(number, latency_s=60.0 if number == 777 else 0.5))
            # Changes in every window with different reasons give the largest possible page.
            decision, change = changed(START_S + 2 * number, "kept", count=2 + number % 3)
            store.add_decision(
                decision if number % 2 else decided(START_S + 2 * number, reason_code=f"reason {number % 5}")
            )
            store.add_plan_change(change)
            store.add_error(
                ErrorRecord(at_s=START_S + 2 * number, where="observe", message=f"{number}", traceback="x" * 9999)
            )
    page_of(tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    made = read(tmp_path)
    assert len(made.points) <= 240
    assert max(point.latency_p95_s or 0 for point in made.points) == made.totals.worst_p95_s == 120.0
    rows = sum(window_at(number).operators[0].rows_in or 0 for number in range(1800))
    drawn = sum((point.processed_rows_per_s or 0) * (point.end_s - point.start_s) for point in made.points)
    assert made.totals.rows == rows == pytest.approx(drawn)
    assert made.plan_changes_in_all == 1800 and made.plan_changes[-1].number == 1800
    assert made.errors_in_all == 1800


def test_a_resumed_run_is_drawn_without_the_time_between(tmp_path: Path) -> None:
    eventful(tmp_path, windows=60)
    made = read(tmp_path)
    assert made.totals.observed_s == 2 * 60 + 2 * 30 and len(made.starts) == 2
    assert {point.stretch for point in made.points} == {1, 2}
    assert made.cost is not None and made.cost.seconds == 120 + 60


def test_rows_during_a_change_count(tmp_path: Path) -> None:
    """These rows are in the total of the next window, but not in the count of any window."""
    with Store(tmp_path) as store:
        store.begin_run(RUN)
        store.run_started(plan())
        for number, (own, total) in enumerate([(100, 100), (50, 150), (0, 950), (50, 1000)]):
            window = window_at(number)
            source = msgspec.structs.replace(window.operators[0], rows_in=own, rows_in_total=total)
            store.add_window(msgspec.structs.replace(window, operators=(source, *window.operators[1:])))
    made = read(tmp_path)
    assert [point.processed_rows_per_s for point in made.points] == [50.0, 25.0, 400.0, 25.0]
    assert (made.totals.rows, made.totals.peak_rows_per_s, made.operators[0].rows_in_per_s) == (1000, 400.0, 125.0)


def test_the_cost_is_that_of_the_slots_of_the_plans(tmp_path: Path) -> None:
    """2 slots for 100 s, then 4 for 50 s: 400 slot-seconds, which cost 0.1 at 0.9 per slot and hour."""
    with Store(tmp_path) as store:
        store.begin_run(RUN)
        store.run_started(plan(slots=2))
        store.add_window(window_at(0, window_s=150.0))
        _, change = changed(START_S + 100, "kept", count=4)
        store.add_plan_change(msgspec.structs.replace(change, new=plan(slots=4)))
        store.add_plan_change(msgspec.structs.replace(change, outcome="rolled back", new=plan(slots=99)))
        store.end_run(at_s=START_S + 150, reason="asked to stop")
    cost = read(tmp_path, price_per_slot_hour=0.9).cost
    assert cost is not None
    assert (cost.slot_seconds, cost.peak_slots, cost.peak_slot_seconds) == (400.0, 4, 600.0)
    assert cost.money == pytest.approx(0.1)
    rows = window_at(0, window_s=150.0).operators[0].rows_in
    assert cost.money_per_million_rows == pytest.approx(0.1e6 / rows)


def test_executor_seconds_if_the_slots_per_executor_are_known(tmp_path: Path) -> None:
    """2 slots for 100 s, then 5 for 50 s, on executors of 2 slots: 1 executor for 100 s and 3 for 50 s."""
    with Store(tmp_path) as store:
        store.begin_run(msgspec.structs.replace(RUN, slots_per_executor=2))
        store.run_started(plan(slots=2))
        _, change = changed(START_S + 100, "kept", count=4)
        store.add_plan_change(msgspec.structs.replace(change, new=plan(slots=5)))
        store.end_run(at_s=START_S + 150, reason="asked to stop")
    cost = read(tmp_path).cost
    assert cost is not None and (cost.executor_seconds, cost.peak_executors) == (250.0, 3)
    assert "250 executor-seconds, at most 3 executors" in page_of(tmp_path).text


def test_a_run_of_the_loop_records_its_graph_and_its_decisions(tmp_path: Path) -> None:
    flow, clock = video(), FakeClock()
    replicas = {"extract": 4, "match": 2, "aggregate": 1}
    service = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
    engine = QueueingEngine(
        flow, plan_of(flow, replicas, slots=7), clock=clock, rate=lambda _: 6.0, service_per_s=service
    )
    drive(tmp_path, engine, clock, Drs(DrsSettings(goal=LeastLatency())), windows=8)
    made = read(tmp_path)
    assert {operator.operator: operator.inputs for operator in made.operators} == {
        operator.name: operator.inputs for operator in flow.operators
    }
    assert [operator.replicas for operator in made.operators if operator.operator in ("extract", "match")] == [3, 3]
    (change,), (decision,) = made.plan_changes, made.change_decisions
    assert change.decision == decision.number and decision.decision.verdict == "kept"


def test_trials_of_a_study_with_the_curve_through_them(tmp_path: Path) -> None:
    Store(tmp_path).close()
    trials = [(executors, 1000.0 * executors**0.9 * noise) for executors in (1, 2, 3, 4) for noise in (0.98, 1.02)]
    samples = ThroughputSamples.of("grep", {m: [rate for n, rate in trials if n == m] for m in (1, 2, 3, 4)})
    curve = mst_curve("grep", trials, fit_mst(samples, max_vms=6))
    assert [point.executors for point in curve.fitted] == [1, 2, 3, 4, 5, 6]
    assert all(point.low <= point.rows_per_s <= point.high for point in curve.fitted)
    page = run_page(read(tmp_path, mst=(curve, mst_curve("alone", [(1, 10.0)]))))
    assert "Maximum sustainable throughput" in page and "90% of new measurements" in page and "alone" in page


def without_result(why: str) -> Trial:
    return Trial(
        study="mst",
        executors=4,
        repeat=0,
        plan=plan(slots=8),
        began_s=START_S,
        ended_s=START_S + 10.0,
        rows_per_s=None,
        reason=why,
    )


def study_in(at: Path, *, paced: bool = False) -> None:
    """An executor serves 1000 rows/s; a trial takes 10 s."""
    with Store(at) as store:
        store.begin_run(msgspec.structs.replace(RUN, dataflow="grep", kind="study"))
        keys = [("mst", m, repeat, 1000.0 * m * noise) for m in (1, 2, 3) for repeat, noise in enumerate((0.99, 1.01))]
        for study, executors, repeat, rate in [*keys, *[("mst paced", 2, 0, 1950.0)] * paced]:
            began_s = START_S + 100 * executors + 10 * repeat
            trial = Trial(
                study=study,
                executors=executors,
                repeat=repeat,
                plan=plan(slots=2 * executors),
                began_s=began_s,
                ended_s=began_s + 10.0,
                rows_per_s=rate,
            )
            store.add_trial(trial)
        store.add_trial(without_result("no executors"))
        store.end_run(at_s=START_S + 1000, reason="all trials are complete")


def test_a_study_is_shown_with_its_curve_and_its_cost(tmp_path: Path) -> None:
    study_in(tmp_path, paced=True)
    made = read(tmp_path, price_per_slot_hour=3.6)
    fitted, paced = made.mst
    assert sorted((point.executors, point.rows_per_s) for point in fitted.points) == [
        (m, 1000.0 * m * noise) for m in (1, 2, 3) for noise in (0.99, 1.01)
    ]
    assert fitted.app == "grep" and [point.executors for point in fitted.fitted] == [1, 2, 3, 4, 5, 6]
    for point in fitted.fitted:
        assert point.rows_per_s == pytest.approx(1000.0 * point.executors, rel=0.05)
    assert paced.model is None and [(point.executors, point.rows_per_s) for point in paced.points] == [(2, 1950.0)]
    # 2 x 10 s on each of 1, 2 and 3 executors, 10 s paced on 2, and 10 s on 4 without a result; 2 slots each.
    assert made.cost is not None
    assert (made.cost.executor_seconds, made.cost.peak_executors) == (180.0, 4)
    assert made.cost.slot_seconds == 360.0 and made.cost.money == pytest.approx(0.36)
    text = page_of(tmp_path).text
    assert "grep, rows/s" in text and "grep, paced, rows/s" in text and "180 executor-seconds" in text
    assert "no executors" in text and made.trials_in_all == 8  # one trial has no result, with its reason


def test_a_study_whose_trials_have_no_result_says_why(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_run(msgspec.structs.replace(RUN, kind="study"))
        store.add_trial(without_result("the source ran out of rows"))
    text = page_of(tmp_path).text
    assert "the source ran out of rows" in text and "No windows yet" not in text


def test_a_run_with_the_curve_of_its_study(tmp_path: Path) -> None:
    study_in(tmp_path / "study")
    eventful(tmp_path / "run")
    assert "Maximum sustainable throughput" not in printed(tmp_path / "run", "-o", "-")
    page = printed(tmp_path / "run", "--mst", tmp_path / "study", "-o", "-")
    assert "Maximum sustainable throughput" in page and "grep, rows/s" in page
    assert "There is no run in" in printed(tmp_path / "run", "--mst", tmp_path / "none", fails=True)
