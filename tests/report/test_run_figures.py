"""Figures of a report: the warm-up, the latency target, the utilisation, shared costs and a watched program."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

import penstock
from penstock.cli.main import cli
from penstock.measure.window import PipelineWindow, SharedCost, Window
from penstock.report.live_table import window_line, window_table
from penstock.report.page import run_page
from penstock.report.run_report import RunReport, run_report
from penstock.store import DecisionRecord, LatencyTarget, RunStart, Store, StoreReader
from tests.support.sample_runs import START_S, chain, decided, plan, window_at

RUN = RunStart(dataflow="wordcount", flow_file="wordcount.py", pid=1, master="local[2]", started_s=START_S)


def stored(
    at: Path, windows: Iterable[Window], decisions: Iterable[DecisionRecord] = (), run: RunStart = RUN, **start: object
) -> RunReport:
    with Store(at) as store:
        store.begin_run(run)
        store.run_started(plan(), chain("lines", "split", "count", "out"), **start)  # type: ignore[arg-type]
        for window in windows:
            store.add_window(window)
        for decision in decisions:
            store.add_decision(decision)
        store.end_run(at_s=START_S + 100, reason="asked to stop")
    with StoreReader(at) as reader:
        return run_report(at, reader, now_s=START_S + 1e6)


def test_headline_figures_leave_out_the_warm_up_and_plots_mark_it(tmp_path: Path) -> None:
    windows = [window_at(number, latency_s=18.0 if number < 5 else 0.5) for number in range(20)]
    windows = [msgspec.structs.replace(window, warm_up=number < 5) for number, window in enumerate(windows)]
    report = stored(tmp_path, windows, startup_s={"Spark session": 4.0, "first batch": 2.5}, at_s=START_S)
    assert report.totals.latency_mean_s == pytest.approx(0.5) and report.totals.worst_p95_s == 1.0
    assert report.totals.warm_up_s == pytest.approx(10.0) and report.totals.windows == 20
    assert report.totals.rows == sum(window.operators[0].rows_in or 0 for window in windows)
    assert [point.warm_up for point in report.points] == [True] * 5 + [False] * 15
    page = run_page(report)
    assert page.count('<rect class="warm" x="0.0" width="250.0"') == 4  # throughput, backlog, latency and utilisation
    assert "leave out the warm-up of 10 s" in page and "Spark session 4 s, first batch 2.5 s" in page
    shown = CliRunner().invoke(cli, ["status", str(tmp_path)]).output
    assert "started in 6.5 s: Spark session 4 s, first batch 2.5 s" in shown
    assert "warming up" in window_line(windows[0]) and "warming up" not in window_line(windows[-1])


def test_a_run_that_ends_within_its_warm_up_still_has_figures(tmp_path: Path) -> None:
    report = stored(tmp_path, [msgspec.structs.replace(window_at(0), warm_up=True)])
    assert report.totals.latency_mean_s == 0.5 and report.totals.warm_up_s == 0


@pytest.mark.parametrize(("quantile", "line"), [(None, "mean"), (0.95, "p95"), (0.99, "p99")])
def test_the_latency_target_is_a_line_with_the_share_of_time_within_it(
    tmp_path: Path, quantile: float | None, line: str
) -> None:
    # The mean is 0.5 s in 15 windows of 20 and 2 s in 5; p95 is twice and p99 three times the mean.
    target_s = {None: 1.0, 0.95: 2.0, 0.99: 3.0}[quantile]
    run = msgspec.structs.replace(RUN, latency_target=LatencyTarget(seconds=target_s, quantile=quantile))
    windows = [window_at(number, latency_s=2.0 if number < 5 else 0.5) for number in range(20)]
    report = stored(tmp_path, windows, run=run)
    assert report.totals.share_within_target == pytest.approx(0.75)
    assert {point.target_s for point in report.points} == {target_s}
    page = run_page(report)
    assert f"target for the {line}" in page and '<path class="target' in page and ">75%<" in page
    assert json.loads(msgspec.json.encode(report))["totals"]["share_within_target"] == pytest.approx(0.75)


def with_tasks(number: int, *, busy_s: float | None, batches: int = 1, batch_s: float = 2.0) -> Window:
    pipeline = PipelineWindow(
        pipeline="out",
        operators=("lines", "split", "count", "out"),
        batches=batches,
        rows_in=100 * batches,
        batch_s=batch_s if batches else None,
        batch_max_s=batch_s if batches else None,
        phases_s={},
        busy_s=busy_s,
        backlog_rows=0,
    )
    return msgspec.structs.replace(window_at(number), pipelines=(pipeline,))


def test_utilisation_over_time_spreads_a_long_batch_over_its_windows(tmp_path: Path) -> None:
    # 2 slots, windows of 2 s: 4 slot-seconds each. The third window ends a batch of 4 s with 6 s of task time.
    windows = [
        with_tasks(0, busy_s=1.0),
        with_tasks(1, busy_s=None, batches=0),
        with_tasks(2, busy_s=6.0, batch_s=4.0),
        with_tasks(3, busy_s=None),
    ]
    report = stored(tmp_path, windows)
    assert [point.utilisation for point in report.points] == [0.25, 0.75, 0.75, None]
    assert report.totals.utilisation == pytest.approx((0.25 + 0.75 + 0.75) / 3)
    assert "Utilisation of the slots" in run_page(report)


def shared_window(number: int = 0) -> Window:
    window = window_at(number)
    shared = SharedCost(operators=("split", "count", "out"), seconds_per_row=369e-6, utilisation=0.45)
    operators = [
        msgspec.structs.replace(row, seconds_per_row=123e-6, shared_cost=None if row.operator == "lines" else shared)
        for row in window.operators
    ]
    return msgspec.structs.replace(window, operators=tuple(operators))


def test_a_shared_cost_is_shown_as_that_of_the_group(tmp_path: Path) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(window_table(shared_window(), plan()))
    table = console.export_text()
    assert table.count("(369 us)") == 3 and table.count("(45%)") == 3
    assert "split + count + out: cost and busy time of all together" in " ".join(table.split())
    late = [msgspec.structs.replace(operator, late_rows_total=3) for operator in shared_window().operators]
    console.print(window_table(msgspec.structs.replace(shared_window(), operators=tuple(late)), plan()))
    both = " ".join(console.export_text().split())
    assert "'count' has dropped 3 late rows." in both and "cost and busy time of all together" in both
    assert "123 us" in table.split("lines")[1].splitlines()[0] and table.count("123 us") == 1
    assert window_line(shared_window()).endswith("split + count + out together 369 us/row")
    report = stored(tmp_path, [shared_window(number) for number in range(3)])
    page = run_page(report)
    assert page.count("(369 us) shared") == 3 and "split + count + out: cost and busy time of all together" in page
    operators = {operator["operator"]: operator for operator in json.loads(msgspec.json.encode(report))["operators"]}
    assert operators["count"]["shared_cost"]["operators"] == ["split", "count", "out"]
    assert operators["lines"]["shared_cost"] is None
    frame = penstock.open_run(tmp_path).operators(last=1).set_index("operator")
    assert frame.loc["count", "shared_by"] == ("split", "count", "out") and frame.loc["lines", "shared_by"] is None
    assert frame.loc["count", "shared_seconds_per_row"] == pytest.approx(369e-6)


def test_late_rows_and_open_windows_are_shown_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_event_time(number: int) -> Window:
        window = window_at(number)
        operators = [
            msgspec.structs.replace(row, late_rows=1, late_rows_total=number + 1, open_windows=7 - number)
            if row.operator == "count"
            else row
            for row in window.operators
        ]
        return msgspec.structs.replace(window, operators=tuple(operators))

    report = stored(tmp_path, [with_event_time(number) for number in range(3)])
    late = "'count' has dropped 3 late rows."
    held = "'count' holds 5 open windows, which it emits when the watermark passes the end of the window."
    assert report.event_time_remarks == (late, held)
    operators = {operator.operator: (operator.late_rows, operator.open_windows) for operator in report.operators}
    assert operators["count"] == (3, 5) and operators["split"] == (None, None)
    page = run_page(report)
    assert late.replace("'", "&#39;") in page and held.replace("'", "&#39;") in page
    shown = " ".join(CliRunner().invoke(cli, ["status", str(tmp_path)]).output.split())
    assert late in shown and held in shown
    status = json.loads(CliRunner().invoke(cli, ["status", str(tmp_path), "--json"]).output)
    counted = next(row for row in status["window"]["operators"] if row["operator"] == "count")
    assert (counted["late_rows_total"], counted["open_windows"]) == (3, 5)
    frame = penstock.open_run(tmp_path).operators(last=1).set_index("operator")
    assert (frame.loc["count", "late_rows"], frame.loc["count", "open_windows"]) == (1, 5)

    class EndedRun(SimpleNamespace):
        """A run whose input has ended, with the stored status."""

        def __enter__(self) -> EndedRun:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    run = EndedRun(
        wait=lambda timeout_s: True,
        status=penstock.open_run(tmp_path).status,
        stop_reason="all input has been processed",
        resume_command=lambda: "penstock run ...",
    )
    monkeypatch.setattr(penstock, "run", lambda *_, **__: run)
    ended = CliRunner().invoke(cli, ["run", "penstock.apps.nexmark:q5", "--at", str(tmp_path), "--until-idle"])
    assert late in ended.output and held in ended.output and "all input has been processed" in ended.output


@pytest.mark.parametrize("kind", ["change", "hold"])
def test_a_watched_program_shows_latency_capacity_and_recommendation_first(tmp_path: Path, kind: str) -> None:
    run = msgspec.structs.replace(RUN, kind="watch", flow_file="-", slots_per_executor=2)
    windows = [
        msgspec.structs.replace(with_tasks(number, busy_s=1.0, batches=2, batch_s=0.6), latency=None)
        for number in range(5)
    ]
    decision = decided(
        windows[-1].end_s,
        policy="mst",
        mode="recommend",
        reason="The load needs 900 rows/s: 1 -> 3 executors, which sustain 1100 rows/s.",
        inputs={"capacity_rows_per_s": 400.0},
    )
    if kind == "change":
        decision = msgspec.structs.replace(
            decision, kind="change", new=plan(count=6).replace(slots=6), applied="recommended", reason_code="shortage"
        )
    report = stored(tmp_path, windows, [decision], run=run)
    # Two batches of 0.6 s in 2 s: a row waits 0.5 s on average for the next start, and 0.6 s for the end.
    assert report.totals.latency_mean_s == pytest.approx(1.1)
    assert report.watched is not None and report.watched.capacity_rows_per_s == 400.0
    assert report.watched.recommended_executors == (3 if kind == "change" else None)
    page = run_page(report)
    first_screen = page[: page.index('id="dataflow"')]
    assert "which sustain 1100 rows/s" in first_screen and "Estimated capacity" in first_screen
    assert "400 /s" in first_screen and "1.1 s" in first_screen and "with 1 executor<" in first_screen
    assert ("Use 3 executors instead of 1." in first_screen) == (kind == "change")


def test_the_capacity_of_a_watched_program_may_have_an_interval_or_only_a_lower_end(tmp_path: Path) -> None:
    run = msgspec.structs.replace(RUN, kind="watch", flow_file="-")
    windows = [with_tasks(number, busy_s=1.0) for number in range(3)]
    inputs = {"capacity_rows_per_s": 1400.0, "capacity_low_rows_per_s": 1200.0, "capacity_high_rows_per_s": 1700.0}
    measured = decided(windows[1].end_s, inputs=inputs, binding="the driver")
    warming_up = decided(windows[2].end_s, reason="Too early.", inputs={})
    page = run_page(stored(tmp_path / "interval", windows, [measured, warming_up], run=run))
    assert (
        "1,400 /s" in page and "1,200 to 1,700" in page and "Bottleneck: the driver." in page and "Too early." in page
    )
    lower_end = decided(windows[1].end_s, inputs={"capacity_rows_per_s": None, "capacity_low_rows_per_s": 1200.0})
    assert "at least 1,200 /s" in run_page(stored(tmp_path / "low", windows, [lower_end], run=run))
    assert ">unknown<" in run_page(stored(tmp_path / "none", windows, [], run=run))
