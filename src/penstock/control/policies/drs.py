"""DRS: as few slots as the latency target allows, or the least latency that the slots allow.

Source: Fu et al., "DRS: Auto-Scaling for Real-Time Stream Analytics", ToN 25(6), 2017, sections III and IV.

- `LeastSojourn`, their problem (6): AssignProcessors for K slots; where the result is not the plan in force, change.
- `FewestSlots`, their problem (8): above T_max MinProcessors adds slots, below T_min it releases them, and in between
  AssignProcessors moves them where the total is right and the split is not.

T_ra, the least time between two changes, is the guard `Cooldown`, and smoothing is the loop's.
On micro-batch engines the stations are queries. Regions with enough work each are also tried as queries of their own,
which is done where the model says that it helps. Replicas stay within the slots there are; what the target would need
beyond them is reported in `needs_slots`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from penstock.control.correction import backlogged, learned, measured_s, near, steady
from penstock.control.decisions import Change, Decision, Hold, Inputs, Reason
from penstock.control.demand import Demand, demand_of
from penstock.control.situation import Memory, Situation
from penstock.control.stations import (
    BatchCosts,
    Queue,
    Stations,
    operator_stations,
    present_counts,
    query_stations,
    rests_of_batches,
    worthwhile_cuts,
)
from penstock.control.task_cost import recalled, remembered, task_s
from penstock.dataflow.errors import PenstockError
from penstock.models.queueing.errors import told_apart
from penstock.planning.outcome import Alternative, Outcome
from penstock.planning.processors import Assignment, assign_processors, min_processors, one_less

CORRECTION, PUZZLED = "drs.correction", "drs.puzzled"
_PUZZLED_TURNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastSojourn:
    """Within `max_slots`; None: within all that may be used."""

    max_slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestSlots:
    """With a sojourn of at most `max_s` (T_max): its mean, or the quantile 0.5, 0.95 or 0.99 of it."""

    max_s: float
    min_s: float | None = None  # T_min, below which slots are released; None: half of max_s
    quantile: float | None = None
    aim: float = 1.0  # plans are made for this share of max_s, so that noise does not undo them
    room: float = 0.0  # and for so many more rows than come, as a share: near saturation a few more are far slower
    max_slots: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.room < math.inf:
            raise PenstockError(
                f"room for {self.room} times the rows that come, beside them; it is a number, 0 or more"
            )
        if not self.max_s > 0 or not 0 < self.aim <= 1 or not 0 <= self.release_below_s < self.max_s:
            raise PenstockError(
                f"a sojourn of at most {self.max_s} s, releasing below {self.release_below_s} s, planned for "
                f"{self.aim} of it; the most must be above 0 and above the least, and the share within (0, 1]"
            )
        if self.quantile not in (None, 0.5, 0.95, 0.99):
            raise PenstockError(f"the quantile {self.quantile} of the sojourn is not measured; 0.5, 0.95 and 0.99 are")

    @property
    def release_below_s(self) -> float:
        return self.max_s / 2 if self.min_s is None else self.min_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DrsSettings:
    goal: LeastSojourn | FewestSlots
    queue: Queue = "mmk"  # of operator-at-a-time engines; "gigk" where SCVs are measured and not near 1
    replica_s: float = 0.02  # of micro-batch engines: what a replica adds to a batch, to begin with
    batch_s: float = 0.1  # and an empty batch of a query that made none yet
    worth_slots: float = 0.5  # work from which on a region is tried as a query of its own
    learning: float = 0.3  # of the correction, a turn


@dataclass(frozen=True, slots=True)
class Drs:
    settings: DrsSettings
    name: str = field(default="drs", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        if isinstance(demand, Hold):
            return demand, memory
        goal = self.settings.goal
        case = _Case.of(situation, demand, self.settings, memory)
        if case.budget < len(case.now.workload.operators):
            least = len(case.now.workload.operators) + case.now.reserved
            why = f"{least} slots are the fewest that this dataflow runs on, and {case.most} may be used"
            return Hold(reason=Reason.AT_LIMIT, why=why, inputs=case.inputs, needs_slots=least), memory
        decision = _least(case) if isinstance(goal, LeastSojourn) else _fewest(case, goal)
        puzzled = isinstance(decision, Hold) and decision.reason is Reason.CATCHING_UP and steady(situation)
        return decision, {**case.memory, PUZZLED: case.memory.get(PUZZLED, 0.0) + 1.0 if puzzled else 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """An assignment, and what it is expected to bring."""

    stations: Stations
    assigned: Assignment
    expected: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What both problems look at."""

    situation: Situation
    now: Stations  # as the plan is cut
    others: tuple[Stations, ...]  # as it might be cut too
    counts: list[int]  # of the plan in force
    staying: Outcome
    measured_s: float | None
    backlogged: bool  # what was measured is of rows that waited for those before them
    correction: float
    memory: Memory
    inputs: Inputs
    most: int  # slots
    quantile: float | None
    at_most_s: float | None

    @staticmethod
    def of(situation: Situation, demand: Demand, settings: DrsSettings, memory: Memory) -> _Case:
        goal, window = settings.goal, situation.window
        assert window is not None
        others: tuple[Stations, ...] = ()
        if situation.micro_batch:
            rests = rests_of_batches(situation, demand)
            if steady(situation):
                memory = remembered(memory, rests, rate=settings.learning)
            costs = BatchCosts(
                rests=recalled(memory, rests),
                replica_s=task_s(memory, settings.replica_s),
                batch_s=settings.batch_s,
            )
            now = query_stations(situation, demand, frozenset(), costs)
            cuts = worthwhile_cuts(situation, demand, worth_slots=settings.worth_slots)
            if cuts:
                others = (query_stations(situation, demand, cuts, costs),)
        else:
            now = operator_stations(situation, demand, queue=settings.queue)
        quantile = None if isinstance(goal, LeastSojourn) else goal.quantile
        counts = present_counts(now, situation, demand)
        predicted, measured = now.predicted_s(counts, quantile), measured_s(window.sojourn, quantile)
        waiting = predicted is not None and backlogged(situation, predicted)
        if predicted is not None and measured and steady(situation) and not waiting:
            memory = learned(memory, CORRECTION, measured_s=measured, predicted_s=predicted, rate=settings.learning)
        correction = memory.get(CORRECTION, 1.0)
        staying = _staying(situation, now, counts, predicted, correction, quantile)
        inputs = demand.inputs(window) | {
            "measured_sojourn_s": measured,
            "predicted_sojourn_s": staying.sojourn_s,
            "correction": correction,
        }
        return _Case(
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
            at_most_s=None if isinstance(goal, LeastSojourn) else goal.max_s,
        )

    def at_load(self, times: float) -> _Case:
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
        if steady(self.situation) or not window.external_rows_per_s or not latest.external_rows_per_s:
            return 1.0
        return max(1.0, latest.external_rows_per_s / window.external_rows_per_s)

    @property
    def rising(self) -> bool:
        """Whether more rows come than in the mean over the windows, by more than a load that is steady."""
        window, latest = self.situation.window, self.situation.latest
        assert window is not None and latest is not None
        mean, now = window.external_rows_per_s, latest.external_rows_per_s
        return now is not None and mean is not None and now > mean and not near(mean, now)

    @property
    def ways(self) -> tuple[Stations, ...]:
        return (self.now, *self.others)

    def option(self, stations: Stations, assigned: Assignment) -> _Option:
        predicted = stations.predicted_s(assigned.counts, self.quantile)
        expected = Outcome(
            slots=assigned.total + stations.reserved,
            sojourn_s=None if predicted is None else self.correction * predicted,
            quantile=self.quantile,
            at_most_s=self.at_most_s,
            rows_per_s=min(assigned.max_external_per_s, stations.workload.external_per_s),
        )
        return _Option(stations=stations, assigned=assigned, expected=expected)


