"""A simulated pipeline under a controller, whose behaviour and platform may change while it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.api.policy_options import PolicyOptions, controller_settings, create_policy
from penstock.control.controller import Controller
from penstock.control.loop import Loop
from penstock.dataflow import Dataflow
from penstock.engines.ports import Applied
from penstock.engines.simulated import Behaviour, SimulatedEngine
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.store import DecisionRecord, RunStart, Store


class DriftingEngine:
    """A simulated engine that continues with another behaviour or with other slots. Rows that wait are lost then."""

    def __init__(self, flow: Dataflow, behaviour: Behaviour, plan: Plan, mode: str, rates: dict[str, float]) -> None:
        self.flow, self._mode, self.rates = flow, mode, rates
        self._generations = 0
        self.inner = SimulatedEngine(flow, behaviour, plan=plan, mode=mode)
        self._start()

    def _start(self) -> None:
        self.inner.start()
        for source, rate in self.rates.items():
            self.inner.set_rate(source, rate)

    def become(self, behaviour: Behaviour | None = None, slots: int | None = None) -> None:
        """Continue at the present time with the present plan."""
        old = self.inner
        self._generations += old.generation
        plan = old.plan if slots is None else old.plan.replace(slots=slots)
        self.inner = SimulatedEngine(
            self.flow, behaviour or old.behaviour, plan=plan, mode=self._mode, epoch_s=old.clock.time()
        )
        self._start()

    def set_rate(self, rows_per_s: float) -> None:
        self.rates = dict.fromkeys(self.rates, rows_per_s)
        for source in self.rates:
            self.inner.set_rate(source, rows_per_s)

    @property
    def plan(self) -> Plan:
        return self.inner.plan

    def observe(self) -> Window:
        window = self.inner.observe()
        return msgspec.structs.replace(window, generation=window.generation + self._generations)

    def apply(self, plan: Plan) -> Applied:
        applied = self.inner.apply(plan)
        return msgspec.structs.replace(applied, generation=applied.generation + self._generations)


class DriftingPipeline:
    """Takes turns of the control loop in simulated time. Its record is in a directory."""

    def __init__(self, engine: DriftingEngine, directory: Path, options: PolicyOptions, *, micro_batch: bool) -> None:
        self.engine, self._directory, self._options = engine, directory, options
        self._micro_batch = micro_batch
        self._window_s = 10.0
        self._open()

    def _open(self) -> None:
        self.store = Store(self._directory)
        name = self.engine.flow.name
        self.store.begin_run(
            RunStart(dataflow=name, kind="simulation", flow_file="-", pid=0, master="-", started_s=self.now_s)
        )
        settings = controller_settings(self._options, window_s=self._window_s, micro_batch=self._micro_batch)
        controller = Controller(create_policy(self._options), settings, self.engine, self.store)
        self._loop = Loop(engine=self.engine, store=self.store, controller=controller, clock=self.engine.inner.clock)

    def restart(self) -> None:
        """Continue with a controller that knows only the record, as after a crash."""
        self.store.close()
        self._open()

    @property
    def now_s(self) -> float:
        return self.engine.inner.clock.time()

    def run(self, seconds: float) -> list[DecisionRecord]:
        """Return the decisions within the next seconds."""
        decisions, end_s = [], self.now_s + seconds
        while self.now_s < end_s:
            self._loop.clock = self.engine.inner.clock
            self.engine.inner.clock.sleep(self._window_s)
            self._loop.turn()
            assert self._loop.decision is not None
            decisions.append(self._loop.decision)
        return decisions
