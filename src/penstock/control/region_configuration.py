"""The parallelism of one region: its replicas and its cuts. A plan contains one configuration per region."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.control.topology import Topology
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import Region
from penstock.plan.plan import Plan


class RegionConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int
    cuts: tuple[str, ...] = ()  # operators whose output is cut, in the order of `owned_cuts`

    def with_cuts(self, cuts: tuple[str, ...]) -> RegionConfiguration:
        """Return the configuration with additional cuts.

        >>> str(RegionConfiguration(replicas=2, cuts=("b",)).with_cuts(("a",)))
        '2 replicas, cut after a, b'
        """
        return RegionConfiguration(replicas=self.replicas, cuts=tuple(sorted({*self.cuts, *cuts})))

    def without_cut(self, cut: str) -> RegionConfiguration:
        return RegionConfiguration(replicas=self.replicas, cuts=tuple(name for name in self.cuts if name != cut))

    def with_replicas(self, replicas: int) -> RegionConfiguration:
        return RegionConfiguration(replicas=replicas, cuts=self.cuts)

    def __str__(self) -> str:
        cuts = f", cut after {', '.join(self.cuts)}" if self.cuts else ""
        return f"{self.replicas} replica{'' if self.replicas == 1 else 's'}{cuts}"


RegionConfigurations = Mapping[str, RegionConfiguration]  # by region


def owned_cuts(topology: Topology, region: Region, *, micro_batch: bool) -> tuple[str, ...]:
    """Return the operators after which a change of this region may add or remove a cut.

    Row by row, regions run on different threads with or without a cut between them, so only cuts inside a region
    matter. In micro-batches, regions without a cut between them take turns in one query, so the cuts at both ends of a
    region count as well.
    """
    inside = region.operators[:-1]
    if not micro_batch:
        return inside
    operators = topology.operators
    before = tuple(name for name in operators[region.name].inputs if operators[name].kind is not Kind.SOURCE)
    last = region.operators[-1]
    after = () if operators[last].kind is Kind.SINK else (last,)
    return tuple(dict.fromkeys((*before, *inside, *after)))


def configurations_of(topology: Topology, plan: Plan, *, micro_batch: bool) -> dict[str, RegionConfiguration]:
    """Return the configuration of each region under a plan."""
    return {
        region.name: RegionConfiguration(
            replicas=plan.replicas[region.name],
            cuts=tuple(
                sorted(name for name in owned_cuts(topology, region, micro_batch=micro_batch) if name in plan.cuts)
            ),
        )
        for region in topology.regions
    }


def plan_with(topology: Topology, plan: Plan, wanted: RegionConfigurations, *, micro_batch: bool) -> Plan:
    """Return the plan with these configurations; cuts that two regions share are present if either adds them."""
    current = configurations_of(topology, plan, micro_batch=micro_batch)
    removed = {cut for name, new in wanted.items() for cut in current[name].cuts if cut not in new.cuts}
    added = {cut for name, new in wanted.items() for cut in new.cuts if cut not in current[name].cuts}
    replicas = plan.replicas | {name: new.replicas for name, new in wanted.items()}
    cuts = ((plan.cuts - removed) | added | topology.cuts_for(replicas)) - topology.forbidden_cuts
    return topology.successor(plan, plan.replace(cuts=frozenset(cuts), replicas=replicas))