def _staying(
    situation: Situation,
    now: Stations,
    counts: list[int],
    predicted_s: float | None,
    correction: float,
    quantile: float | None,
) -> Outcome:
    taken = Assignment(workload=now.workload, counts=tuple(counts)).max_external_per_s
    return Outcome(
        slots=situation.slots,
        sojourn_s=None if predicted_s is None else correction * predicted_s,
        quantile=quantile,
        rows_per_s=min(now.workload.external_per_s, taken),
    )


def _least(case: _Case) -> Decision:
    case = case.at_load(case.risen) if case.rising else case
    best = min(
        (case.option(stations, assign_processors(stations.workload, case.budget)) for stations in case.ways),
        key=lambda option: _longing(option.expected),
    )
    return _towards(case, best, releasing=case.staying.slots > case.most)


def _fewest(case: _Case, goal: FewestSlots) -> Decision:
    """Their scheduler's three cases, in its order."""
    if case.measured_s is None and case.staying.sojourn_s is not None:
        return Hold(reason=Reason.MISSING, why="no row came out whose sojourn is known", inputs=case.inputs)
    short = case.measured_s is None or case.measured_s > goal.max_s
    if not short and case.staying.slots <= case.most and case.rising:
        # Slots that a quiet time did not need may be what those need that come now.
        return Hold(reason=Reason.NOT_YET, why=f"{_said(case)}, but more rows come by now", inputs=case.inputs)
    within = not short and case.measured_s is not None and case.measured_s >= goal.release_below_s
    if within and case.staying.slots <= case.most:
        return _reallocated(case, f"{_said(case)}, within its bounds")
    target_s = goal.aim * goal.max_s / case.correction
    # Too few slots for a rate that has risen: the mean over the windows is of the past, and would only be added to.
    case = case.at_load(case.risen) if short else case
    best = min(
        (_planned(case, stations, goal, target_s) for stations in case.ways),
        key=lambda option: (not option.assigned.feasible, option.expected.slots, _longing(option.expected)),
    )
    if short and (best.expected.slots > case.staying.slots or not best.assigned.feasible):
        return _towards(case, best, releasing=case.staying.slots > case.most)
    if not short and best.assigned.feasible and best.expected.slots < case.staying.slots:
        return _towards(case, best, releasing=True)
    if short and case.memory.get(PUZZLED, 0.0) >= _PUZZLED_TURNS and case.staying.slots < case.most:
        return _one_more(case)
    if short:
        return _reallocated(
            case, f"{_said(case)}, above {goal.max_s:.3g} s, but the slots in use should do for what arrives now"
        )
    return _reallocated(
        case, f"{_said(case)}, below {goal.release_below_s:.3g} s, but fewer slots would miss the target"
    )


