"""Stela: tasks go to congested operators, to the one first whose speed would reach the most of the output.

Source: Xu, Peng and Gupta, "Stela: Enabling stream processing systems to scale-in and scale-out on-demand", IC2E 2016,
as Liu et al. (TAAS 12(4), 2017, section 6.1.3) run it inside a loop:

- an operator is congested where rows arrive at more than 1.2 times the rate at which they are processed; those that
  wait have arrived, and are to be done within the time that the rates are measured over;
- its ETP (effective throughput percentage) is the share of the sinks' throughput that it reaches over paths without a
  congested operator;
- the congested operator with the highest ETP gets a task, its rate and the rates behind it are projected, and again,
  up to `attempts` times a round (their m: one for each worker).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.demand import Demand, DemandPolicy
from penstock.control.policy import Change, Decision, Hold, Reason, Situation
from penstock.planning.plan_outcome import PlanOutcome


@dataclass(frozen=True, slots=True)
class Stela(DemandPolicy):
    attempts: int = 1
    congestion: float = 1.2
    name: str = field(default="stela", init=False)

    def decide_for(self, demand: Demand, situation: Situation) -> Decision:
        assert situation.window is not None
        inputs = demand.inputs(situation.window)
        counts = {name: load.replicas for name, load in demand.loads.items()}
        plan, added, full = situation.plan, list[str](), False
        for _ in range(self.attempts):
            rates = _Rates.projected(situation, demand, counts, self.congestion)
            etp = {name: _etp(name, situation, rates) for name in rates.congested if demand.loads[name].most != 1}
            if not etp:
                break
            # A tie goes to the one further upstream; of those that take turns, to the one that takes longest.
            takes = {name: demand.loads[name].work / counts[name] if situation.micro_batch else 0.0 for name in etp}
            target = max(etp, key=lambda name: (etp[name], takes[name]))
            inputs[f"{target}.etp"] = etp[target]
            tried = situation.topology.rescaled(plan, {target: counts[target] + 1})
            if situation.topology.slots(tried, micro_batch=situation.micro_batch) > situation.max_slots:
                full = True
                break
            counts[target] += 1
            plan = tried
            added.append(target)
        before = _Rates.projected(situation, demand, {n: one.replicas for n, one in demand.loads.items()}, 1.0)
        if not added:
            return _held(situation, rates, inputs, full=full)
        after = _Rates.projected(situation, demand, counts, 1.0)
        slots = situation.topology.slots(plan, micro_batch=situation.micro_batch)
        return Change(
            plan=plan,
            reason=Reason.CONGESTION,
            why=f"congested; a task more each for {', '.join(added)}",
            staying=PlanOutcome(slots=situation.slots, rows_per_s=before.taken_in),
            expected=PlanOutcome(slots=slots, rows_per_s=after.taken_in),
            inputs=inputs,
            binding=added[0],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Where rows pile up with these counts: an operator passes on what it can of what reaches it."""

    processed: Mapping[str, float]  # by region
    congested: tuple[str, ...]
    taken_in: float  # external rows/s

    @staticmethod
    def projected(situation: Situation, demand: Demand, counts: Mapping[str, int], congestion: float) -> _Rates:
        arriving_over: dict[str, list[str]] = {}
        for before, after in situation.topology.streams:
            arriving_over.setdefault(after, []).append(before)
        processed: dict[str, float] = {}
        congested: list[str] = []
        taken_in = demand.external_per_s
        able_of = _able(situation, demand, counts)
        seen, waiting = _seen_to_arrive(situation), _waiting(situation)
        for name, unhindered in demand.arrivals.items():
            arriving = 0.0
            for before in arriving_over[name]:
                if before in demand.entering:
                    arriving += demand.entering[before]
                else:
                    # Round a loop what comes back is not known yet; it is taken as it would be unhindered.
                    arriving += processed.get(before, demand.arrivals[before]) * demand.gains[before, name]
            # Behind an operator that works off a backlog more arrives than comes from outside.
            arriving = max(arriving, seen.get(name, 0.0))
            if counts.get(name) == situation.plan.replicas.get(
                name
            ):  # with a task more, the next round shows what waits
                arriving += waiting.get(name, 0.0)
            processed[name] = min(arriving, able_of.get(name, arriving))
            if arriving > congestion * processed[name]:
                congested.append(name)
            if unhindered:
                taken_in = min(taken_in, demand.external_per_s * processed[name] / unhindered)
        return _Rates(processed=processed, congested=tuple(congested), taken_in=taken_in)


def _seen_to_arrive(situation: Situation) -> dict[str, float]:
    """Rows/s at the entrance of each region, as far as they are measured."""
    assert situation.window is not None
    return {one.operator: one.input_rows_per_s or 0.0 for one in situation.window.operators}


def _waiting(situation: Situation) -> dict[str, float]:
    """Rows before each region, over the time that rates are measured in; those in a source wait for its reader."""
    assert situation.window is not None and situation.latest is not None
    span_s = max(situation.window.end_s - situation.window.start_s, 1e-3)
    rows = {one.operator: one.backlog_rows for one in situation.latest.operators}
    found: dict[str, float] = {}
    for before, name in situation.topology.streams:
        own = rows.get(name)
        if own is not None:
            found[name] = own / span_s
        elif before in situation.topology.sources:
            found[name] = found.get(name, 0.0) + (rows.get(before) or 0) / span_s
    return found


def _able(situation: Situation, demand: Demand, counts: Mapping[str, int]) -> dict[str, float]:
    """Rows/s that each region can do; stages of a query take turns, and each has its part of the time."""
    alone = {name: counts[name] / load.row_s for name, load in demand.loads.items()}
    if not situation.micro_batch:
        return alone
    found: dict[str, float] = {}
    for query in situation.topology.queries(situation.plan.cuts):
        inside = [name for name in query if name in alone]
        busy = sum(demand.arrivals[name] / alone[name] for name in inside)  # of all the time, for what arrives
        found |= {name: demand.arrivals[name] / busy for name in inside if busy}
    return found


def _etp(region: str, situation: Situation, rates: _Rates) -> float:
    """Throughput of the sinks that `region` reaches without a congested operator on the way, of that of all sinks."""
    after: dict[str, list[str]] = {}
    for before, behind in situation.topology.streams:
        after.setdefault(before, []).append(behind)
    sinks = {name for name in rates.processed if name not in after}
    total = sum(rates.processed[name] for name in sinks)
    reached: set[str] = set()
    frontier = [region]
    while frontier:
        name = frontier.pop()
        if name in reached:
            continue
        reached.add(name)
        frontier += [one for one in after.get(name, ()) if one not in rates.congested]
    return sum(rates.processed[name] for name in reached & sinks) / total if total else 0.0


def _held(situation: Situation, rates: _Rates, inputs: dict[str, float | None], *, full: bool) -> Hold:
    if not rates.congested:
        return Hold(reason=Reason.WITHIN_TARGET, why="no operator is congested", inputs=inputs)
    names = ", ".join(rates.congested)
    why = f"{names} congested, and {'there is no slot for another task' if full else 'has one replica only'}"
    needs = situation.slots + 1 if full else None
    return Hold(reason=Reason.AT_LIMIT, why=why, inputs=inputs, binding=rates.congested[0], needs_slots=needs)
