"""The policy: turns a situation into the values of an adaptation period, and its result into a decision."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock.control.demand import Demand, demand_of
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.organic.adaptation import Action, AdaptationGraph, Period, adapt
from penstock.control.policies.organic.moved_state import moved_state
from penstock.control.policies.organic.profile import Profiles, profiles_of, unknown_utilisations
from penstock.control.policies.organic.redistribution import redistribution
from penstock.control.policies.organic.resolution import Expandable
from penstock.control.policies.organic.state import remembered, remembering
from penstock.control.policy import Change, Decision, Hold, Inputs, Memory, Reason, Situation, Verdict
from penstock.control.region_configuration import configurations_of, owned_cuts, plan_with
from penstock.control.topology import Topology
from penstock.dataflow.operators import Kind
from penstock.plan.plan import Plan, diff
from penstock.planning.plan_outcome import PlanOutcome

_CLOCK_S = 1e-6


@dataclass(frozen=True, slots=True)
class Organic:
    """Organic adaptation: cuts and replicas are changed together, evaluated by throughput, and reverted if useless."""

    parameters: AdaptationParameters = field(default_factory=AdaptationParameters)
    name: str = field(default="organic", init=False)
    evaluates_changes: bool = field(default=True, init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        if isinstance(demand, Hold):
            return demand, memory
        assert situation.window is not None
        unknown = unknown_utilisations(situation, demand)
        if unknown:
            names = ", ".join(f"'{name}'" for name in unknown)
            return Hold(reason_code=Reason.MISSING, reason=f"The utilisation of {names} is not known yet."), memory
        configurations = configurations_of(situation.topology, situation.plan, micro_batch=situation.micro_batch)
        before = remembered(memory, configurations)
        end_s = situation.window.end_s
        if before.period_end_s is not None and end_s < before.period_end_s + self.parameters.period_s - _CLOCK_S:
            reason = (
                f"A period takes {self.parameters.period_s:g} s; {max(0.0, end_s - before.period_end_s):.0f} s of "
                "the current one have passed."
            )
            return Hold(reason_code=Reason.SETTLING, reason=reason), memory
        profiles = profiles_of(situation, demand)
        network = _network(situation, demand, self.parameters)
        period = adapt(before, profiles, self.parameters, network)
        plan = plan_with(
            situation.topology, situation.plan, period.state.configurations, micro_batch=situation.micro_batch
        )
        # Regions share the cut between them on Spark, so the change of one may change the configuration of another.
        changed = configurations_of(situation.topology, plan, micro_batch=situation.micro_batch)
        after = msgspec.structs.replace(period.state, configurations=changed, period_end_s=end_s)
        decision = self._decision(situation, plan, period, profiles, network)
        return decision, remembering(memory, before, after)

    def _decision(
        self,
        situation: Situation,
        plan: Plan,
        period: Period,
        profiles: Profiles,
        network: AdaptationGraph,
    ) -> Decision:
        inputs = _inputs(situation, profiles)
        if period.action in (Action.FINALISE, Action.NOTHING, Action.STABLE) or plan == situation.plan:
            return self._hold(situation, period, inputs, network)
        moved = moved_state(situation, situation.plan, plan)
        inputs |= {"moved_state_rows": moved.rows, "moved_state_bytes": moved.bytes}
        slots = situation.topology.slots(plan, micro_batch=situation.micro_batch)
        busiest = max(period.regions, key=lambda name: profiles[name].utilisation)
        reason_code, reason, verdict = self._reason(period, profiles, situation.plan, plan)
        return Change(
            plan=plan,
            reason_code=reason_code,
            reason=f"{reason} The change moves {moved}.",
            staying=PlanOutcome(slots=situation.slots),
            expected=PlanOutcome(slots=slots),
            inputs=inputs,
            binding=busiest,
            verdict=verdict,
        )

    def _reason(self, period: Period, profiles: Profiles, old: Plan, new: Plan) -> tuple[Reason, str, Verdict | None]:
        changed = str(diff(old, new))
        if period.action is Action.ADAPT:
            busy = ", ".join(f"'{name}' {profiles[name].utilisation:.0%}" for name in period.regions)
            return Reason.CONGESTION, f"Bottlenecks ({busy} busy) are resolved together: {changed}.", None
        if period.action is Action.RELEASE:
            busy = ", ".join(f"'{name}' {profiles[name].utilisation:.0%}" for name in period.regions)
            return Reason.RELEASE, f"Regions stay under-utilised ({busy} busy): {changed}.", None
        if period.action is Action.REDISTRIBUTE:
            return (
                Reason.REALLOCATION,
                f"Bottlenecks are limited by the slots, which are distributed anew: {changed}.",
                None,
            )
        assert period.failed is not None
        rate = f"'{period.failed}' processed {profiles[period.failed].rows_per_s:.4g} rows/s after the last change"
        if period.action is Action.RETRY:
            return Reason.CONGESTION, f"{rate}, which is too little; another change is tried: {changed}.", "rolled back"
        return Reason.ROLL_BACK, f"{rate}, which is too little, and no other change is left: {changed}.", "rolled back"

    def _hold(self, situation: Situation, period: Period, inputs: Inputs, network: AdaptationGraph) -> Hold:
        if period.action is Action.FINALISE:
            names = ", ".join(f"'{name}'" for name in period.regions)
            reason = f"The last change of {names} is kept."
            return Hold(reason_code=Reason.ADAPTED, reason=reason, inputs=inputs, verdict="kept")
        if period.action is Action.STABLE:
            reason = (
                f"No change was made in {self.parameters.stable_periods} periods; adaptation continues when the load "
                "changes."
            )
            return Hold(reason_code=Reason.BEST, reason=reason, inputs=inputs)
        if not period.bottlenecks:
            reason = f"No pipeline is {self.parameters.bottleneck:.0%} busy."
            return Hold(reason_code=Reason.WITHIN_TARGET, reason=reason, inputs=inputs)
        names = ", ".join(f"'{name}'" for name in period.bottlenecks)
        binding = next(iter(period.bottlenecks))
        beyond = {
            name: resolution.beyond_slots
            for name, resolution in period.bottlenecks.items()
            if resolution.beyond_slots is not None
        }
        if beyond:
            needed = network.slots(period.state.configurations | beyond)
            reason = (
                f"Bottlenecks ({names}) cannot get more pipelines or replicas within {situation.max_slots} slots; "
                f"{needed} would be needed."
            )
            return Hold(reason_code=Reason.AT_LIMIT, reason=reason, inputs=inputs, binding=binding, needs_slots=needed)
        reason = f"Every change that could resolve the bottlenecks ({names}) is impossible, too small or blacklisted."
        return Hold(reason_code=Reason.BEST, reason=reason, inputs=inputs, binding=binding)


def _network(situation: Situation, demand: Demand, parameters: AdaptationParameters) -> AdaptationGraph:
    topology, plan, micro_batch = situation.topology, situation.plan, situation.micro_batch
    removable_cuts = topology.removable_cuts(plan)
    producers = {before for before, _ in topology.streams}
    return AdaptationGraph(
        kinds={
            region.name: Expandable(keyed=region.kind is Kind.KEYED, replicable=region.replicable)
            for region in topology.regions
        },
        removable={
            region.name: frozenset(owned_cuts(topology, region, micro_batch=micro_batch)) & removable_cuts
            for region in topology.regions
        },
        exits=frozenset(region.name for region in topology.regions if region.name not in producers),
        followers=_followers(topology) if micro_batch else {},
        upstream=_upstream(topology, plan.cuts if micro_batch else frozenset()),
        slots=lambda wanted: topology.slots(
            plan_with(topology, plan, wanted, micro_batch=micro_batch), micro_batch=micro_batch
        ),
        max_slots=situation.max_slots,
        redistributed=lambda: redistribution(situation, demand, parameters),
    )


def _followers(topology: Topology) -> dict[str, str]:
    """Return the region that alone reads the output of each region, and reads nothing else."""
    inputs: dict[str, list[str]] = {}
    outputs: dict[str, list[str]] = {}
    for before, after in topology.streams:
        inputs.setdefault(after, []).append(before)
        outputs.setdefault(before, []).append(after)
    return {before: only[0] for before, only in outputs.items() if len(only) == 1 and inputs[only[0]] == [before]}


def _upstream(topology: Topology, logs: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return all regions before each region whose throughput represents it, because its queue limits them.

    A region behind one of the `logs`, which have no limit, must be evaluated itself. In a loop, regions are before each
    other.
    """
    direct: dict[str, set[str]] = {region.name: set() for region in topology.regions}
    for before, after in topology.streams:
        if before in direct and topology.last_operator(before) not in logs:
            direct[after].add(before)
    result: dict[str, frozenset[str]] = {}
    for name in direct:
        seen: set[str] = set()
        frontier = list(direct[name])
        while frontier:
            other = frontier.pop()
            if other not in seen:
                seen.add(other)
                frontier += direct[other]
        result[name] = frozenset(seen - {name})
    return result


def _inputs(situation: Situation, profiles: Profiles) -> Inputs:
    assert situation.window is not None
    inputs: Inputs = {"external_rows_per_s": situation.window.external_rows_per_s}
    for name, profile in profiles.items():
        inputs[f"{name}.rows_per_s"] = profile.rows_per_s
        for pipeline in profile.pipelines:
            inputs[f"{pipeline.name}.utilisation"] = pipeline.utilisation
    return inputs
