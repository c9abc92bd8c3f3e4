"""`penstock demo`: the same rise and fall of the load, first under a fixed plan, then under a policy."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.record import RunRecord
from penstock.api.running import Run, run
from penstock.dataflow.local_paths import local_directory
from penstock.measure.window import Window
from penstock.plan import default_plan
from penstock.plan.plan import Plan, diff
from penstock.report.history import share_within_target

if TYPE_CHECKING:
    from penstock.store import DecisionRecord

SLOTS = 8  # more than most machines have cores; the operator waits and needs no core
FIXED_REPLICAS = 2  # suffice for the low rate only
LOW_ROWS_PER_S = 40.0
RISE = 4.0
TARGET_S = 3.0  # latency target on a machine that is not busy
_TARGET_FACTOR = 2.0  # on a slower machine, the target is this multiple of the latency under the low load
PHASES = ((1.0, 0.14), (RISE, 0.46), (1.0, 0.4))  # factor of the rate, share of the time
_WINDOW_S = 1.0
_SETTLE_S = 20.0  # longest wait for the latency to fall below the target after the start
_WARM_UP_ROWS = 60 * SLOTS

Say = Callable[[str], None]
Show = Callable[[Window, Plan], None]


class DemoRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one run of the load."""

    seconds: float
    latency_p95_s: float | None  # rows that were still waiting are not included
    share_within_target: float  # share of the time
    slot_seconds: float
    most_slots: int
    last_slots: int
    most_backlog_rows: int
    last_backlog_rows: int


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    target_s: float
    without: DemoRunResult
    with_policy: DemoRunResult
    decisions: tuple[str, ...]
    rows: int
    differences: tuple[str, ...]
    report: str
    seconds: float

    @property
    def is_exact(self) -> bool:
        return not self.differences


def demonstrate(
    at: str | Path, *, seconds: float = 100.0, spark: Any = None, say: Say | None = None, show: Show | None = None
) -> DemoResult:
    """Run the load twice for `seconds` in total in the directory `at`, which is emptied first, and compare both runs.

    `say` receives one line of text at a time, and `show` each window. Without `spark`, a session with more slots than
    cores is created and stopped at the end.
    """
    from penstock.engines.spark.session import session

    directory, say = local_directory(at), say or _nothing
    shutil.rmtree(directory, ignore_errors=True)
    say(f"Starting Spark with {SLOTS} slots, more than the machine has cores: the operator waits and needs no core.")
    owned = session(f"local[{SLOTS}]", "penstock demo", run=directory) if spark is None else None
    try:
        return _Demo(spark or owned, directory, seconds / 2, say, show).result()
    finally:
        if owned is not None:
            owned.stop()


class _Demo:
    """The two runs of the load, each of `load_s` seconds."""

    def __init__(self, spark: Any, directory: Path, load_s: float, say: Say, show: Show | None) -> None:
        from penstock.apps.demonstration import flow

        self._directory, self._load_s, self._say, self._show = directory, load_s, say, show
        self._began_s = time.monotonic()
        self._flow = flow(0.0)  # no rows arrive before the queries run
        plan = default_plan(self._flow, slots=SLOTS, replicas={"lookup": FIXED_REPLICAS})
        self._options: dict[str, Any] = {"spark": spark, "plan": plan, "window_s": _WINDOW_S, "batch_s": 1.0}

    def result(self) -> DemoResult:
        _warm_up(self._options["spark"], self._directory / "warm-up")
        target_s, without = self._run_fixed_plan()
        return self._run_policy(target_s, without)

    def _run_fixed_plan(self) -> tuple[float, DemoRunResult]:
        """Run the load under the fixed plan; return the latency target for this machine, and the measurements."""
        from penstock.apps.demonstration import SOURCE

        self._say(
            f"\n1. Without Penstock: {FIXED_REPLICAS} slots all the time. "
            f"The load is {LOW_ROWS_PER_S:g} rows/s, then {RISE * LOW_ROWS_PER_S:g}, then {LOW_ROWS_PER_S:g} again."
        )
        with run(self._flow, at=self._directory / "without", on_window=self._show, **self._options) as fixed_run:
            span = _apply_load(fixed_run, SOURCE, self._load_s, self._say)
        target_s = _target_s(fixed_run, span[0] + PHASES[0][1] * self._load_s)
        result = load_result(fixed_run, span, target_s)
        self._say(
            f"   The backlog grew to {result.most_backlog_rows:,} rows; {result.last_backlog_rows:,} rows still wait."
        )
        return target_s, result

    def _run_policy(self, target_s: float, without: DemoRunResult) -> DemoResult:
        """Run the load under the policy, and compare the measurements with those of the fixed plan."""
        from penstock.apps.demonstration import SINK, SOURCE, differences

        self._say(f"\n2. The same load with Penstock: policy drs, mode active, target {target_s:.1f} s mean latency.")
        sentences = _Decisions(self._directory / "with", self._say)

        def on_window(window: Window, plan: Plan) -> None:
            if self._show is not None:
                self._show(window, plan)
            sentences.print_new()

        with run(
            self._flow,
            at=self._directory / "with",
            policy="drs",
            latency_s=target_s,
            mode="active",
            windows=2,
            warm_up_s=3.0,
            cooldown_s=4.0,
            on_window=on_window,
            **self._options,
        ) as scaled_run:
            span = _apply_load(scaled_run, SOURCE, self._load_s, self._say)
        sentences.print_new()
        output = scaled_run.rows(SINK)
        return DemoResult(
            target_s=target_s,
            without=without,
            with_policy=load_result(scaled_run, span, target_s),
            decisions=tuple(sentences.changes),
            rows=len(output),
            differences=tuple(differences(output, _rows_read(scaled_run, SOURCE))),
            report=str(scaled_run.report()),
            seconds=time.monotonic() - self._began_s,
        )


