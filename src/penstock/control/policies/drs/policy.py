"""The decisions of DRS.

- `LeastLatency`, problem (6) of the paper: AssignProcessors for K slots; change if the result differs from the plan.
- `FewestSlots`, problem (8): above T_max MinProcessors adds slots, below T_min it releases slots, and in between
  AssignProcessors redistributes them.

T_ra, the minimum time between two changes, is the guard `Cooldown`. Smoothing is done by the controller.

On micro-batch engines the stations are queries. Regions with enough work each are also tried as separate queries, which
is done if the model predicts an improvement. Replicas stay within the allowed slots; `needs_slots` reports how many the
target would need.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.control.demand import demand_of
from penstock.control.policies.drs.learning import is_steady
from penstock.control.policies.drs.problem import DrsSettings, FewestSlots, LeastLatency, Option, Problem
from penstock.control.policies.drs.stations import StationNetwork
from penstock.control.policy import Change, Decision, Hold, Memory, Reason, Situation
from penstock.models.queueing.errors import distinguishable
from penstock.plan.counts import slots_text
from penstock.planning.plan_outcome import Alternative, PlanOutcome
from penstock.planning.processors import Assignment, assign_processors, min_processors, one_less

UNEXPLAINED = "drs.unexplained_turns"  # consecutive turns in which the model cannot explain a missed target
_MAX_UNEXPLAINED_TURNS = 3


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
            min_slots = len(problem.now.workload.operators) + problem.now.reserved
            reason = f"The dataflow needs at least {slots_text(min_slots)}, but only {problem.max_slots} are allowed."
            return Hold(
                reason_code=Reason.AT_LIMIT, reason=reason, inputs=problem.inputs, needs_slots=min_slots
            ), memory
        decision = _least_latency(problem) if isinstance(goal, LeastLatency) else _fewest_slots(problem, goal)
        unexplained = isinstance(decision, Hold) and decision.reason_code is Reason.CATCHING_UP and is_steady(situation)
        turns = problem.memory.get(UNEXPLAINED, 0.0) + 1.0 if unexplained else 0.0
        return decision, {**problem.memory, UNEXPLAINED: turns}


def _least_latency(problem: Problem) -> Decision:
    problem = problem.at_load(problem.load_growth) if problem.load_rises else problem
    best = min(
        (problem.option(stations, problem.assigned(stations, problem.max_slots)) for stations in problem.networks),
        key=lambda option: _preference(option.expected),
    )
    return _change_to(problem, best, releasing=problem.staying.slots > problem.max_slots)


def _fewest_slots(problem: Problem, goal: FewestSlots) -> Decision:
    """Decide by the three cases of the paper's scheduler, in its order."""
    if problem.measured_s is None and problem.staying.latency_s is not None:
        reason = "No row with a known latency has reached a sink in the measured windows."
        return Hold(reason_code=Reason.MISSING, reason=reason, inputs=problem.inputs)
    too_slow = problem.measured_s is None or problem.measured_s > goal.max_s
    within_limit = problem.staying.slots <= problem.max_slots
    if not too_slow and within_limit and problem.load_rises:
        # Slots that were spare under the lower load may be needed now.
        reason = f"{_measurement(problem)}, but the input rate is rising."
        return Hold(reason_code=Reason.NOT_YET, reason=reason, inputs=problem.inputs)
    in_range = not too_slow and problem.measured_s is not None and problem.measured_s >= goal.release_below_s
    if in_range and within_limit:
        between = f"{_seconds(goal.release_below_s)} and {_seconds(goal.max_s)}"
        return _redistribute(problem, f"{_measurement(problem)}, between {between}.")
    target_s = goal.aim * goal.max_s / problem.correction
    # The mean over the windows describes the past if the rate has risen; plan for the current rate.
    problem = problem.at_load(problem.load_growth) if too_slow else problem
    best = min(
        (_plan_for(problem, stations, goal, target_s) for stations in problem.networks),
        key=lambda option: (not option.assigned.feasible, option.expected.slots, _preference(option.expected)),
    )
    if too_slow and (best.expected.slots > problem.staying.slots or not best.assigned.feasible):
        return _change_to(problem, best, releasing=problem.staying.slots > problem.max_slots)
    if not too_slow and best.assigned.feasible and best.expected.slots < problem.staying.slots:
        return _change_to(problem, best, releasing=True)
    is_unexplained = problem.memory.get(UNEXPLAINED, 0.0) >= _MAX_UNEXPLAINED_TURNS
    if too_slow and is_unexplained and problem.staying.slots < problem.max_slots:
        return _add_one_slot(problem)
    if too_slow:
        target = f"above the target of {_seconds(goal.max_s)}"
        return _redistribute(problem, f"{_measurement(problem)}, {target}, but the slots suffice for the current load.")
    return _redistribute(
        problem,
        f"{_measurement(problem)}, below {_seconds(goal.release_below_s)}, but fewer slots would miss the target.",
    )


