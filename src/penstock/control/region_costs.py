"""Measured costs and selectivities of regions as input of the model of pipelined fission."""

from __future__ import annotations

from penstock.control.demand import Demand
from penstock.control.policy import Situation
from penstock.dataflow.regions import Region
from penstock.models.pipelined_fission import FissionRegion


def fission_regions(situation: Situation, demand: Demand) -> list[FissionRegion]:
    """Return the regions with measured costs and selectivities, upstream first."""
    assert situation.window is not None
    seen = {operator.operator: operator for operator in situation.window.operators}
    topology = situation.topology
    result = []
    for region in topology.regions:
        rows, costs = [], []
        reaching = demand.arrivals.get(region.name, 0.0) / demand.external_per_s
        for name in region.operators:
            operator = seen.get(name)
            rows.append(reaching)
            costs.append((operator.seconds_per_row if operator is not None else None) or 0.0)
            selectivity = operator.selectivity if operator is not None else None
            reaching *= 1.0 if selectivity is None else selectivity
        result.append(
            FissionRegion(
                name=region.name,
                operators=region.operators,
                rows=tuple(rows),
                seconds_per_row=tuple(costs),
                required_cuts=_positions(region, topology.required_cuts),
                allowed_cuts=_positions(region, frozenset(region.operators) - topology.forbidden_cuts),
                max_replicas=None if region.replicable else 1,
            )
        )
    return result


def _positions(region: Region, cuts: frozenset[str]) -> frozenset[int]:
    return frozenset(i + 1 for i, name in enumerate(region.operators[:-1]) if name in cuts)