def _planned(case: _Case, stations: Stations, goal: FewestSlots, target_s: float) -> _Option:
    """With room for more rows if that can be had, and expected to bring what it brings for those that come."""
    found: Assignment | None = None
    if goal.room > 0.0:
        more = stations.at_load(1.0 + goal.room)
        found = min_processors(more.workload, target_s, goal.quantile, case.budget)
    if found is None or not found.feasible:
        found = min_processors(stations.workload, target_s, goal.quantile, case.budget)
    return case.option(stations, replace(found, workload=stations.workload))


def _one_more(case: _Case) -> Decision:
    """For some turns the slots in use should have done, and it does not get better: there is what no model knows."""
    in_use = max(sum(case.counts), len(case.counts))
    return _towards(case, case.option(case.now, assign_processors(case.now.workload, min(case.budget, in_use + 1))))


def _reallocated(case: _Case, why: str) -> Decision:
    """The total is right; is the split?"""
    in_use = min(case.budget, max(sum(case.counts), len(case.counts)))
    best = case.option(case.now, assign_processors(case.now.workload, in_use))
    short = case.at_most_s is not None and case.measured_s is not None and case.measured_s > case.at_most_s
    if _better(best.expected, case.staying):
        return _towards(case, best)
    reason = Reason.CATCHING_UP if short else Reason.WITHIN_TARGET
    return Hold(reason=reason, why=why, inputs=case.inputs, binding=best.assigned.bottleneck)