def _nothing(text: str) -> None:
    pass


def _warm_up(spark: Any, at: Path) -> None:
    """Run some rows through all slots: the first batches of Python workers and of the JVM take many seconds."""
    from penstock.apps.demonstration import flow

    dataflow = flow(1_000.0, rows=_WARM_UP_ROWS)
    plan = default_plan(dataflow, slots=SLOTS, replicas={"lookup": SLOTS})
    run(dataflow, at=at, spark=spark, plan=plan, window_s=0.5, batch_s=0.5, until_idle=True).wait()


def _apply_load(running: Run, source: str, seconds: float, say: Say) -> tuple[float, float]:
    """Change the rate in phases; return the start and the end of the phases, in seconds since the epoch."""
    running.set_rate(source, LOW_ROWS_PER_S)
    _await_target(running)
    began_s = time.time()
    for factor, share in PHASES:
        running.set_rate(source, factor * LOW_ROWS_PER_S)
        say(f"   Load: {factor * LOW_ROWS_PER_S:g} rows/s for {share * seconds:.0f} s.")
        running.wait(timeout_s=share * seconds)
    return began_s, time.time()


def _await_target(running: Run) -> None:
    """Wait until the latency is below the target, so that the start itself is not part of the comparison."""
    give_up_s = time.monotonic() + _SETTLE_S
    while time.monotonic() < give_up_s and running.is_running:
        window = running.status().window
        if window is not None and window.latency is not None and window.latency.mean_s < TARGET_S:
            return
        time.sleep(_WINDOW_S / 2)


class _Decisions:
    """Prints each decision in one sentence; between two changes, each reason to hold is printed once."""

    def __init__(self, directory: Path, say: Say) -> None:
        self._record, self._say = RunRecord(directory), say
        self._last_number = 0
        self._printed_reasons: set[str] = set()  # since the last change
        self.changes: list[str] = []

    def print_new(self) -> None:
        for number, decision in self._record.decision_rows()[0]:
            if number <= self._last_number:
                continue
            self._last_number = number
            if decision.kind == "change":
                self._printed_reasons.clear()
            elif decision.reason_code in self._printed_reasons:
                continue
            self._printed_reasons.add(decision.reason_code)
            sentence = decision_sentence(decision)
            self._say(f"   > {sentence}")
            if decision.kind == "change":
                self.changes.append(sentence)


def decision_sentence(decision: DecisionRecord) -> str:
    """Return a decision and its reason as one sentence."""
    reason = decision.reason.rstrip(".")
    if decision.new is None:
        return f"Hold ({decision.reason_code}): {reason}."
    return f"Change {diff(decision.old, decision.new)} ({decision.reason_code}): {reason}."


def load_result(record: RunRecord, span: tuple[float, float], target_s: float) -> DemoRunResult:
    """Summarise the windows of a run that ended within the time `span`."""
    return summarise(_windows(record, span[0], span[1] + _WINDOW_S), target_s=target_s)


def _target_s(record: RunRecord, rise_s: float) -> float:
    """Return the latency target for this machine, from the lowest latency before the load rises at `rise_s`."""
    latencies = [window.latency.mean_s for window in _windows(record, 0.0, rise_s) if window.latency is not None]
    return max(TARGET_S, _TARGET_FACTOR * min(latencies, default=0.0))


def _windows(record: RunRecord, after_s: float, until_s: float) -> list[Window]:
    """Return the windows that ended in this time."""
    from penstock.store import StoreReader

    with StoreReader(record.directory) as reader:
        return [window for _, window in reader.iter_windows() if after_s < window.end_s <= until_s]


def summarise(windows: Sequence[Window], *, target_s: float) -> DemoRunResult:
    """Add up windows. The slots are those that the plan uses; the local master of the demo holds all of its slots."""
    lengths_s = [window.end_s - window.start_s for window in windows]
    slots = [window.used_slots for window in windows]
    backlogs = [sum(operator.backlog_rows or 0 for operator in window.operators) for window in windows]
    met = [None if window.latency is None else window.latency.mean_s <= target_s for window in windows]
    within = share_within_target(met, [backlog > 0 for backlog in backlogs], lengths_s)
    return DemoRunResult(
        seconds=sum(lengths_s),
        latency_p95_s=_p95_s(windows),
        share_within_target=within or 0.0,
        slot_seconds=sum(s * count for s, count in zip(lengths_s, slots, strict=True)),
        most_slots=max(slots, default=0),
        last_slots=slots[-1] if slots else 0,
        most_backlog_rows=max(backlogs, default=0),
        last_backlog_rows=backlogs[-1] if backlogs else 0,
    )


def _p95_s(windows: Sequence[Window]) -> float | None:
    """Return an upper estimate of the 95 % quantile: all rows of a window count with the quantile of the window."""
    latencies = sorted((window.latency.p95_s, window.latency.rows) for window in windows if window.latency is not None)
    total, passed = sum(rows for _, rows in latencies), 0
    for latency_s, rows in latencies:
        passed += rows
        if passed >= 0.95 * total:
            return latency_s
    return None


def _rows_read(record: RunRecord, source: str) -> int:
    window = record.status().window
    return 0 if window is None else window.operator(source).rows_in_total or 0
