"""Let a policy act on an engine for a given time, and summarise its cost and its missed targets."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.control.controller import Controller, Settings
from penstock.control.loop import Clock, Loop, Stopped
from penstock.control.policy import Policy, latency_s
from penstock.control.topology import Topology
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.planning.plan_prediction import PlanPrediction
from penstock.store import DecisionRecord, LatencyTarget, RunStart, Store, declarations


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Time of a simulation, in windows (which need not be whole), and the length of a window."""

    windows: float
    window_s: float


class SimulationSummary(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    seconds: float
    slot_seconds: float
    violations: int | None  # windows that missed the target, or in which rows waited and none was processed
    windows: int
    changes: int
    rolled_back: int
    pause_s: float
    mean_latency_s: float | None  # over all rows
    last_hold: str | None = None  # reason of the last decision, if that was a Hold


def simulate(
    policy: Policy,
    engine: RunnableEngine,
    store: Store,
    settings: Settings,
    *,
    clock: Clock,
    duration: Duration,
    target: LatencyTarget | None = None,
    prediction: PlanPrediction | None = None,
) -> tuple[SimulationSummary, list[DecisionRecord]]:
    """Return the summary and the changes that were applied. `clock` is the engine's own clock.

    The total time does not depend on the number of changes, so that policies are comparable. A window with a change in
    it is longer, so there are fewer windows then. The last window ends with the total time.
    """
    store.begin_run(
        RunStart(
            dataflow=engine.flow.name,
            kind="simulation",
            flow_file="-",
            pid=0,
            master="-",
            started_s=clock.time(),
            latency_target=target,
            prediction=prediction,
        )
    )
    totals = _Totals(Topology.of(engine.flow), settings, target)
    controller = Controller(policy, settings, engine, store)
    loop = Loop(engine=engine, store=store, controller=controller, clock=clock, on_window=totals.add)
    engine.start()
    store.run_started(engine.plan, declarations(engine.flow))
    stopped = loop.run(_Schedule(clock, duration).wait)
    engine.stop()
    store.end_run(at_s=clock.time(), reason=stopped.reason)
    applied = [row for _, row in store.applied_changes() if row.applied == "ok" and row.new is not None]
    last = loop.decision
    summary = SimulationSummary(
        policy=policy.name,
        seconds=totals.seconds,
        slot_seconds=totals.slot_seconds,
        violations=None if target is None else totals.violations,
        windows=totals.windows,
        changes=len(applied),
        rolled_back=sum(row.verdict == "rolled back" for row in applied),
        pause_s=sum(row.pause_s or 0.0 for row in applied),
        mean_latency_s=totals.row_seconds / totals.rows if totals.rows else None,
        last_hold=None if last is None or last.kind != "hold" else f"{last.reason_code}: {last.reason}",
    )
    return summary, applied


class _Schedule:
    """Waits for the end of each window, until the total time has passed."""

    def __init__(self, clock: Clock, duration: Duration) -> None:
        self._clock, self._every_s = clock, duration.window_s
        self._end_s = clock.time() + duration.windows * duration.window_s
        self._is_last = False

    def wait(self) -> Stopped | None:
        if self._is_last:
            return Stopped(reason="the simulation is over")
        left_s = self._end_s - self._clock.time()
        self._is_last = left_s < 1.5 * self._every_s  # one longer window instead of a whole and a short one
        self._clock.sleep(max(0.0, left_s) if self._is_last else self._every_s)
        return None


class _Totals:
    """Sums over the windows of a simulation."""

    def __init__(self, topology: Topology, settings: Settings, target: LatencyTarget | None) -> None:
        self._topology, self._settings, self._target = topology, settings, target
        self.slot_seconds = self.seconds = self.row_seconds = 0.0
        self.rows = self.windows = self.violations = 0

    def add(self, window: Window, plan: Plan) -> None:
        span_s = window.end_s - window.start_s
        self.windows += 1
        self.seconds += span_s
        self.slot_seconds += span_s * self._paid_slots(plan)
        if window.latency is not None:
            self.rows += window.latency.rows
            self.row_seconds += window.latency.rows * window.latency.mean_s
        if self._target is not None:
            stuck = window.latency is None and any(pipeline.backlog_rows for pipeline in window.pipelines)
            measured_s = latency_s(window.latency, self._target.quantile)
            self.violations += stuck or (measured_s is not None and measured_s > self._target.seconds)

    def _paid_slots(self, plan: Plan) -> int:
        """Return the slots of the executors, or the slots in use if the number of executors is fixed."""
        if self._settings.max_slots is not None:
            return plan.slots
        return min(plan.slots, self._topology.slots(plan, micro_batch=self._settings.micro_batch))
