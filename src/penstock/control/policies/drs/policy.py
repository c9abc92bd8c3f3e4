"""DRS: as few slots as the latency target allows, or the least latency that the slots allow.

Source: Fu et al., "DRS: Auto-Scaling for Real-Time Stream Analytics", ToN 25(6), 2017, sections III and IV.

- `LeastLatency`, their problem (6): AssignProcessors for K slots; where the result is not the plan in force, change.
- `FewestSlots`, their problem (8): above T_max MinProcessors adds slots, below T_min it releases them, and in between
  AssignProcessors moves them where the total is right and the split is not.

T_ra, the least time between two changes, is the guard `Cooldown`, and smoothing is the loop's.
On micro-batch engines the stations are queries. Regions with enough work each are also tried as queries of their own,
which is done where the model says that it helps. Replicas stay within the slots there are; what the target would need
beyond them is reported in `needs_slots`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.control.demand import demand_of
from penstock.control.policies.drs.learning import is_steady
from penstock.control.policies.drs.problem import DrsSettings, FewestSlots, LeastLatency, Option, Problem
from penstock.control.policies.drs.stations import StationNetwork
from penstock.control.policy import Change, Decision, Hold, Memory, Reason, Situation
from penstock.models.queueing.errors import distinguishable
from penstock.planning.plan_outcome import Alternative, PlanOutcome
from penstock.planning.processors import Assignment, assign_processors, min_processors, one_less

PUZZLED = "drs.puzzled"
_PUZZLED_TURNS = 3


@dataclass(frozen=True, slots=True)
class Drs:
    settings: DrsSettings
    name: str = field(default="drs", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        if isinstance(demand, Hold):
            return demand, memory
        goal = self.settings.goal
        problem = Problem.of(situation, demand, self.settings, memory)
        if problem.budget < len(problem.now.workload.operators):
            least = len(problem.now.workload.operators) + problem.now.reserved
            why = f"{least} slots are the fewest that this dataflow runs on, and {problem.most} may be used"
            return Hold(reason=Reason.AT_LIMIT, why=why, inputs=problem.inputs, needs_slots=least), memory
        decision = _least(problem) if isinstance(goal, LeastLatency) else _fewest(problem, goal)
        puzzled = isinstance(decision, Hold) and decision.reason is Reason.CATCHING_UP and is_steady(situation)
        return decision, {**problem.memory, PUZZLED: problem.memory.get(PUZZLED, 0.0) + 1.0 if puzzled else 0.0}


def _least(problem: Problem) -> Decision:
    problem = problem.at_load(problem.risen) if problem.rising else problem
    best = min(
        (problem.option(stations, assign_processors(stations.workload, problem.budget)) for stations in problem.ways),
        key=lambda option: _longing(option.expected),
    )
    return _towards(problem, best, releasing=problem.staying.slots > problem.most)


def _fewest(problem: Problem, goal: FewestSlots) -> Decision:
    """Their scheduler's three cases, in its order."""
    if problem.measured_s is None and problem.staying.latency_s is not None:
        return Hold(reason=Reason.MISSING, why="no row came out whose latency is known", inputs=problem.inputs)
    short = problem.measured_s is None or problem.measured_s > goal.max_s
    if not short and problem.staying.slots <= problem.most and problem.rising:
        # Slots that a quiet time did not need may be what those need that come now.
        return Hold(reason=Reason.NOT_YET, why=f"{_said(problem)}, but more rows come by now", inputs=problem.inputs)
    within = not short and problem.measured_s is not None and problem.measured_s >= goal.release_below_s
    if within and problem.staying.slots <= problem.most:
        return _reallocated(problem, f"{_said(problem)}, within its bounds")
    target_s = goal.aim * goal.max_s / problem.correction
    # Too few slots for a rate that has risen: the mean over the windows is of the past, and would only be added to.
    problem = problem.at_load(problem.risen) if short else problem
    best = min(
        (_planned(problem, stations, goal, target_s) for stations in problem.ways),
        key=lambda option: (not option.assigned.feasible, option.expected.slots, _longing(option.expected)),
    )
    if short and (best.expected.slots > problem.staying.slots or not best.assigned.feasible):
        return _towards(problem, best, releasing=problem.staying.slots > problem.most)
    if not short and best.assigned.feasible and best.expected.slots < problem.staying.slots:
        return _towards(problem, best, releasing=True)
    if short and problem.memory.get(PUZZLED, 0.0) >= _PUZZLED_TURNS and problem.staying.slots < problem.most:
        return _one_more(problem)
    if short:
        return _reallocated(
            problem, f"{_said(problem)}, above {goal.max_s:.3g} s, but the slots in use should do for what arrives now"
        )
    return _reallocated(
        problem, f"{_said(problem)}, below {goal.release_below_s:.3g} s, but fewer slots would miss the target"
    )


def _planned(problem: Problem, stations: StationNetwork, goal: FewestSlots, target_s: float) -> Option:
    """With room for more rows if that can be had, and expected to bring what it brings for those that come."""
    found: Assignment | None = None
    if goal.room > 0.0:
        more = stations.at_load(1.0 + goal.room)
        found = min_processors(more.workload, target_s, goal.quantile, problem.budget)
    if found is None or not found.feasible:
        found = min_processors(stations.workload, target_s, goal.quantile, problem.budget)
    return problem.option(stations, replace(found, network=stations.workload))


