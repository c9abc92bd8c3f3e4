"""The best fixed plans of a case in hindsight: the fastest plan, and the cheapest plan that meets a target.

The target of a case is twice the latency of its fastest plan, so every case is feasible. The latency of a plan is the
one that 99 % of its windows do not exceed. Candidates come from models with the true costs; each is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from penstock.control.arena.cases import SETTLED_S, WINDOW_S, Case
from penstock.engines.simulated import Behaviour
from penstock.measure.window import Window
from penstock.models.microbatch import MicroBatch
from penstock.models.queueing import MMk
from penstock.models.queueing.station import StationModel
from penstock.plan import Plan
from penstock.planning.processors import OperatorNetwork, OperatorStation, assign_processors

ALLOWED_LATE = 0.01  # share of the windows that may exceed the target


class HindsightPlans(msgspec.Struct, frozen=True, kw_only=True):
    """Plans and latency target of a case, determined in hindsight."""

    target_s: float
    fastest: Plan
    fastest_s: float
    cheapest: Plan
    cheapest_slots: int
    cheapest_late: float


def window_latency_s(window: Window) -> float:
    """Return the mean latency; infinite if rows wait and none came out; NaN without rows."""
    if window.latency is not None:
        return window.latency.mean_s
    return math.inf if any(pipeline.backlog_rows for pipeline in window.pipelines) else math.nan


@dataclass(slots=True)
class FixedPlans:
    """Simulates fixed plans of a case, each once."""

    case: Case
    _known: dict[str, np.ndarray] = field(default_factory=dict)

    def latencies_s(self, plan: Plan) -> np.ndarray:
        """Return the latency of each window that counts."""
        key = plan.to_json()
        if key not in self._known:
            engine = self.case.engine(plan)
            engine.start()
            engine.advance(SETTLED_S)
            engine.observe()
            latencies_s = []
            for _ in range(self.case.windows - int(SETTLED_S / WINDOW_S)):
                engine.advance(WINDOW_S)
                latencies_s.append(window_latency_s(engine.observe()))
            self._known[key] = np.array(latencies_s)
        return self._known[key]

    def late(self, plan: Plan, target_s: float) -> float:
        """Return the share of late windows."""
        return float(np.mean(self.latencies_s(plan) > target_s))

    def slots(self, plan: Plan) -> int:
        return self.case.topology.slots(plan, micro_batch=self.case.micro_batch)

    def reference(self) -> HindsightPlans:
        """Return the fastest plan, the target and the cheapest plan that meets it."""
        fastest, fastest_s = self._fastest()
        target_s = 2.0 * fastest_s
        cheapest = min((self._cheapest(cuts, target_s) for cuts in self._cut_sets()), key=self.slots)
        cheapest = cheapest if self.late(cheapest, target_s) <= ALLOWED_LATE else fastest
        return HindsightPlans(
            target_s=target_s,
            fastest=fastest,
            fastest_s=fastest_s,
            cheapest=cheapest,
            cheapest_slots=self.slots(cheapest),
            cheapest_late=self.late(cheapest, target_s),
        )

    def _quantile_s(self, plan: Plan) -> float:
        latencies_s = self.latencies_s(plan)
        # Not interpolated: an infinite latency has no value next to it.
        return float(np.sort(np.nan_to_num(latencies_s, nan=0.0))[math.ceil(0.99 * len(latencies_s)) - 1])

    def _fastest(self) -> tuple[Plan, float]:
        limit = self.case.slots
        budgets = sorted({limit, *(round(limit * share) for share in (0.9, 0.75, 0.6))})
        plans = [self.planned(cuts, budget, share=1.0) for cuts in self._cut_sets() for budget in budgets]
        affordable = {plan.to_json(): plan for plan in plans if self.slots(plan) <= limit}
        fastest = min(affordable.values(), key=self._quantile_s)
        return fastest, self._quantile_s(fastest)

    def _cheapest(self, cuts: frozenset[str], target_s: float) -> Plan:
        """Bisect the number of slots, then remove slots one at a time as long as the target is met."""
        low, high = len(self.case.topology.regions) - 1, self.case.slots
        while high - low > 1:
            middle = (low + high) // 2
            if self.late(self._plan(cuts, middle), target_s) <= ALLOWED_LATE:
                high = middle
            else:
                low = middle
        plan = self._plan(cuts, high)
        while (smaller := self._one_less(plan, target_s)) is not None:
            plan = smaller
        return plan

    def _one_less(self, plan: Plan, target_s: float) -> Plan | None:
        for smaller in self._smaller(plan):
            if self.slots(smaller) < self.slots(plan) and self.late(smaller, target_s) <= ALLOWED_LATE:
                return smaller
        return None

    def _smaller(self, plan: Plan) -> Iterator[Plan]:
        topology = self.case.topology
        groups = topology.queries(plan.cuts) if self.case.micro_batch else [(r.name,) for r in topology.regions]
        for group in sorted(groups, key=lambda names: -plan.replicas[names[0]]):
            counts = {name: plan.replicas[name] - 1 for name in group if plan.replicas[name] > 1}
            if counts:
                yield topology.rescaled(plan, counts)

    def _cut_sets(self) -> list[frozenset[str]]:
        topology = self.case.topology
        if not self.case.micro_batch:
            return [self.case.first_plan.cuts]
        inner = {topology.last_operator(before) for before, _ in topology.streams if before not in topology.sources}
        every = (inner | topology.required_cuts) - topology.forbidden_cuts
        return list(dict.fromkeys([topology.required_cuts, frozenset(every)]))

    def _plan(self, cuts: frozenset[str], budget: int, *, share: float = 1.0) -> Plan:
        """Return the plan with the lowest mean latency by the model, at a share of the peak load."""
        topology, case = self.case.topology, self.case
        groups = self._groups(cuts)
        network = self._network(cuts, share)
        idle = [group for group in groups if not self._works(group)]
        budget = max(len(network.operators), budget - len(idle))
        assigned = assign_processors(network, budget).processors
        counts = {name: assigned.get(group[0], 1) for group in groups for name in group}
        plan = case.first_plan.replace(cuts=cuts)
        single = {region.name for region in topology.regions if not region.replicable}
        return topology.rescaled(plan, {name: 1 if name in single else count for name, count in counts.items()})

    def planned(self, cuts: frozenset[str], budget: int, *, share: float) -> Plan:
        """Return the best plan by the model within a budget, at a share of the peak load."""
        plan = self._plan(cuts, budget, share=share)
        for smaller in range(budget - 1, 0, -1):
            if self.slots(plan) <= budget:
                break
            plan = self._plan(cuts, smaller, share=share)
        return plan

    def model_latency_s(self, plan: Plan, *, share: float) -> float:
        """Return the mean latency of a plan by the model, at a share of the peak load; infinite if it is unstable."""
        network = self._network(plan.cuts, share)
        counts = [plan.replicas[station.name] for station in network.operators]
        least = network.least_stable()
        if least is None or any(count < fewest for count, fewest in zip(counts, least, strict=True)):
            return math.inf
        return network.mean_s(counts)

    def _groups(self, cuts: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        topology = self.case.topology
        return topology.queries(cuts) if self.case.micro_batch else tuple((own.name,) for own in topology.regions)

    def _network(self, cuts: frozenset[str], share: float) -> OperatorNetwork:
        operators = tuple(self._station(group, share) for group in self._groups(cuts) if self._works(group))
        return OperatorNetwork(external_per_s=share * self.case.dataflow.peak_per_s, operators=operators)

    def _works(self, group: tuple[str, ...]) -> bool:
        return any(name in self.case.dataflow.work for name in group)

    def _station(self, group: tuple[str, ...], share: float) -> OperatorStation:
        dataflow, behaviour = self.case.dataflow, self.case.behaviour
        members = [name for name in self._operators(group) if name in dataflow.work]
        work = sum(dataflow.work[name] for name in members)
        station: StationModel
        if self.case.micro_batch:
            station = _batches(behaviour, len(group), dataflow.peak_per_s, work, share)
        else:
            arrival_per_s = dataflow.peak_per_s * dataflow.visits[members[0]]
            station = MMk(arrival_per_s=share * arrival_per_s, service_per_s=arrival_per_s / work)
        limit = 1 if not dataflow.single.isdisjoint(group) else None
        return OperatorStation(name=group[0], station=station, max_processors=limit)

    def _operators(self, group: tuple[str, ...]) -> list[str]:
        return [name for region in self.case.topology.regions if region.name in group for name in region.operators]


def _batches(behaviour: Behaviour, stages: int, rate_per_s: float, work: float, share: float) -> MicroBatch:
    batch = behaviour.batch
    return MicroBatch(
        arrival_per_s=share * rate_per_s,
        batch_s=batch.batch_s,
        row_s=work / rate_per_s,
        replica_s=batch.task_s * stages,
    )
