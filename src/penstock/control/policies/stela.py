"""Stela: congested operators get more tasks, first the one that contributes most to the output.

Source: Xu, Peng and Gupta, "Stela: Enabling stream processing systems to scale-in and scale-out on-demand", IC2E 2016,
in the loop of Liu et al. (TAAS 12(4), 2017, section 6.1.3):

- An operator is congested if rows arrive at more than 1.2 times the rate at which it processes them. Waiting rows count
  as arrivals: they are to be processed within the time that the rates are measured over.
- Its ETP (effective throughput percentage) is the share of the sinks' throughput that it reaches over paths without a
  congested operator.
- The congested operator with the highest ETP gets one task, the rates are projected downstream, and this repeats up to
  `attempts` times per round (their m: one per worker).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.demand import Demand, DemandPolicy
from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policy import Change, Decision, Hold, Inputs, Policy, Reason, Situation
from penstock.planning.plan_outcome import PlanOutcome


def build(options: PolicyParameters) -> Policy:
    return Stela(attempts=options.workers or (1 if options.executors is None else options.executors[1]))


@dataclass(frozen=True, slots=True)
class Stela(DemandPolicy):
    attempts: int = 1
    congestion: float = 1.2
    name: str = field(default="stela", init=False)

    def decide_for(self, demand: Demand, situation: Situation) -> Decision:
        assert situation.window is not None
        inputs = demand.inputs(situation.window)
        present = {name: load.replicas for name, load in demand.loads.items()}
        counts = dict(present)
        plan, added, is_full = situation.plan, list[str](), False
        for _ in range(self.attempts):
            rates = _Rates.projected(situation, demand, counts, self.congestion)
            etp = {
                name: _etp(name, situation, rates) for name in rates.congested if demand.loads[name].max_replicas != 1
            }
            if not etp:
                break
            # Equal ETP: the most upstream operator; among stages that take turns, the one that takes longest.
            takes = {name: demand.loads[name].work / counts[name] if situation.micro_batch else 0.0 for name in etp}
            target = max(etp, key=lambda name: (etp[name], takes[name]))
            inputs[f"{target}.etp"] = etp[target]
            candidate = situation.topology.rescaled(plan, {target: counts[target] + 1})
            if situation.topology.slots(candidate, micro_batch=situation.micro_batch) > situation.max_slots:
                is_full = True
                break
            counts[target] += 1
            plan = candidate
            added.append(target)
        if not added:
            return _hold(situation, rates, inputs, is_full=is_full)
        before = _Rates.projected(situation, demand, present, 1.0)
        after = _Rates.projected(situation, demand, counts, 1.0)
        changed = ", ".join(f"'{name}' {present[name]} -> {counts[name]} replicas" for name in Counter(added))
        return Change(
            plan=plan,
            reason_code=Reason.CONGESTION,
            reason=f"More rows arrive than are processed: {changed}, first where most output is affected.",
            staying=PlanOutcome(slots=situation.slots, rows_per_s=before.processed_per_s),
            expected=PlanOutcome(
                slots=situation.topology.slots(plan, micro_batch=situation.micro_batch),
                rows_per_s=after.processed_per_s,
            ),
            inputs=inputs,
            binding=added[0],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Projected rates under given replica counts: an operator passes on what it can process of its input."""

    processed: Mapping[str, float]  # by region
    congested: tuple[str, ...]
    processed_per_s: float  # external rows/s

    @staticmethod
    def projected(situation: Situation, demand: Demand, counts: Mapping[str, int], congestion: float) -> _Rates:
        inputs_of: dict[str, list[str]] = {}
        for before, after in situation.topology.streams:
            inputs_of.setdefault(after, []).append(before)
        processed: dict[str, float] = {}
        congested: list[str] = []
        processed_per_s = demand.external_per_s
        capacity = _capacity_per_s(situation, demand, counts)
        measured, waiting = _measured_arrivals(situation), _waiting_per_s(situation)
        for name, unhindered in demand.arrivals.items():
            arriving = 0.0
            for before in inputs_of[name]:
                if before in demand.entering:
                    arriving += demand.entering[before]
                else:
                    # The feedback of a loop is not projected yet; use its unhindered rate.
                    arriving += processed.get(before, demand.arrivals[before]) * demand.gains[before, name]
            # More rows arrive than enter the dataflow if an upstream operator processes a backlog.
            arriving = max(arriving, measured.get(name, 0.0))
            if counts.get(name) == situation.plan.replicas.get(name):  # after a change the next round shows what waits
                arriving += waiting.get(name, 0.0)
            processed[name] = min(arriving, capacity.get(name, arriving))
            if arriving > congestion * processed[name]:
                congested.append(name)
            if unhindered:
                processed_per_s = min(processed_per_s, demand.external_per_s * processed[name] / unhindered)
        return _Rates(processed=processed, congested=tuple(congested), processed_per_s=processed_per_s)


