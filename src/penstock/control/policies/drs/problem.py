"""The goals of DRS, and its planning problem: the station networks to choose from, and the prediction of each plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.control.demand import Demand
from penstock.control.policies.drs.learning import (
    are_close,
    has_backlog,
    is_steady,
    remembered_overheads,
    task_s,
    with_correction,
    with_overheads,
)
from penstock.control.policies.drs.stations import (
    QueryCosts,
    Queue,
    StationNetwork,
    batch_overheads,
    operator_stations,
    present_counts,
    query_stations,
    worthwhile_cuts,
)
from penstock.control.policy import Inputs, Memory, Situation, latency_s
from penstock.dataflow.errors import PenstockError
from penstock.planning.plan_outcome import PlanOutcome
from penstock.planning.processors import Assignment, assign_processors

CORRECTION = "drs.correction"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLatency:
    """The goal of the lowest latency with at most `max_slots` slots. None: no further limit."""

    max_slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestSlots:
    """The goal of the fewest slots with a mean or quantile (0.5, 0.95, 0.99) of the latency up to `max_s` (T_max)."""

    max_s: float
    min_s: float | None = None  # T_min: slots are released below it; None: half of max_s
    quantile: float | None = None
    aim: float = 1.0  # plans are made for this share of max_s, so that noise does not undo them
    room: float = 0.0  # and for this share of additional rows, because near saturation a few more rows wait far longer
    max_slots: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.room < math.inf:
            raise PenstockError(
                f"The spare capacity 'room' is {self.room}; it must be a finite share of the input rate, 0 or more."
            )
        if not self.max_s > 0 or not 0 < self.aim <= 1 or not 0 <= self.release_below_s < self.max_s:
            raise PenstockError(
                f"The latency target is {self.max_s} s, slots are released below {self.release_below_s} s, and 'aim' "
                f"is {self.aim}; the target must be above 0 and above the release limit, and 'aim' within (0, 1]."
            )
        if self.quantile not in (None, 0.5, 0.95, 0.99):
            raise PenstockError(f"Quantile {self.quantile} of the latency is not measured; use 0.5, 0.95 or 0.99.")

    @property
    def release_below_s(self) -> float:
        return self.max_s / 2 if self.min_s is None else self.min_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DrsSettings:
    goal: LeastLatency | FewestSlots
    # Model of a station; "gigk" if variances are measured and not exponential. None: "mmk" in engines that work row by
    # row, and the micro-batch model in those that work in micro-batches.
    queue: Queue | None = None
    replica_s: float = 0.02  # micro-batch engines: initial estimate of the time that a replica adds to a batch
    batch_s: float = 0.1  # micro-batch engines: an empty batch of a query that has made none yet
    worth_slots: float = 0.5  # work (in slots) from which a region is tried as a separate query
    learning: float = 0.3  # learning rate of the correction, per turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An assignment of slots, and its prediction."""

    stations: StationNetwork
    assigned: Assignment
    expected: PlanOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The current state and the networks to choose from; both goals use it."""

    situation: Situation
    now: StationNetwork  # network under the cuts of the plan
    others: tuple[StationNetwork, ...]  # networks under other cuts
    counts: list[int]  # replicas per station of the plan
    staying: PlanOutcome
    measured_s: float | None
    has_backlog: bool  # the measured rows waited behind a backlog
    correction: float
    memory: Memory
    inputs: Inputs
    max_slots: int
    quantile: float | None
    at_most_s: float | None

    @staticmethod
    def of(situation: Situation, demand: Demand, settings: DrsSettings, memory: Memory) -> Problem:
        goal, window = settings.goal, situation.window
        assert window is not None
        others: tuple[StationNetwork, ...] = ()
        if situation.micro_batch:
            overheads = batch_overheads(situation, demand)
            if is_steady(situation):
                memory = with_overheads(memory, overheads, rate=settings.learning)
            costs = QueryCosts(
                overheads=remembered_overheads(memory, overheads),
                replica_s=task_s(memory, settings.replica_s),
                batch_s=settings.batch_s,
            )
            now = query_stations(situation, demand, frozenset(), costs, queue=settings.queue)
            cuts = worthwhile_cuts(situation, demand, worth_slots=settings.worth_slots)
            if cuts:
                others = (query_stations(situation, demand, cuts, costs, queue=settings.queue),)
        else:
            now = operator_stations(situation, demand, queue=settings.queue or "mmk")
        quantile = None if isinstance(goal, LeastLatency) else goal.quantile
        counts = present_counts(now, situation, demand)
        predicted, measured = now.predicted_s(counts, quantile), latency_s(window.latency, quantile)
        waiting = predicted is not None and has_backlog(situation, predicted)
        if predicted is not None and measured and is_steady(situation) and not waiting:
            memory = with_correction(
                memory, CORRECTION, measured_s=measured, predicted_s=predicted, rate=settings.learning
            )
        correction = memory.get(CORRECTION, 1.0)
        staying = _staying(situation, now, counts, predicted, correction, quantile)
        inputs = demand.inputs(window) | {
            "measured_latency_s": measured,
            "predicted_latency_s": staying.latency_s,
            "correction": correction,
        }
        return Problem(
            situation=situation,
            now=now,
            others=others,
            counts=counts,
            staying=staying,
            measured_s=measured,
            has_backlog=waiting,
            correction=correction,
            memory=memory,
            inputs=inputs,
            max_slots=min(situation.max_slots, goal.max_slots or situation.max_slots),
            quantile=quantile,
            at_most_s=None if isinstance(goal, LeastLatency) else goal.max_s,
        )

    def at_load(self, times: float) -> Problem:
        """Return the problem under a multiple of the load, for the current plan as well as for new ones."""
        if times == 1.0:
            return self
        now = self.now.at_load(times)
        predicted = now.predicted_s(self.counts, self.quantile)
        staying = _staying(self.situation, now, self.counts, predicted, self.correction, self.quantile)
        return replace(self, now=now, others=tuple(network.at_load(times) for network in self.others), staying=staying)

    @property
    def budget(self) -> int:
        return self.max_slots - self.now.reserved

    @property
    def load_growth(self) -> float:
        """Return the rate of the latest window over the smoothed one if the load is not steady; at least 1."""
        window, latest = self.situation.window, self.situation.latest
        assert window is not None and latest is not None
        if is_steady(self.situation) or not window.external_rows_per_s or not latest.external_rows_per_s:
            return 1.0
        return max(1.0, latest.external_rows_per_s / window.external_rows_per_s)

    @property
    def load_rises(self) -> bool:
        """Whether the latest input rate exceeds the mean over the windows by more than the noise of a steady load."""
        window, latest = self.situation.window, self.situation.latest
        assert window is not None and latest is not None
        mean, now = window.external_rows_per_s, latest.external_rows_per_s
        return now is not None and mean is not None and now > mean and not are_close(mean, now)

    @property
    def networks(self) -> tuple[StationNetwork, ...]:
        return (self.now, *self.others)

    def slots_of(self, stations: StationNetwork, assigned: Assignment) -> int:
        """Return the slots of an assignment. A region with a cut inside, as in a loop, has its replicas twice."""
        if not self.cuts_inside:
            return assigned.total + stations.reserved
        topology = self.situation.topology
        plan = topology.rescaled(self.situation.plan, stations.replicas(assigned.counts), stations.cuts)
        return topology.slots(plan, micro_batch=self.situation.micro_batch)

    @property
    def cuts_inside(self) -> bool:
        """Whether a region of the plan consists of several parts with the same number of replicas."""
        cuts = self.situation.plan.cuts
        return any(name in cuts for region in self.situation.topology.regions for name in region.operators[:-1])

    def assigned(self, stations: StationNetwork, slots: int) -> Assignment:
        """Return the assignment of the lowest latency within these slots."""
        fewest = len(stations.workload.operators)
        processors = max(fewest, slots - stations.reserved)
        assigned = assign_processors(stations.workload, processors)
        while self.cuts_inside and processors > fewest and self.slots_of(stations, assigned) > slots:
            processors -= 1
            assigned = assign_processors(stations.workload, processors)
        return assigned

    def option(self, stations: StationNetwork, assigned: Assignment) -> Option:
        predicted = stations.predicted_s(assigned.counts, self.quantile)
        expected = PlanOutcome(
            slots=self.slots_of(stations, assigned),
            latency_s=None if predicted is None else self.correction * predicted,
            quantile=self.quantile,
            at_most_s=self.at_most_s,
            rows_per_s=min(assigned.max_external_per_s, stations.workload.external_per_s),
        )
        return Option(stations=stations, assigned=assigned, expected=expected)


def _staying(
    situation: Situation,
    now: StationNetwork,
    counts: list[int],
    predicted_s: float | None,
    correction: float,
    quantile: float | None,
) -> PlanOutcome:
    taken = Assignment(network=now.workload, counts=tuple(counts)).max_external_per_s
    return PlanOutcome(
        slots=situation.slots,
        latency_s=None if predicted_s is None else correction * predicted_s,
        quantile=quantile,
        rows_per_s=min(now.workload.external_per_s, taken),
    )
