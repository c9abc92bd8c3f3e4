"""The topology of a dataflow: its regions, the streams between them, and the regions that share a query."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind, Operator
from penstock.dataflow.regions import Region, regions
from penstock.plan.cuts import forbidden_cuts, required_cuts
from penstock.plan.pipelines import pipelines
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
    _stages: dict[frozenset[str], tuple[tuple[str, ...], ...]] = field(default_factory=dict, compare=False)

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

        A region that is cut inside is in one of them only, because its parts have the same number of replicas.
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
        """Return the tasks that run concurrently.

        Row by row, each part of a region between two cuts has its own replicas. In micro-batches, a query runs the
        tasks of its widest stage at the same time.
        """
        if not micro_batch:
            return sum(
                plan.replicas[region.name] * (1 + sum(name in plan.cuts for name in region.operators[:-1]))
                for region in self.regions
            )
        return sum(max(plan.replicas[name] for name in stages) for stages in self._stages_of(plan))

    def _stages_of(self, plan: Plan) -> tuple[tuple[str, ...], ...]:
        """Return the regions with operators in each query. A region with a cut inside is in several queries."""
        if plan.cuts not in self._stages:
            region_of = {name: region.name for region in self.regions for name in region.operators}
            stages = [
                tuple(dict.fromkeys(region_of[name] for name in query.operators if name in region_of))
                for query in pipelines(self.flow, plan)
            ]
            self._stages[plan.cuts] = tuple(regions for regions in stages if regions)  # a cut source has no tasks
        return self._stages[plan.cuts]

    def rescaled(self, plan: Plan, replicas: dict[str, int], cuts: frozenset[str] = frozenset()) -> Plan:
        """Return the plan with other replica counts by region, and with additional cuts."""
        counts = plan.replicas | replicas
        if counts == plan.replicas and cuts <= plan.cuts:
            return plan
        cuts = (plan.cuts | cuts | self.cuts_for(counts)) - self.forbidden_cuts
        return self._with_fitting_bundles(plan.replace(replicas=counts, cuts=cuts))

    def _with_fitting_bundles(self, plan: Plan) -> Plan:
        """Return the plan without lists of threads and rates that are for another number of replicas."""
        lists = {name: own for name, own in plan.threads.items() if isinstance(own, tuple)} | plan.rates
        if not lists:
            return plan
        replicas = {name: plan.replicas[region.name] for region in self.regions for name in region.operators}
        return plan.with_equal_replicas(name for name, own in lists.items() if len(own) != replicas[name])

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
        wanted = self._with_fitting_bundles(wanted)
        return with_permanent_cuts(self.flow, plan, wanted) if self._shares_queries else wanted

    def removable_cuts(self, plan: Plan) -> frozenset[str]:
        """Return the cuts of a plan that a run can remove, each of them alone."""
        optional = plan.cuts - self.cuts_for(plan.replicas)
        without = {cut: plan.replace(cuts=plan.cuts - {cut}) for cut in optional}
        return frozenset(cut for cut in optional if self.successor(plan, without[cut]) == without[cut])
