"""The simulated engine runs a dataflow under a plan in simulated time, with the contract and the windows of Spark.

Time passes only in `advance(seconds)` and `clock.sleep(seconds)`. A run is deterministic: two engines with the same
seed and the same calls produce the same windows.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from penstock.dataflow import Dataflow, Kind, PenstockError, PlanError, regions
from penstock.engines.ports import Applied
from penstock.engines.simulated.behaviour import Behaviour, ThreadCosts
from penstock.engines.simulated.clock import SimulatedClock
from penstock.engines.simulated.distributions import BehaviourError
from penstock.engines.simulated.executors import SimulatedExecutors, executors_of
from penstock.engines.simulated.source_load import RateSteps
from penstock.measure.window import Window
from penstock.plan import Plan, PlanDiff, check_successor, default_plan, diff, pipelines, validated

if TYPE_CHECKING:  # importing compiled modules is slow
    from penstock.engines.simulated.meter import SimulationMeter
    from penstock.engines.simulated.simulation import SimulationMode


class Mode(StrEnum):
    ROW_BY_ROW = "row-by-row"  # operators with queues, like Storm and Flink
    MICRO_BATCH = "micro-batch"  # queries with stages and tasks, like Spark
    FLUID = "fluid"  # approximates row-by-row mode for very high rates


class SimulatedEngine:
    """Simulates one dataflow under one plan at a time.

    `epoch_s` is the wall-clock time of the start, as windows and `clock` show it.
    """

    def __init__(
        self,
        flow: Dataflow,
        behaviour: Behaviour,
        *,
        plan: Plan | None = None,
        slots: int = 2,
        mode: Mode | str = Mode.ROW_BY_ROW,
        seed: int = 0,
        epoch_s: float = 0.0,
    ) -> None:
        flow.check()
        behaviour.check(flow)
        self.flow = flow
        self.behaviour = behaviour
        self.mode = Mode(mode)
        if self.mode is not Mode.ROW_BY_ROW and behaviour.thread != ThreadCosts():
            raise BehaviourError(
                f"The behaviour has costs of threads, which mode '{self.mode}' does not simulate; use mode "
                f"'{Mode.ROW_BY_ROW}', or omit \"thread\"."
            )
        self.epoch_s = epoch_s
        self._seed = seed
        self._plan = default_plan(flow, slots=slots) if plan is None else validated(flow, plan)
        self._check_slots(self._plan)
        self._generation = 1
        self._executors = SimulatedExecutors(behaviour.cluster, seed=seed)
        self._simulation: SimulationMode | None = None
        self._meter: SimulationMeter | None = None
        self._running = False
        self._suspended_pipelines: frozenset[str] = frozenset()
        self._next_failure: str | None = None
        self.clock = SimulatedClock(lambda: self.now_s, self.advance, epoch_s=epoch_s)

    # ---- the engine contract

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def startup_s(self) -> dict[str, float]:
        return {}

    def start(self) -> None:
        """Start the simulation, or resume it after `stop`. The first executors are ready at once."""
        if self._simulation is None:
            self._simulation = self._new_simulation()
            from penstock.engines.simulated.meter import SimulationMeter

            is_micro_batch = self.mode is Mode.MICRO_BATCH
            self._meter = SimulationMeter(self.flow, self.behaviour, self._simulation, is_micro_batch=is_micro_batch)
            self._executors.scale(executors_of(self._plan, self.behaviour.cluster), 0.0, start_up_s=0.0)
        self._running = True
        self._update_suspension()

    def observe(self) -> Window:
        """Return the window since the last call."""
        self._running_simulation()
        assert self._meter is not None
        return self._meter.window(self._plan, self._generation, self.epoch_s)

    def apply(self, plan: Plan) -> Applied:
        """Change the plan. This takes simulated time.

        The old plan continues while new executors start up. The affected pipelines then pause.
        """
        simulation = self._running_simulation()
        plan = validated(self.flow, plan)
        check_successor(self.flow, self._plan, plan)
        self._check_slots(plan)
        old, change = self._plan, diff(self._plan, plan)
        if change.empty:
            return Applied(plan=old, generation=self._generation, changed=str(change), pause_s=0.0, stopped=())
        before, after = set(pipelines(self.flow, old)), set(pipelines(self.flow, plan))
        stopped = tuple(pipeline.name for pipeline in pipelines(self.flow, old) if pipeline not in after)
        started = frozenset(pipeline.name for pipeline in after - before)
        pause_s = self._pause_s(stopped, started)
        waited_s = self._await_executors(plan)
        if self._next_failure is not None:
            reason, self._next_failure = self._next_failure, None
            self._scale(old)
            self._pause(frozenset(stopped), pause_s)
            raise PenstockError(f"The plan could not be applied ({change}): {reason}. The old plan is active again.")
        simulation.change_plan(plan)
        self._plan = plan
        self._generation += 1
        self._scale(plan)
        self._pause(started, pause_s)
        return Applied(
            plan=plan,
            generation=self._generation,
            changed=str(change),
            pause_s=pause_s,
            stopped=stopped,
            took_s=waited_s + pause_s,
            moved_rows=self._moved(change, "state_rows"),
            moved_bytes=self._moved(change, "state_bytes"),
        )

    def set_rate(self, source: str, rows_per_s: float) -> None:
        sources = [operator.name for operator in self.flow.operators if operator.kind is Kind.SOURCE]
        if source not in sources:
            raise PenstockError(
                f"'{source}' is not a source of dataflow '{self.flow.name}'; its sources are {', '.join(sources)}."
            )
        if not 0 <= rows_per_s < math.inf:
            raise PenstockError(f"The rate is {rows_per_s} rows/s; it must be a finite number, 0 or more.")
        self._running_simulation().set_rate(source, RateSteps.constant(rows_per_s))

    def recover(self) -> tuple[str, ...]:
        """Return no recoveries: simulated queries do not fail."""
        return ()

    def failure(self) -> str | None:
        return None

    def idle(self) -> bool:
        return self._running_simulation().is_idle()

    def stop(self) -> None:
        """Stop the simulated time until the next `start`."""
        self._running = False

    # ---- time

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._simulation.now_s if self._simulation is not None else 0.0

    def advance(self, seconds: float) -> None:
        """Simulate for `seconds`. Executors start and fail at their times."""
        simulation = self._running_simulation()
        if not (math.isfinite(seconds) and seconds >= 0):
            raise PenstockError(f"Cannot advance the time by {seconds} s; give a finite number, 0 or more.")
        until_s = simulation.now_s + seconds
        while (change_s := self._executors.next_change_s(simulation.now_s)) <= until_s:
            simulation.advance(change_s)
            self._executors.fail_due(change_s)
            self._update_suspension()
        simulation.advance(until_s)

    # ---- faults, for tests and experiments

    def fail_executor(self, executor: int) -> None:
        """Let an executor fail now. Its work starts again, and a replacement is ready after its start-up time."""
        self._running_simulation()
        if not 0 <= executor < len(self._executors):
            raise PenstockError(f"Executor {executor} does not exist; the numbers are 0 to {len(self._executors) - 1}.")
        self._executors.fail(executor, self.now_s)
        self._update_suspension()

    def fail_next_change(self, reason: str) -> None:
        """Let the next plan change fail and roll back."""
        self._next_failure = reason

    @property
    def simulation(self) -> SimulationMode:
        """The running simulation, with its counts since the start."""
        return self._running_simulation()

    # ---- internals

    def _new_simulation(self) -> SimulationMode:
        if self.mode is Mode.ROW_BY_ROW:
            from penstock.engines.simulated.rows.simulation import RowSimulation

            return RowSimulation(self.flow, self.behaviour, self._plan, seed=self._seed)
        if self.mode is Mode.FLUID:
            from penstock.engines.simulated.fluid.simulation import FluidSimulation

            return FluidSimulation(self.flow, self.behaviour, self._plan)
        from penstock.engines.simulated.batches.simulation import BatchSimulation

        return BatchSimulation(self.flow, self.behaviour, self._plan, seed=self._seed)

    def _running_simulation(self) -> SimulationMode:
        if self._simulation is None or not self._running:
            raise PenstockError("The simulation is not running; call start() first.")
        return self._simulation

    def _check_slots(self, plan: Plan) -> None:
        cluster = self.behaviour.cluster
        if cluster.max_executors is not None and executors_of(plan, cluster) > cluster.max_executors:
            available = cluster.max_executors * cluster.slots_per_executor
            raise PlanError(f"The plan has {plan.slots} slots but the cluster has at most {available}; use fewer.")

    def _scale(self, plan: Plan) -> None:
        cluster = self.behaviour.cluster
        self._executors.scale(executors_of(plan, cluster), self.now_s, start_up_s=cluster.start_up_s)

    def _await_executors(self, plan: Plan) -> float:
        """Start the additional executors of a plan. Return the time until they are ready."""
        if executors_of(plan, self.behaviour.cluster) <= len(self._executors):
            return 0.0
        self._scale(plan)
        self.advance(self.behaviour.cluster.start_up_s)
        return self.behaviour.cluster.start_up_s

    def _pause_s(self, stopped: tuple[str, ...], started: frozenset[str]) -> float:
        """Return the pause of a change: fixed_s + state of the stopped pipelines x seconds_per_state_mb."""
        if not stopped and not started:
            return 0.0
        by_name = {pipeline.name: pipeline for pipeline in pipelines(self.flow, self._plan)}
        moved_bytes = sum(
            self.behaviour.of(name).state_bytes for pipeline in stopped for name in by_name[pipeline].state
        )
        return self.behaviour.change.fixed_s + moved_bytes / 1e6 * self.behaviour.change.seconds_per_state_mb

    def _moved(self, change: PlanDiff, size: Literal["state_rows", "state_bytes"]) -> float:
        """Return the state that other replicas move: all in micro-batches, else the share of consistent hashing."""
        moved = 0.0
        for region in regions(self.flow):
            before, after = change.replicas.get(region.name, (None, None))
            if before is not None and after is not None:
                share = 1.0 if self.mode is Mode.MICRO_BATCH else abs(after - before) / max(after, before)
                names = [name for name in region.operators if self.flow[name].kind.has_state]
                moved += share * sum(getattr(self.behaviour.of(name), size) for name in names)
        return moved

    def _pause(self, suspended: frozenset[str], seconds: float) -> None:
        self._suspended_pipelines = suspended
        try:
            self._update_suspension()
            self.advance(seconds)
        finally:
            self._suspended_pipelines = frozenset()
            self._update_suspension()

    def _update_suspension(self) -> None:
        simulation = self._running_simulation()
        unavailable = self._executors.unavailable(simulation.now_s)
        simulation.suspend(pipelines=self._suspended_pipelines, executors=unavailable)
