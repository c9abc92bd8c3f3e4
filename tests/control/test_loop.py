"""The loop on an engine in memory with a fake clock: records, errors and ends of a run."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.control.loop import Loop, Stopped
from penstock.control.requests import Answer, Apply, Rate, Request, Requests, Rescale, Stop, _get, _put
from penstock.control.run import RunSchedule, run
from penstock.control.signals import StopSignals
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.store import RunStart, Store
from tests.support.memory_engine import FakeClock, MemoryEngine


def double(rows: int | None = 1000, rows_per_s: float = 50.0) -> penstock.Dataflow:
    flow = penstock.Dataflow("double")
    numbers = flow.source(
        "numbers", penstock.generate(lambda n: n, schema="n bigint", rows=rows, rows_per_s=rows_per_s)
    )
    numbers.rows("twice", lambda row: {"n": 2 * row["n"]}, schema="n bigint").sink("out", penstock.memory())
    return flow


@dataclass
class Bench:
    """A run with its engine and store, and requests to it at given times."""

    engine: MemoryEngine
    store: Store
    requests: Requests
    clock: FakeClock

    def ask_at(self, seconds: float, request: Request, name: str = "1") -> None:
        self.clock.at[1000.0 + seconds] = lambda: _put(self.requests.folder / f"{name}.json", request)

    def answer(self, name: str = "1") -> Answer:
        answer = _get(self.requests.folder / f"{name}.answer.json")
        assert answer is not None
        return answer

    def run(self, **options: Any) -> Stopped:
        calls = {name: options.pop(name) for name in ("on_window", "on_message") if name in options}
        loop = Loop(engine=self.engine, store=self.store, clock=self.clock, **calls)
        return run(self.engine, loop, self.requests, RunSchedule(**options))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    clock = FakeClock()
    with Store(tmp_path) as store:
        store.begin_run(RunStart(dataflow="double", flow_file="double.py", pid=1, master="local[2]", started_s=1000.0))
        yield Bench(MemoryEngine(double(), tmp_path, clock=clock), store, Requests(tmp_path), clock)


def test_all_input_is_processed_and_every_window_recorded(bench: Bench) -> None:
    seen: list[tuple[Window, Plan]] = []
    ended = bench.run(window_s=2.0, until=bench.engine.idle, on_window=lambda *both: seen.append(both))
    assert ended == Stopped(reason="all input is processed")
    assert bench.engine.rows == [{"n": 2 * number} for number in range(1000)]
    kept = [window for _, window in bench.store.windows()]
    assert kept == [window for window, _ in seen]
    assert len(kept) == 10  # 1000 rows at 50 rows/s take 20 s
    assert [round(window.end_s - window.start_s, 6) for window in kept] == [2.0] * 10
    assert all(before.end_s == after.start_s for before, after in itertools.pairwise(kept))
    assert not bench.engine.running
    last = bench.store.last_run()
    assert last is not None and last.stop_reason == "all input is processed" and last.plan == bench.engine.plan


def test_the_last_window_has_all_rows_that_were_read_before_the_end(bench: Bench) -> None:
    def idle() -> bool:
        """The engine reads rows between two calls of `observe`."""
        bench.clock.sleep(0.5)
        return bench.engine.idle()

    bench.run(window_s=1.96, until=idle)
    assert (
        sum(
            operator.rows_in or 0
            for _, window in bench.store.windows()
            for operator in window.operators
            if operator.operator == "twice"
        )
        == 1000
    )


def test_rescale_is_applied_recorded_and_answered(bench: Bench) -> None:
    before = bench.engine.plan
    bench.ask_at(3.0, Rescale(replicas={"twice": 5}))
    bench.run(until=bench.engine.idle)
    assert bench.engine.plan.replicas == {"twice": 5}
    (change,) = bench.store.plan_changes()
    assert (change.outcome, change.asked, change.old, change.new) == (
        "ok",
        "rescale twice=5",
        before,
        bench.engine.plan,
    )
    assert change.reason == "twice: 2 -> 5 replicas" and change.pause_s == 0.0
    assert 1003.0 <= change.at_s < 1003.3  # not only when the next window is due
    answer = bench.answer()
    assert answer.ok and answer.applied is not None and answer.applied.plan == bench.engine.plan
    assert bench.store.plan() == bench.engine.plan
    assert {window.generation for _, window in bench.store.windows()} == {1, 2}
    assert len(bench.engine.rows) == 1000


def test_a_rolled_back_plan_is_recorded_with_its_reason(bench: Bench) -> None:
    before = bench.engine.plan
    bench.engine.refuse_slots = 64
    bench.ask_at(3.0, Apply(plan=before.replace(slots=64)))
    bench.run(until=bench.engine.idle)
    (change,) = bench.store.plan_changes()
    assert (change.outcome, change.reason, change.pause_s) == ("rolled back", "there are no 64 slots", None)
    assert bench.engine.plan == before == bench.store.plan()
    assert bench.answer() == Answer(ok=False, text="rolled back: there are no 64 slots")
    assert len(bench.engine.rows) == 1000


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Rescale(replicas={"thrice": 2}), "'thrice', which is not an operator of dataflow 'double'"),
        (Rescale(replicas={"twice": 0}), "give a whole number, 1 or more"),
        (Apply(plan=Plan(dataflow="other", slots=2)), "The plan is for dataflow 'other'"),
        (Rate(source="twice", rows_per_s=5.0), "'twice' is no paced source"),
    ],
)
def test_an_invalid_request_has_no_effect(bench: Bench, request_: Request, text: str) -> None:
    bench.ask_at(3.0, request_)
    bench.run(until=bench.engine.idle)
    assert not bench.answer().ok and text in bench.answer().text
    assert bench.store.plan_changes() == []
    (error,) = bench.store.errors()
    assert text in error.message and error.where == str(request_) and error.traceback is None
    assert len(bench.engine.rows) == 1000


def test_the_rate_can_be_changed(bench: Bench) -> None:
    bench.ask_at(2.0, Rate(source="numbers", rows_per_s=150.0))
    bench.run(until=bench.engine.idle)
    assert bench.answer().ok
    # 100 rows in the first 2 s, then 900 rows at 150 rows/s: 8 s instead of 20.
    assert bench.clock.time() == pytest.approx(1008.0, abs=0.5)


def test_a_file_that_is_no_request_is_answered_and_survived(bench: Bench) -> None:
    bench.clock.at[1003.0] = lambda: (bench.requests.folder / "1.json").write_text('{"kind": "explode"}')
    bench.run(until=bench.engine.idle)
    assert not bench.answer().ok and "not a valid request" in bench.answer().text


def test_errors_of_observe_are_recorded_and_the_loop_continues(bench: Bench) -> None:
    bench.engine.broken = [RuntimeError("metrics went away"), penstock.PenstockError("stale")]
    ended = bench.run(until=bench.engine.idle)
    assert not ended.failed
    first, second = bench.store.errors()
    assert first.where == "observe" and first.message == "RuntimeError: metrics went away"
    assert first.traceback is not None and "memory_engine.py" in first.traceback
    assert second.message == "stale" and second.traceback is None
    assert len(bench.store.windows()) == 8


def test_stop_is_answered_after_the_engine_has_stopped(bench: Bench) -> None:
    bench.ask_at(5.0, Stop())
    assert bench.run() == Stopped(reason="asked to stop")
    assert bench.answer() == Answer(ok=True, text="stopped")
    assert not bench.engine.running
    # The last window is not lost: 5 s at 50 rows/s.
    windows = [window for _, window in bench.store.windows()]
    assert sum(window.operator("twice").rows_in or 0 for window in windows) == pytest.approx(250, abs=6)


def test_requests_to_an_earlier_run_are_refused(bench: Bench) -> None:
    _put(bench.requests.folder / "1.json", Stop())
    (bench.requests.folder / "0.answer.json").write_text("left behind")
    assert bench.run(until=bench.engine.idle).reason == "all input is processed"
    assert "sent before this run began" in bench.answer().text
    assert not (bench.requests.folder / "0.answer.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_cleanly_and_handlers_are_put_back(bench: Bench, number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    bench.clock.at[1003.0] = lambda: os.kill(os.getpid(), number)
    assert bench.run() == Stopped(reason=number.name)
    assert not bench.engine.running
    assert signal.getsignal(number) == handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_the_start_of_a_command(number: signal.Signals) -> None:
    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt), signals.interrupting():
            os.kill(os.getpid(), number)
            signal.pause()
        assert signals.received == number.name


def twice() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


def test_a_second_ctrl_c_does_not_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.signals._TOGETHER_S", 0.0)
    bench.clock.at[1003.0] = twice
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert not bench.engine.running


def test_simultaneous_signals_count_once(bench: Bench) -> None:
    bench.clock.at[1003.0] = twice
    assert bench.run() == Stopped(reason="SIGINT")
    assert not bench.engine.running


def test_an_engine_that_fails_ends_the_run(bench: Bench) -> None:
    bench.clock.at[1003.0] = lambda: setattr(bench.engine, "failed", "query 'out' died: disk full")
    assert bench.run() == Stopped(reason="query 'out' died: disk full", failed=True)
    assert [error.message for error in bench.store.errors()] == ["query 'out' died: disk full"]
    assert not bench.engine.running


def test_an_engine_that_cannot_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise penstock.PenstockError("no Java here")

    monkeypatch.setattr(bench.engine, "start", start)
    with pytest.raises(penstock.PenstockError, match="no Java here"):
        bench.run()
    assert "no Java here" in bench.store.errors()[-1].message
    run_ = bench.store.last_run()
    assert run_ is not None and run_.plan is None and "no Java here" in (run_.stop_reason or "")


def test_an_error_of_the_viewer_stops_the_engine(bench: Bench) -> None:
    def broken_pipe(window: Window, plan: Plan) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        bench.run(on_window=broken_pipe)
    assert not bench.engine.running


def test_lost_slots_are_recorded_and_reported(bench: Bench) -> None:
    """The status and the cost use the actual slots."""
    fewer = bench.engine.plan.replace(slots=1)

    def recover() -> tuple[str, ...]:
        if bench.clock.time() < 1010.0 or bench.engine.plan == fewer:
            return ()
        bench.engine.plan = fewer
        return ("1 executor is gone: it goes on with 1 slots instead of 2",)

    bench.engine.recover = recover  # type: ignore[method-assign]
    messages: list[str] = []
    bench.run(until=bench.engine.idle, on_message=messages.append)
    assert messages == ["1 executor is gone: it goes on with 1 slots instead of 2"]
    (change,) = bench.store.plan_changes()
    assert (change.outcome, change.old.slots, change.new.slots) == ("ok", 2, 1)
    assert change.at_s == pytest.approx(1010.0, abs=0.5)
    assert len(bench.store.errors()) == 1
