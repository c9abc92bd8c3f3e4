"""The shape of a dataflow, worked out once a run: its regions, how they feed each other, what shares a query."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind, Operator
from penstock.dataflow.regions import Region, regions
from penstock.plan.cuts import required_cuts
from penstock.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Regions are called by their first operator, as in plans."""

    flow: Dataflow
    sources: tuple[str, ...]
    regions: tuple[Region, ...]  # without sources, upstream first
    operators: dict[str, Operator]
    streams: tuple[tuple[str, str], ...]  # (source or region, region behind it)
    needed: frozenset[str]  # cuts that no plan does without
    _queries: dict[frozenset[str], tuple[tuple[str, ...], ...]] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(flow: Dataflow) -> Shape:
        operators = {one.name: one for one in flow.operators}
        found = regions(flow)
        home = {name: region.name for region in found for name in region.operators}
        behind = tuple(region for region in found if region.kind is not Kind.SOURCE)
        return Shape(
            flow=flow,
            sources=tuple(region.name for region in found if region.kind is Kind.SOURCE),
            regions=behind,
            operators=operators,
            streams=tuple((home[name], region.name) for region in behind for name in operators[region.name].inputs),
            needed=frozenset(required_cuts(flow, {})),  # replicas decide on the reason, not on the cut
        )

    def exit(self, region: str) -> str:
        """Its last operator: whose output the next regions read."""
        return next((one.operators[-1] for one in self.regions if one.name == region), region)

    def queries(self, cuts: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        """Regions that run in one query, upstream first: those with no cut between them.

        A region that is cut inside counts as one query nevertheless: its parts have one count of replicas.
        """
        if cuts not in self._queries:
            self._queries[cuts] = self._worked_out(cuts)
        return self._queries[cuts]

    def _worked_out(self, cuts: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        exits = {one.name: one.operators[-1] for one in self.regions}
        group = {one.name: {one.name} for one in self.regions}
        for before, after in self.streams:
            if before in group and exits[before] not in cuts and group[before] is not group[after]:
                group[before] |= group[after]
                for name in group[after]:
                    group[name] = group[before]
        order = [one.name for one in self.regions]
        seen: dict[int, tuple[str, ...]] = {}
        for name in order:
            seen.setdefault(id(group[name]), tuple(one for one in order if one in group[name]))
        return tuple(seen.values())

    def slots(self, plan: Plan, *, micro_batch: bool) -> int:
        """Tasks that run at once under the plan: all replicas, or those of the widest stage of each query."""
        if not micro_batch:
            return sum(plan.replicas.values())
        return sum(max(plan.replicas[name] for name in query) for query in self.queries(plan.cuts))

    def rescaled(self, plan: Plan, replicas: dict[str, int], cuts: frozenset[str] = frozenset()) -> Plan:
        """The plan with other replicas by region, and more cuts."""
        counts = plan.replicas | replicas
        if counts == plan.replicas and cuts <= plan.cuts:
            return plan
        return plan.replace(replicas=counts, cuts=plan.cuts | cuts | self.needed)