def _measured_arrivals(situation: Situation) -> dict[str, float]:
    """Return the measured rows/s that enter each region; 0 if unknown."""
    assert situation.window is not None
    return {operator.operator: operator.input_rows_per_s or 0.0 for operator in situation.window.operators}


def _waiting_per_s(situation: Situation) -> dict[str, float]:
    """Return the rows that wait in front of each region, divided by the time that rates are measured over.

    Rows that wait in a source count for the region that reads it.
    """
    assert situation.window is not None and situation.latest is not None
    span_s = max(situation.window.end_s - situation.window.start_s, 1e-3)
    backlog = {operator.operator: operator.backlog_rows for operator in situation.latest.operators}
    waiting: dict[str, float] = {}
    for before, name in situation.topology.streams:
        own = backlog.get(name)
        if own is not None:
            waiting[name] = own / span_s
        elif before in situation.topology.sources:
            waiting[name] = waiting.get(name, 0.0) + (backlog.get(before) or 0) / span_s
    return waiting


def _capacity_per_s(situation: Situation, demand: Demand, counts: Mapping[str, int]) -> dict[str, float]:
    """Return the rows/s that each region can process. The stages of a query take turns and share the time."""
    alone = {name: counts[name] / load.row_s for name, load in demand.loads.items()}
    if not situation.micro_batch:
        return alone
    shared: dict[str, float] = {}
    for query in situation.topology.queries(situation.plan.cuts):
        stages = [name for name in query if name in alone]
        busy = sum(demand.arrivals[name] / alone[name] for name in stages)  # share of the time that the input takes
        shared |= {name: demand.arrivals[name] / busy for name in stages if busy}
    return shared


def _etp(region: str, situation: Situation, rates: _Rates) -> float:
    """Return the share of the sinks' throughput that a region reaches without passing a congested operator."""
    consumers: dict[str, list[str]] = {}
    for before, after in situation.topology.streams:
        consumers.setdefault(before, []).append(after)
    sinks = {name for name in rates.processed if name not in consumers}
    total = sum(rates.processed[name] for name in sinks)
    reached: set[str] = set()
    frontier = [region]
    while frontier:
        name = frontier.pop()
        if name in reached:
            continue
        reached.add(name)
        frontier += [consumer for consumer in consumers.get(name, ()) if consumer not in rates.congested]
    return sum(rates.processed[name] for name in reached & sinks) / total if total else 0.0


def _hold(situation: Situation, rates: _Rates, inputs: Inputs, *, is_full: bool) -> Hold:
    if not rates.congested:
        reason = "Every operator processes its input; none is congested."
        return Hold(reason_code=Reason.WITHIN_TARGET, reason=reason, inputs=inputs)
    names = ", ".join(f"'{name}'" for name in rates.congested)
    cause = (
        f"no slot is left for another task ({situation.max_slots} allowed)" if is_full else "only one task is possible"
    )
    return Hold(
        reason_code=Reason.AT_LIMIT,
        reason=f"More rows arrive at {names} than are processed, but {cause}.",
        inputs=inputs,
        binding=rates.congested[0],
        needs_slots=situation.slots + 1 if is_full else None,
    )