def _plan_for(problem: Problem, stations: StationNetwork, goal: FewestSlots, target_s: float) -> Option:
    """Plan with spare capacity for more rows if possible; the expectation is for the current rows."""
    assigned: Assignment | None = None
    if goal.room > 0.0:
        assigned = min_processors(stations.at_load(1.0 + goal.room).workload, target_s, goal.quantile, problem.budget)
    if assigned is None or not assigned.feasible:
        assigned = min_processors(stations.workload, target_s, goal.quantile, problem.budget)
    if problem.slots_of(stations, assigned) > problem.max_slots:
        within = problem.assigned(stations, problem.max_slots)
        assigned = replace(within, binding=assigned.bottleneck, needs=assigned.needs)
    return problem.option(stations, replace(assigned, network=stations.workload))


def _add_one_slot(problem: Problem) -> Decision:
    """Add a slot although the model finds the current ones sufficient: it lacks some cause of the latency."""
    slots = min(problem.budget, max(sum(problem.counts), len(problem.counts)) + 1)
    return _change_to(problem, problem.option(problem.now, assign_processors(problem.now.workload, slots)))


def _redistribute(problem: Problem, reason: str) -> Decision:
    """Keep the number of slots; change their distribution if that is better."""
    if problem.cuts_inside:
        slots = min(problem.max_slots, problem.staying.slots)
    else:
        slots = min(problem.budget, max(sum(problem.counts), len(problem.counts))) + problem.now.reserved
    best = problem.option(problem.now, problem.assigned(problem.now, slots))
    if _is_better(best.expected, problem.staying):
        return _change_to(problem, best)
    target_s, measured_s = problem.at_most_s, problem.measured_s
    too_slow = target_s is not None and measured_s is not None and measured_s > target_s
    reason_code = Reason.CATCHING_UP if too_slow else Reason.WITHIN_TARGET
    return Hold(reason_code=reason_code, reason=reason, inputs=problem.inputs, binding=best.assigned.bottleneck)


def _change_to(problem: Problem, option: Option, *, releasing: bool = False) -> Decision:
    """Change to an assignment unless it is the current one or no better; a release of slots may be slower."""
    stations, best, expected = option.stations, option.assigned, option.expected
    situation = problem.situation
    needs = None if best.needs is None or best.needs.total is None else best.needs.total + stations.reserved
    binding = best.binding or best.bottleneck
    limit = _limit(problem, option)
    plan = situation.plan
    if releasing or _is_better(expected, problem.staying):
        plan = situation.topology.rescaled(plan, stations.replicas(best.counts), stations.cuts)
    if plan == situation.plan:
        reason_code = Reason.BEST if best.feasible else Reason.AT_LIMIT
        reason = f"No better plan exists within {slots_text(problem.max_slots)}" + (f": {limit}." if limit else ".")
        return Hold(reason_code=reason_code, reason=reason, inputs=problem.inputs, binding=binding, needs_slots=needs)
    return Change(
        plan=plan,
        reason_code=_reason(problem, expected.slots),
        reason=f"{_measurement(problem)}; {_outlook(expected, limit)}.",
        staying=problem.staying,
        expected=expected,
        inputs=problem.inputs,
        binding=binding,
        alternatives=_alternatives(problem, option),
        needs_slots=needs,
    )


