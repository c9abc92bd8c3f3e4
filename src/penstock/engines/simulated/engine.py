"""The simulated engine: a dataflow under a plan, in simulated time. The same contract and the same windows as Spark.

Time passes only when somebody advances it: `advance(seconds)`, or sleeping on `clock`. Everything that happens is
decided by the seed: two engines that are asked the same do the same.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.dataflow import Dataflow, Kind, PenstockError, PlanError
from penstock.engines.ports import Applied
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.clock import SimulatedClock
from penstock.engines.simulated.executors import Executors
from penstock.engines.simulated.placement import executors_of
from penstock.engines.simulated.rates import RateSteps
from penstock.measure.window import Window
from penstock.plan import Plan, default_plan, diff, pipelines, validated

if TYPE_CHECKING:  # the compiled loops are heavy to import
    from penstock.engines.simulated.meter import Meter
    from penstock.engines.simulated.world import World


class Mode(StrEnum):
    ROW_BY_ROW = "row-by-row"  # operators with queues, as Storm and Flink work
    MICRO_BATCH = "micro-batch"  # queries with stages and tasks, as Spark works
    FLUID = "fluid"  # row by row, for sizes where rows cannot be counted one by one


class SimulatedEngine:
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
        self.epoch_s = epoch_s
        self._seed = seed
        self._plan = default_plan(flow, slots=slots) if plan is None else validated(flow, plan)
        self._check_slots(self._plan)
        self._generation = 1
        self._executors = Executors(behaviour.cluster, seed=seed)
        self._world: World | None = None
        self._meter: Meter | None = None
        self._running = False
        self._halted: frozenset[str] = frozenset()
        self._next_change_fails: str | None = None
        self.clock = SimulatedClock(lambda: self.now_s, self.advance, epoch_s=epoch_s)

    # ---- the contract

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def generation(self) -> int:
        return self._generation

    def start(self) -> None:
        if self._world is None:
            self._world = self._new_world()
            from penstock.engines.simulated.meter import Meter

            micro_batches = self.mode is Mode.MICRO_BATCH
            self._meter = Meter(self.flow, self.behaviour, self._world, micro_batches=micro_batches)
            self._executors.scale(executors_of(self._plan, self.behaviour.cluster), 0.0, at_once=True)
        self._running = True
        self._stand_still()

    def observe(self) -> Window:
        self._started()
        assert self._meter is not None
        return self._meter.window(self._plan, self._generation, self.epoch_s)

    def apply(self, plan: Plan) -> Applied:
        """Takes simulated time: the old plan goes on while new executors start up, and then comes the pause."""
        world = self._started()
        plan = validated(self.flow, plan)
        self._check_slots(plan)
        old, words = self._plan, str(diff(self._plan, plan))
        if diff(old, plan).empty:
            return Applied(plan=old, generation=self._generation, changed=words, pause_s=0.0, stopped=())
        before, after = set(pipelines(self.flow, old)), set(pipelines(self.flow, plan))
        stopped = tuple(one.name for one in pipelines(self.flow, old) if one not in after)
        changed = frozenset(one.name for one in after - before)
        pause_s = self._pause_s(stopped, changed)
        waited_s = self._await_executors(plan)
        if self._next_change_fails is not None:
            reason, self._next_change_fails = self._next_change_fails, None
            self._executors.scale(executors_of(old, self.behaviour.cluster), self.now_s)
            self._pause(frozenset(stopped), pause_s)
            raise PenstockError(f"the plan could not be applied ({words}): {reason}; the old plan is in force again")
        world.replan(plan)
        self._plan = plan
        self._generation += 1
        self._executors.scale(executors_of(plan, self.behaviour.cluster), self.now_s)
        self._pause(changed, pause_s)
        return Applied(
            plan=plan,
            generation=self._generation,
            changed=words,
            pause_s=pause_s,
            stopped=stopped,
            took_s=waited_s + pause_s,
        )

    def set_rate(self, source: str, rows_per_s: float) -> None:
        sources = [operator.name for operator in self.flow.operators if operator.kind is Kind.SOURCE]
        if source not in sources:
            raise PenstockError(f"'{source}' is no source of '{self.flow.name}'; it has {', '.join(sources)}")
        if not 0 <= rows_per_s < math.inf:
            raise PenstockError(f"a rate of {rows_per_s} rows/s: give a number, 0 or more")
        self._started().set_rate(source, RateSteps(from_s=(0.0,), rows_per_s=(rows_per_s,)))

    def recover(self) -> tuple[str, ...]:
        """Return no recoveries: simulated queries do not fail."""
        return ()

    def failure(self) -> str | None:
        return None

    def idle(self) -> bool:
        return self._started().idle()

    def stop(self) -> None:
        """Time no longer passes, until it is started again."""
        self._running = False

    # ---- time

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return self._world.now_s if self._world is not None else 0.0

    def advance(self, seconds: float) -> None:
        """Lets the simulation run for so long; executors come and go on the way."""
        world = self._started()
        if not (math.isfinite(seconds) and seconds >= 0):
            raise PenstockError(f"time cannot pass for {seconds} s; give a number, 0 or more")
        until_s = world.now_s + seconds
        while (change_s := self._executors.next_change_s(world.now_s)) <= until_s:
            world.advance(change_s)
            self._executors.pass_time(change_s)
            self._stand_still()
        world.advance(until_s)

    # ---- faults, for tests and trials

    def fail_executor(self, executor: int) -> None:
        """It is lost now; what it was working on is done again, and another takes its place after its start-up."""
        self._started()
        if not 0 <= executor < len(self._executors):
            raise PenstockError(f"there is no executor {executor}; there are {len(self._executors)}, counted from 0")
        self._executors.fail(executor, self.now_s)
        self._stand_still()

    def fail_next_change(self, reason: str) -> None:
        """The next plan change goes wrong half-way and is rolled back."""
        self._next_change_fails = reason

    @property
    def world(self) -> World:
        """The simulation itself: its counts since the start."""
        return self._started()

    # ---- what they share

    def _new_world(self) -> World:
        if self.mode is Mode.ROW_BY_ROW:
            from penstock.engines.simulated.rowwise import RowByRow

            return RowByRow(self.flow, self.behaviour, self._plan, seed=self._seed)
        if self.mode is Mode.FLUID:
            from penstock.engines.simulated.fluid import Fluid

            return Fluid(self.flow, self.behaviour, self._plan)
        from penstock.engines.simulated.batches import MicroBatches

        return MicroBatches(self.flow, self.behaviour, self._plan, seed=self._seed)

    def _started(self) -> World:
        if self._world is None or not self._running:
            raise PenstockError("the simulation is not running: start it first")
        return self._world

    def _check_slots(self, plan: Plan) -> None:
        cluster = self.behaviour.cluster
        if cluster.most_executors is not None and executors_of(plan, cluster) > cluster.most_executors:
            most = cluster.most_executors * cluster.slots_per_executor
            raise PlanError(f"the plan has {plan.slots} slots but the cluster has {most} at most; ask for fewer")

    def _await_executors(self, plan: Plan) -> float:
        count = executors_of(plan, self.behaviour.cluster)
        if count <= len(self._executors):
            return 0.0
        self._executors.scale(count, self.now_s)
        self.advance(self.behaviour.cluster.start_up_s)
        return self.behaviour.cluster.start_up_s

    def _pause_s(self, stopped: tuple[str, ...], changed: frozenset[str]) -> float:
        """fixed_s + state moved x seconds_per_state_mb, of the pipelines that stop."""
        if not stopped and not changed:
            return 0.0
        by_name = {one.name: one for one in pipelines(self.flow, self._plan)}
        moved = sum(self.behaviour.of(name).state_bytes for pipeline in stopped for name in by_name[pipeline].state)
        return self.behaviour.change.fixed_s + moved / 1e6 * self.behaviour.change.seconds_per_state_mb

    def _pause(self, halted: frozenset[str], seconds: float) -> None:
        self._halted = halted
        try:
            self._stand_still()
            self.advance(seconds)
        finally:
            self._halted = frozenset()
            self._stand_still()

    def _stand_still(self) -> None:
        world = self._started()
        world.stand_still(pipelines=self._halted, executors=self._executors.not_ready(world.now_s))
