"""Measured and predicted throughput by executors, and a trace that a policy follows. `make bench-elastic`.

The benchmark starts a real cluster on this machine. Operators sleep instead of computing, so that the number of slots
limits the throughput and not the number of cores.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import penstock
from penstock.control.controller import Controller, Settings
from penstock.control.guards import Cooldown
from penstock.control.loop import Loop
from penstock.control.policies.mst import Mst, MstSettings
from penstock.control.requests import Requests
from penstock.control.run import RunSchedule, run
from penstock.dataflow import Dataflow
from penstock.engines.spark import cluster
from penstock.engines.spark.cluster import ClusterSize, SparkCluster
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import Window
from penstock.models.mst.prediction import MstModel, fit_mst
from penstock.plan import Plan
from penstock.store import RunStart, Store
from penstock.study.mst.design import PACED, SATURATED, PlannedTrial, plan_for, samples_of
from penstock.study.mst.samples import Saturation
from penstock.study.mst.study import MstStudy

WORKERS, SLOTS_EACH = 6, 2
WAIT_S = 0.02  # at most 100 rows/s per executor
TRAIN, PREDICTED = (1, 2, 3), (5, 6)
TRACE_S, PEAK_OVER_TROUGH = 480.0, 4.0
EVERY_S = 5.0  # duration of a window
LATE_S = 10.0  # a backlog above the load of this time is a violation

console = Console()


def waited(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_S)
    return row


def waiting() -> Dataflow:
    flow = penstock.Dataflow("waiting")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=50))
    rows.rows("wait", waited, schema="n bigint").sink("out", penstock.noop())
    return flow


def measured(spark: Any, at: Path) -> tuple[MstModel, MstModel, dict[tuple[str, int], float]]:
    """Return a model of the training counts, a model of all counts, and the measured rates by study and executors."""

    def fresh(planned: PlannedTrial, number: int) -> SparkEngine:
        folder = at / f"{planned.study}-{planned.executors}-{planned.repeat}-{number}".replace(" ", "-")
        flow = waiting()
        return SparkEngine(flow, folder, spark=spark, plan=plan_for(flow, planned.executors, SLOTS_EACH))

    with Store(at) as store:
        store.begin_run(RunStart(dataflow="waiting", flow_file="-", pid=0, master="bench", started_s=time.time()))
        study = MstStudy(
            app="waiting",
            fresh=fresh,
            store=store,
            clock=time,
            saturation=Saturation(window_s=8.0, warm_up=2, max_windows=15),
            slots_per_executor=SLOTS_EACH,
        )
        study.run((*TRAIN, *PREDICTED), on=lambda trial, done, total: console.print(f"  {done}/{total} trials"))
        study.run((1,), paced=True)
        trials = store.trials()
    samples = samples_of("waiting", trials)
    assert samples is not None
    trained, whole = (fit_mst(chosen, max_vms=WORKERS) for chosen in (samples.only(TRAIN), samples))
    return trained, whole, {(trial.study, trial.executors): trial.rows_per_s or math.nan for trial in trials}


def prediction(model: MstModel, measured_per_s: dict[tuple[str, int], float]) -> None:
    table = Table("executors", "measured", "predicted", "90% interval", "error", title="MST, rows/s")
    worst = 0.0
    for point in model.predict((*TRAIN, *PREDICTED)):
        rate = measured_per_s[SATURATED, point.vms]
        error = abs(point.throughput - rate) / rate
        worst = max(worst, error) if point.vms in PREDICTED else worst
        table.add_row(
            str(point.vms),
            f"{rate:.1f}",
            f"{point.throughput:.1f}",
            f"{point.low:.1f} to {point.high:.1f}",
            f"{error:.1%}",
        )
    console.print(table)
    paced, saturated = measured_per_s[PACED, 1], measured_per_s[SATURATED, 1]
    console.print(f"largest error at {PREDICTED}: {worst:.1%} ({_verdict(worst <= 0.10)}: at most 10%)")
    apart = abs(paced - saturated) / saturated
    console.print(f"the two definitions are {apart:.1%} apart on 1 executor ({_verdict(apart <= 0.15)}: at most 15%)")


@dataclass
class TraceResult:
    """Totals over the windows of the trace."""

    began_s: float
    peak_per_s: float
    windows: int = 0
    late: int = 0
    seen_s: float = 0.0
    executor_s: float = 0.0
    longest_batch_s: float = 0.0

    def rate(self) -> float:
        """Return the current rate of the trace: a trough, a peak in the middle, and a trough."""
        done = min(1.0, (time.time() - self.began_s) / TRACE_S)
        trough = self.peak_per_s / PEAK_OVER_TROUGH
        return trough + (self.peak_per_s - trough) * math.sin(math.pi * done) ** 2

    @property
    def first_ramp(self) -> bool:
        return time.time() - self.began_s < 60.0

    def note(self, window: Window, plan: Plan) -> None:
        span_s = window.end_s - window.start_s
        self.seen_s += span_s
        self.executor_s += span_s * plan.slots / SLOTS_EACH
        longest = max((pipeline.batch_max_s or 0.0 for pipeline in window.pipelines), default=0.0)
        self.longest_batch_s = max(self.longest_batch_s, longest)
        if self.first_ramp:
            return
        self.windows += 1
        waiting_rows = sum(pipeline.backlog_rows or 0 for pipeline in window.pipelines)
        self.late += waiting_rows > LATE_S * (window.external_rows_per_s or 0.0)


def followed(spark: Any, at: Path, model: MstModel, lead_s: float) -> None:
    capacity = tuple(float(rate) for rate in model.capacity(confidence=0.9))
    peak = 0.9 * capacity[-1]
    at_peak = next(m for m, rate in enumerate(capacity, start=1) if rate >= peak)
    flow = waiting()
    engine = SparkEngine(flow, at, spark=spark, plan=plan_for(flow, 2, SLOTS_EACH))
    seen = TraceResult(began_s=time.time(), peak_per_s=peak)
    policy = Mst(
        MstSettings(
            capacity=capacity, slots_per_executor=SLOTS_EACH, max_executors=WORKERS, lead_s=lead_s, stable_turns=4
        )
    )
    began: list[float] = []

    def on_window(window: Window, plan: Plan) -> None:
        if began:
            seen.note(window, plan)
        else:  # the first window is not part of the trace
            began.append(time.time())
            seen.began_s = began[0]
        engine.set_rate("rows", seen.rate())

    with Store(at) as store:
        store.begin_run(RunStart(dataflow="waiting", flow_file="-", pid=0, master="bench", started_s=time.time()))
        settings = Settings(
            mode="active",
            smoothing=MovingAverage(2),
            micro_batch=True,
            warm_up_s=5.0,
            stale_after_s=120.0,
            max_slots=WORKERS * SLOTS_EACH,
            tolerance=0.9,
        )
        controller = Controller(Cooldown(policy, seconds=15.0), settings, engine, store)
        loop = Loop(engine=engine, store=store, controller=controller, on_window=on_window)
        schedule = RunSchedule(window_s=EVERY_S, until=lambda: bool(began) and time.time() - began[0] > TRACE_S)
        run(engine, loop, Requests(at), schedule)
        changes = [row for _, row in store.decisions() if row.applied == "ok" and row.new is not None]
    static = at_peak * seen.seen_s
    violations = seen.late / max(1, seen.windows)
    share = seen.executor_s / static
    steps = [f"{row.old.slots // SLOTS_EACH} -> {row.new.slots // SLOTS_EACH}" for row in changes if row.new]
    console.print(f"executors: {', '.join(steps)}")
    console.print(f"violations after the first ramp: {violations:.1%} ({_verdict(violations <= 0.01)}: at most 1%)")
    console.print(f"executors for the peak of {peak:.0f} rows/s: {at_peak}")
    console.print(f"executor-seconds of static peak: {share:.1%} ({_verdict(share <= 0.7)}: at most 70%)")
    console.print(f"longest batch: {seen.longest_batch_s:.1f} s, during {len(steps)} changes")


def longest_apply_s(spark: Any, at: Path) -> float:
    """Return the longest time to apply a plan with other executors, which is the lead time that a policy needs.

    After `apply`, new executors are registered, warm and run tasks.
    """
    flow = waiting()
    engine = SparkEngine(flow, at, spark=spark, plan=plan_for(flow, 1, SLOTS_EACH))
    engine.start()
    try:
        while engine.observe().pipelines[0].batches == 0:
            time.sleep(0.5)
        took = []
        for executors in (2, 1, 3, 1):
            began = time.monotonic()
            applied = engine.apply(plan_for(flow, executors, SLOTS_EACH))
            took.append((executors, time.monotonic() - began, applied.pause_s))
    finally:
        engine.stop()
    for executors, seconds, pause_s in took:
        console.print(f"to {executors} executors: {seconds:.1f} s, of which the query was stopped {pause_s:.1f} s")
    return max(seconds for _, seconds, _ in took)


def _verdict(ok: bool) -> str:
    return "ok" if ok else "NOT ok"


def main() -> None:
    at = Path(tempfile.mkdtemp(prefix="penstock-elastic-"))
    asked = ClusterSize(workers=WORKERS, slots=SLOTS_EACH, memory_mb=512)
    try:
        with cluster.start(at / "cluster", asked, ends_with_process=True, patience_s=300) as up:
            _all(up, at)
    finally:
        shutil.rmtree(at, ignore_errors=True)


def _all(up: SparkCluster, at: Path) -> None:
    spark = session(up.master, "penstock bench-elastic", up.confs)
    try:
        apply_s = longest_apply_s(spark, at / "useful")
        trained, whole, measured_per_s = measured(spark, at / "study")
        prediction(trained, measured_per_s)
        followed(spark, at / "follow", whole, lead_s=apply_s + EVERY_S)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
