"""Cases of the arena: one generated dataflow under one load on one simulated engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import msgspec

from penstock.control.arena.generated import GeneratedDataflow, generated
from penstock.control.arena.loads import LENGTH_S, LOADS
from penstock.control.topology import Topology
from penstock.engines.simulated import Behaviour, Mode, SimulatedEngine
from penstock.plan import Plan, default_plan

WINDOW_S = 10.0
SETTLED_S = 600.0  # windows that begin earlier do not count: no policy knows the costs at the start


class Cell(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The name of a case."""

    shape: str
    load: str
    engine: str
    seed: int

    def __str__(self) -> str:
        return f"{self.shape}-{self.seed} {self.load} {self.engine}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cell with everything that a simulation of it needs."""

    cell: Cell

    @cached_property
    def dataflow(self) -> GeneratedDataflow:
        return generated(self.cell.shape, self.cell.seed)

    @cached_property
    def topology(self) -> Topology:
        return Topology.of(self.dataflow.flow)

    @cached_property
    def behaviour(self) -> Behaviour:
        return self.dataflow.behaviour(LOADS[self.cell.load](self.cell.seed), micro_batch=self.micro_batch)

    @property
    def micro_batch(self) -> bool:
        return self.cell.engine == Mode.MICRO_BATCH

    @property
    def slots(self) -> int:
        return self.dataflow.slots

    @property
    def windows(self) -> int:
        return int(LENGTH_S / WINDOW_S)

    @cached_property
    def first_plan(self) -> Plan:
        """Return the plan of someone who knows no cost: the slots are spread evenly over the operators."""
        working = [
            region.name
            for region in self.topology.regions
            if region.replicable and not self.dataflow.work.keys().isdisjoint(region.operators)
        ]
        ones = {region.name: 1 for region in self.topology.regions}
        plan = default_plan(self.dataflow.flow, slots=self.slots, replicas=ones)
        for share in range(self.slots, 1, -1):
            even = default_plan(self.dataflow.flow, slots=self.slots, replicas=ones | dict.fromkeys(working, share))
            if self.topology.slots(even, micro_batch=self.micro_batch) <= self.slots:
                return even
        return plan

    def engine(self, plan: Plan) -> SimulatedEngine:
        """Return an engine that has not started. All plans of a case see the same arrivals as far as possible."""
        return SimulatedEngine(
            self.dataflow.flow, self.behaviour, plan=plan, mode=self.cell.engine, seed=self.cell.seed + 1000
        )