def _outlook(expected: PlanOutcome, limit: str | None) -> str:
    """Return the expected latency in words, with what prevents the target."""
    slots = slots_text(expected.slots)
    if expected.latency_s is None:
        return f"with {slots} it is unknown" + (f", because {limit}" if limit else "")
    return f"{slots} should give {_seconds(expected.latency_s)}" + (f", but {limit}" if limit else "")


def _limit(problem: Problem, option: Option) -> str | None:
    """Return what prevents the target, in measured seconds (the planner works in the model's seconds)."""
    needs, reached_s = option.assigned.needs, option.expected.latency_s
    if needs is None or not needs.in_the_way or reached_s is None or problem.at_most_s is None:
        return None if needs is None else needs.reason
    if reached_s <= problem.at_most_s:  # the planner aims below the target
        return f"a lower {_metric(problem)} is not possible {needs.in_the_way}"
    reached, target = distinguishable(reached_s, problem.at_most_s, digits=4)
    return f"the lowest possible {_metric(problem)} is {reached} s, above {target} s, {needs.in_the_way}"


def _alternatives(problem: Problem, option: Option) -> tuple[Alternative, ...]:
    """Return the current plan, and the best plan with one slot less."""
    stations, best = option.stations, option.assigned
    drawback = "does not keep up" if problem.staying.latency_s is None else "is slower or uses more slots"
    staying = Alternative(
        replicas=problem.situation.plan.replicas, expected=problem.staying, reason=f"The current plan {drawback}."
    )
    if best.total <= len(best.counts):
        return (staying,)
    smaller = one_less(best)
    expected = problem.option(stations, smaller).expected
    drawback = "is slower" if expected.latency_s is not None else "does not keep up"
    less = Alternative(
        replicas=stations.replicas(smaller.counts), expected=expected, reason=f"A plan with one slot less {drawback}."
    )
    return (staying, less)


def _reason(problem: Problem, slots: int) -> Reason:
    if slots == problem.staying.slots:
        return Reason.REALLOCATION
    return Reason.SHORTAGE if slots > problem.staying.slots else Reason.RELEASE


def _is_better(first: PlanOutcome, second: PlanOutcome) -> bool:
    """Return whether the first outcome has a lower latency; if neither keeps up, whether it processes more."""
    if first.latency_s is None:
        return second.latency_s is None and (first.rows_per_s or 0.0) > (second.rows_per_s or 0.0) * (1 + 1e-9)
    return second.latency_s is None or first.latency_s < second.latency_s * (1 - 1e-9)


def _preference(outcome: PlanOutcome) -> tuple[bool, float]:
    """Sort key of outcomes, best first."""
    if outcome.latency_s is None:
        return True, -(outcome.rows_per_s or 0.0)
    return False, outcome.latency_s


def _measurement(problem: Problem) -> str:
    text = f"The {_metric(problem)} is {_seconds(problem.measured_s)} with {slots_text(problem.staying.slots)}"
    return f"{text} and a backlog ({_seconds(problem.staying.latency_s)} without it)" if problem.has_backlog else text


def _metric(problem: Problem) -> str:
    return "mean latency" if problem.quantile is None else f"p{100 * problem.quantile:g} latency"


def _seconds(time_s: float | None) -> str:
    if time_s is None:
        return "unknown"
    return f"{time_s:.3g} s" if time_s < 1000 else f"{time_s:,.0f} s"