def _one_more(problem: Problem) -> Decision:
    """For some turns the slots in use should have done, and it does not get better: there is what no model knows."""
    in_use = max(sum(problem.counts), len(problem.counts))
    return _towards(
        problem, problem.option(problem.now, assign_processors(problem.now.workload, min(problem.budget, in_use + 1)))
    )


def _reallocated(problem: Problem, why: str) -> Decision:
    """The total is right; is the split?"""
    in_use = min(problem.budget, max(sum(problem.counts), len(problem.counts)))
    best = problem.option(problem.now, assign_processors(problem.now.workload, in_use))
    short = problem.at_most_s is not None and problem.measured_s is not None and problem.measured_s > problem.at_most_s
    if _better(best.expected, problem.staying):
        return _towards(problem, best)
    reason = Reason.CATCHING_UP if short else Reason.WITHIN_TARGET
    return Hold(reason=reason, why=why, inputs=problem.inputs, binding=best.assigned.bottleneck)


def _towards(problem: Problem, option: Option, *, releasing: bool = False) -> Decision:
    """To that assignment, unless it is where we are or no better; where slots are to be released it may be worse."""
    stations, best, expected = option.stations, option.assigned, option.expected
    needs = None if best.needs is None or best.needs.total is None else best.needs.total + stations.reserved
    binding = best.binding or best.bottleneck
    if not releasing and not _better(expected, problem.staying):
        plan = problem.situation.plan
    else:
        plan = problem.situation.topology.rescaled(
            problem.situation.plan, stations.replicas(best.counts), stations.cuts
        )
    if plan == problem.situation.plan:
        why = _lacking(problem, option) or f"no better plan within {problem.most} slots"
        held = Reason.BEST if best.feasible else Reason.AT_LIMIT
        return Hold(reason=held, why=why, inputs=problem.inputs, binding=binding, needs_slots=needs)
    lacking = _lacking(problem, option)
    return Change(
        plan=plan,
        reason=_reason(problem, expected.slots),
        why=f"{_said(problem)}; expected with {expected.slots} slots: {_seconds(expected.latency_s)}"
        + (f"; {lacking}" if lacking else ""),
        staying=problem.staying,
        expected=expected,
        inputs=problem.inputs,
        binding=binding,
        alternatives=_alternatives(problem, option),
        needs_slots=needs,
    )


def _lacking(problem: Problem, option: Option) -> str | None:
    """What is in the way of the target, in the user's seconds: the planner was asked for the model's."""
    needs, comes_s = option.assigned.needs, option.expected.latency_s
    if needs is None or not needs.in_the_way or comes_s is None or problem.at_most_s is None:
        return None if needs is None else needs.reason
    comes, asked = distinguishable(comes_s, problem.at_most_s, digits=4)
    missed = "not" if comes_s > problem.at_most_s else "hardly below"
    return f"the {_what(problem)} comes to {comes} s at best, {missed} {asked} s, {needs.in_the_way}"


def _alternatives(problem: Problem, option: Option) -> tuple[Alternative, ...]:
    """To stay, and the best with one slot less."""
    stations, best = option.stations, option.assigned
    staying = "does not keep up" if problem.staying.latency_s is None else "is slower or takes more slots"
    found = [Alternative(replicas=problem.situation.plan.replicas, expected=problem.staying, why=f"staying {staying}")]
    if best.total > len(best.counts):
        fewer = one_less(best)
        expected = problem.option(stations, fewer).expected
        why = "one slot less is slower" if expected.latency_s is not None else "one slot less does not keep up"
        found.append(Alternative(replicas=stations.replicas(fewer.counts), expected=expected, why=why))
    return tuple(found)


def _reason(problem: Problem, slots: int) -> Reason:
    if slots == problem.staying.slots:
        return Reason.REALLOCATION
    return Reason.SHORTAGE if slots > problem.staying.slots else Reason.RELEASE


def _better(one: PlanOutcome, other: PlanOutcome) -> bool:
    """Shorter by more than rounding; to keep up is better than not to, and then to take in more."""
    if one.latency_s is None:
        return other.latency_s is None and (one.rows_per_s or 0.0) > (other.rows_per_s or 0.0) * (1 + 1e-9)
    return other.latency_s is None or one.latency_s < other.latency_s * (1 - 1e-9)


def _longing(outcome: PlanOutcome) -> tuple[bool, float]:
    """Sorts outcomes, best first."""
    short_of = outcome.rows_per_s or 0.0
    return (outcome.latency_s is None, -short_of if outcome.latency_s is None else outcome.latency_s)


def _said(problem: Problem) -> str:
    said = f"{_what(problem)} {_seconds(problem.measured_s)} with {problem.staying.slots} slots"
    return f"{said} and a backlog, {_seconds(problem.staying.latency_s)} without it" if problem.backlogged else said


def _what(problem: Problem) -> str:
    return "mean latency" if problem.quantile is None else f"p{100 * problem.quantile:g} latency"


def _seconds(time_s: float | None) -> str:
    if time_s is None:
        return "unknown"
    return f"{time_s:.3g} s" if time_s < 1000 else f"{time_s:,.0f} s"