def _towards(case: _Case, option: _Option, *, releasing: bool = False) -> Decision:
    """To that assignment, unless it is where we are or no better; where slots are to be released it may be worse."""
    stations, best, expected = option.stations, option.assigned, option.expected
    needs = None if best.needs is None or best.needs.total is None else best.needs.total + stations.reserved
    binding = best.binding or best.bottleneck
    if not releasing and not _better(expected, case.staying):
        plan = case.situation.plan
    else:
        plan = case.situation.shape.rescaled(case.situation.plan, stations.replicas(best.counts), stations.cuts)
    if plan == case.situation.plan:
        why = _lacking(case, option) or f"no better plan within {case.most} slots"
        held = Reason.BEST if best.feasible else Reason.AT_LIMIT
        return Hold(reason=held, why=why, inputs=case.inputs, binding=binding, needs_slots=needs)
    lacking = _lacking(case, option)
    return Change(
        plan=plan,
        reason=_reason(case, expected.slots),
        why=f"{_said(case)}; expected with {expected.slots} slots: {_seconds(expected.sojourn_s)}"
        + (f"; {lacking}" if lacking else ""),
        staying=case.staying,
        expected=expected,
        inputs=case.inputs,
        binding=binding,
        alternatives=_alternatives(case, option),
        needs_slots=needs,
    )


def _lacking(case: _Case, option: _Option) -> str | None:
    """What is in the way of the target, in the user's seconds: the planner was asked for the model's."""
    needs, comes_s = option.assigned.needs, option.expected.sojourn_s
    if needs is None or not needs.in_the_way or comes_s is None or case.at_most_s is None:
        return None if needs is None else needs.reason
    comes, asked = told_apart(comes_s, case.at_most_s, digits=4)
    missed = "not" if comes_s > case.at_most_s else "hardly below"
    return f"the {_what(case)} comes to {comes} s at best, {missed} {asked} s, {needs.in_the_way}"


def _alternatives(case: _Case, option: _Option) -> tuple[Alternative, ...]:
    """To stay, and the best with one slot less."""
    stations, best = option.stations, option.assigned
    staying = "does not keep up" if case.staying.sojourn_s is None else "is slower or takes more slots"
    found = [Alternative(replicas=case.situation.plan.replicas, expected=case.staying, why=f"staying {staying}")]
    if best.total > len(best.counts):
        fewer = one_less(best)
        expected = case.option(stations, fewer).expected
        why = "one slot less is slower" if expected.sojourn_s is not None else "one slot less does not keep up"
        found.append(Alternative(replicas=stations.replicas(fewer.counts), expected=expected, why=why))
    return tuple(found)


def _reason(case: _Case, slots: int) -> Reason:
    if slots == case.staying.slots:
        return Reason.REALLOCATION
    return Reason.SHORTAGE if slots > case.staying.slots else Reason.RELEASE


def _better(one: Outcome, other: Outcome) -> bool:
    """Shorter by more than rounding; to keep up is better than not to, and then to take in more."""
    if one.sojourn_s is None:
        return other.sojourn_s is None and (one.rows_per_s or 0.0) > (other.rows_per_s or 0.0) * (1 + 1e-9)
    return other.sojourn_s is None or one.sojourn_s < other.sojourn_s * (1 - 1e-9)


def _longing(outcome: Outcome) -> tuple[bool, float]:
    """Sorts outcomes, best first."""
    short_of = outcome.rows_per_s or 0.0
    return (outcome.sojourn_s is None, -short_of if outcome.sojourn_s is None else outcome.sojourn_s)


def _said(case: _Case) -> str:
    said = f"{_what(case)} {_seconds(case.measured_s)} with {case.staying.slots} slots"
    return f"{said} and a backlog, {_seconds(case.staying.sojourn_s)} without it" if case.backlogged else said


def _what(case: _Case) -> str:
    return "mean sojourn" if case.quantile is None else f"p{100 * case.quantile:g} sojourn"


def _seconds(time_s: float | None) -> str:
    if time_s is None:
        return "unknown"
    return f"{time_s:.3g} s" if time_s < 1000 else f"{time_s:,.0f} s"
