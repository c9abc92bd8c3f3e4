"""What DRS is asked for, and what it looks at: the stations as they are cut, or might be, and what each plan brings."""

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
from penstock.planning.processors import Assignment

CORRECTION = "drs.correction"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLatency:
    """Within `max_slots`; None: within all that may be used."""

    max_slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestSlots:
    """With a latency of at most `max_s` (T_max): its mean, or the quantile 0.5, 0.95 or 0.99 of it."""

    max_s: float
    min_s: float | None = None  # T_min, below which slots are released; None: half of max_s
    quantile: float | None = None
    aim: float = 1.0  # plans are made for this share of max_s, so that noise does not undo them
    room: float = 0.0  # and for so many more rows than come, as a share: are_close saturation a few more are far slower
    max_slots: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.room < math.inf:
            raise PenstockError(
                f"room for {self.room} times the rows that come, beside them; it is a number, 0 or more"
            )
        if not self.max_s > 0 or not 0 < self.aim <= 1 or not 0 <= self.release_below_s < self.max_s:
            raise PenstockError(
                f"a latency of at most {self.max_s} s, releasing below {self.release_below_s} s, planned for "
                f"{self.aim} of it; the most must be above 0 and above the least, and the share within (0, 1]"
            )
        if self.quantile not in (None, 0.5, 0.95, 0.99):
            raise PenstockError(f"the quantile {self.quantile} of the latency is not measured; 0.5, 0.95 and 0.99 are")

    @property
    def release_below_s(self) -> float:
        return self.max_s / 2 if self.min_s is None else self.min_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DrsSettings:
    goal: LeastLatency | FewestSlots
    queue: Queue = "mmk"  # of operator-at-a-time engines; "gigk" where SCVs are measured and not are_close 1
    replica_s: float = 0.02  # of micro-batch engines: what a replica adds to a batch, to begin with
    batch_s: float = 0.1  # and an empty batch of a query that made none yet
    worth_slots: float = 0.5  # work from which on a region is tried as a query of its own
    learning: float = 0.3  # of the correction, a turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An assignment, and what it is expected to bring."""

    stations: StationNetwork
    assigned: Assignment
    expected: PlanOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What both problems look at."""

    situation: Situation
    now: StationNetwork  # as the plan is cut
    others: tuple[StationNetwork, ...]  # as it might be cut too
    counts: list[int]  # of the plan in force
    staying: PlanOutcome
    measured_s: float | None
    backlogged: bool  # what was measured is of rows that waited for those before them
    correction: float
    memory: Memory
    inputs: Inputs
    most: int  # slots
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
            now = query_stations(situation, demand, frozenset(), costs)
            cuts = worthwhile_cuts(situation, demand, worth_slots=settings.worth_slots)
            if cuts:
                others = (query_stations(situation, demand, cuts, costs),)
        else:
            now = operator_stations(situation, demand, queue=settings.queue)
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
            backlogged=waiting,
            correction=correction,
            memory=memory,
            inputs=inputs,
            most=min(situation.max_slots, goal.max_slots or situation.max_slots),
            quantile=quantile,
            at_most_s=None if isinstance(goal, LeastLatency) else goal.max_s,
        )

    def at_load(self, times: float) -> Problem:
        """All of it under so many times the load: what stays and what might be are compared under the same."""
        if times == 1.0:
            return self
        now = self.now.at_load(times)
        predicted = now.predicted_s(self.counts, self.quantile)
        staying = _staying(self.situation, now, self.counts, predicted, self.correction, self.quantile)
        return replace(self, now=now, others=tuple(one.at_load(times) for one in self.others), staying=staying)

    @property
    def budget(self) -> int:
        return self.most - self.now.reserved

    @property
    def risen(self) -> float:
        """The rate of the last window over that of all, where the load is no longer what it was; 1 or more."""
        window, latest = self.situation.window, self.situation.latest
        assert window is not None and latest is not None
        if is_steady(self.situation) or not window.external_rows_per_s or not latest.external_rows_per_s:
            return 1.0
        return max(1.0, latest.external_rows_per_s / window.external_rows_per_s)

    @property
    def rising(self) -> bool:
        """Whether more rows come than in the mean over the windows, by more than a load that is is_steady."""
        window, latest = self.situation.window, self.situation.latest
        assert window is not None and latest is not None
        mean, now = window.external_rows_per_s, latest.external_rows_per_s
        return now is not None and mean is not None and now > mean and not are_close(mean, now)

    @property
    def ways(self) -> tuple[StationNetwork, ...]:
        return (self.now, *self.others)

    def option(self, stations: StationNetwork, assigned: Assignment) -> Option:
        predicted = stations.predicted_s(assigned.counts, self.quantile)
        expected = PlanOutcome(
            slots=assigned.total + stations.reserved,
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
