"""The topology of a dataflow: its regions, the streams between them, and the regions that share a query."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind, Operator
from penstock.dataflow.regions import Region, regions
from penstock.plan.cuts import forbidden_cuts, required_cuts
from penstock.plan.plan import Plan
from penstock.plan.succession import with_permanent_cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Derived once per run. A region has the name of its first operator, as in plans."""

    flow: Dataflow
    sources: tuple[str, ...]
    regions: tuple[Region, ...]  # without sources, upstream first
    operators: dict[str, Operator]
    streams: tuple[tuple[str, str], ...]  # (source or region, downstream region)
    required_cuts: frozenset[str]  # cuts that every plan has; other ones depend on the replicas
    forbidden_cuts: frozenset[str]  # cuts that no plan has
    _shares_queries: bool  # whether operators with state may share a query, so that replicas may require more cuts
    _cuts: dict[tuple[tuple[str, int], ...], frozenset[str]] = field(default_factory=dict, compare=False)
    _queries: dict[frozenset[str], tuple[tuple[str, ...], ...]] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(flow: Dataflow) -> Topology:
        operators = {operator.name: operator for operator in flow.operators}
        all_regions = regions(flow)
        region_of = {name: region.name for region in all_regions for name in region.operators}
        inner = tuple(region for region in all_regions if region.kind is not Kind.SOURCE)
        required = frozenset(required_cuts(flow, {}))
        return Topology(
            flow=flow,
            sources=tuple(region.name for region in all_regions if region.kind is Kind.SOURCE),
            regions=inner,
            operators=operators,
            streams=tuple((region_of[name], region.name) for region in inner for name in operators[region.name].inputs),
            required_cuts=required,
            forbidden_cuts=frozenset(forbidden_cuts(flow)),
            _shares_queries=frozenset(required_cuts(flow, {}, share_queries=False)) != required,
        )

    def last_operator(self, region: str) -> str:
        """Return the operator whose output leaves the region."""
        return next((known.operators[-1] for known in self.regions if known.name == region), region)

    def queries(self, cuts: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        """Return the regions of each query, upstream first. Regions without a cut between them share a query.

        A region that is cut inside counts as one query, because its parts have the same number of replicas.
        """
        if cuts not in self._queries:
            self._queries[cuts] = self._group(cuts)
        return self._queries[cuts]

    def _group(self, cuts: frozenset[str]) -> tuple[tuple[str, ...], ...]:
        last = {region.name: region.operators[-1] for region in self.regions}
        group = {region.name: {region.name} for region in self.regions}
        for before, after in self.streams:
            if before in group and last[before] not in cuts and group[before] is not group[after]:
                group[before] |= group[after]
                for name in group[after]:
                    group[name] = group[before]
        order = [region.name for region in self.regions]
        queries: dict[int, tuple[str, ...]] = {}
        for name in order:
            queries.setdefault(id(group[name]), tuple(member for member in order if member in group[name]))
        return tuple(queries.values())

    def slots(self, plan: Plan, *, micro_batch: bool) -> int:
        """Return the tasks that run concurrently: all replicas, or those of the widest stage of each query."""
        if not micro_batch:
            return sum(plan.replicas.values())
        return sum(max(plan.replicas[name] for name in query) for query in self.queries(plan.cuts))

    def rescaled(self, plan: Plan, replicas: dict[str, int], cuts: frozenset[str] = frozenset()) -> Plan:
        """Return the plan with other replica counts by region, and with additional cuts."""
        counts = plan.replicas | replicas
        if counts == plan.replicas and cuts <= plan.cuts:
            return plan
        return plan.replace(replicas=counts, cuts=(plan.cuts | cuts | self.cuts_for(counts)) - self.forbidden_cuts)

    def cuts_for(self, replicas: dict[str, int]) -> frozenset[str]:
        """Return the cuts that these replica counts require."""
        if not self._shares_queries:
            return self.required_cuts
        key = tuple(replicas.items())
        if key not in self._cuts:
            self._cuts[key] = frozenset(required_cuts(self.flow, replicas))
        return self._cuts[key]

    def successor(self, plan: Plan, wanted: Plan) -> Plan:
        """Return the wanted plan, with the cuts of the current plan if a run cannot remove them."""
        return with_permanent_cuts(self.flow, plan, wanted) if self._shares_queries else wanted

    def removable_cuts(self, plan: Plan) -> frozenset[str]:
        """Return the cuts of a plan that a run can remove, each of them alone."""
        optional = plan.cuts - self.cuts_for(plan.replicas)
        without = {cut: plan.replace(cuts=plan.cuts - {cut}) for cut in optional}
        return frozenset(cut for cut in optional if self.successor(plan, without[cut]) == without[cut])
