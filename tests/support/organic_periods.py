"""Scripted metrics for the algorithms of organic adaptation: regions are tuples of operators, one thread per pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.organic.adaptation import AdaptationGraph, Period, adapt
from penstock.control.policies.organic.profile import PipelineProfile, RegionProfile
from penstock.control.policies.organic.redistribution import Redistribution
from penstock.control.policies.organic.resolution import Expandable
from penstock.control.policies.organic.splitting import OperatorStep
from penstock.control.policies.organic.state import OrganicState
from penstock.control.region_configuration import RegionConfiguration

KEYED = Expandable(keyed=True, replicable=True)
STATELESS = Expandable(keyed=False, replicable=True)
GLOBAL = Expandable(keyed=False, replicable=False)
STRICT = AdaptationParameters(strict=True)


def pipeline(costs: Mapping[str, float], busy: float = 1.0) -> PipelineProfile:
    """Return a pipeline with these operators, and their costs as shares of its busy time."""
    names = list(costs)
    steps = tuple(OperatorStep(operator=name, cost=cost) for name, cost in costs.items())
    return PipelineProfile(name=names[0], last=names[-1], utilisation=busy, steps=steps)


def region(*pipelines: PipelineProfile, rate: float = 100.0, offered: float | None = None) -> RegionProfile:
    """Return a region that processes `rate` rows/s; all rows that arrive, unless `offered` is given."""
    return RegionProfile(
        region=pipelines[0].name,
        rows_per_s=rate,
        offered_per_s=rate if offered is None else offered,
        completed_per_s=rate,
        pipelines=pipelines,
    )


class Script:
    """A dataflow under adaptation. Each call of `period` passes the metrics of one period."""

    def __init__(
        self,
        kinds: Mapping[str, Expandable],
        *,
        upstream: Mapping[str, Sequence[str]] | None = None,
        parameters: AdaptationParameters = STRICT,
        slots: int = 24,
        cuts: Mapping[str, tuple[str, ...]] | None = None,
        replicas: Mapping[str, int] | None = None,
    ) -> None:
        self.parameters = parameters
        self.kinds, self.slots = kinds, slots
        self.exits, self.followers = frozenset(kinds), dict[str, str]()
        self.redistributed: Redistribution | None = None
        self.upstream = {name: frozenset((upstream or {}).get(name, ())) for name in kinds}
        self.state = OrganicState(
            configurations={
                name: RegionConfiguration(replicas=(replicas or {}).get(name, 1), cuts=(cuts or {}).get(name, ()))
                for name in kinds
            }
        )

    def period(self, *regions: RegionProfile) -> Period:
        network = AdaptationGraph(
            kinds=self.kinds,
            removable={name: frozenset(known.cuts) for name, known in self.state.configurations.items()},
            exits=self.exits,
            followers=self.followers,
            redistributed=lambda: self.redistributed,
            upstream=self.upstream,
            slots=lambda wanted: sum(each.replicas * (1 + len(each.cuts)) for each in wanted.values()),
            max_slots=self.slots,
        )
        result = adapt(self.state, {profile.region: profile for profile in regions}, self.parameters, network)
        self.state = result.state
        return result

    def now(self, name: str) -> tuple[int, tuple[str, ...]]:
        """Return the replicas and the cuts of a region."""
        known = self.state.configurations[name]
        return known.replicas, known.cuts

    def blacklist(self, name: str) -> dict[str, Any]:
        return {pipeline: list(map(str, banned)) for pipeline, banned in self.state.blacklists.get(name, {}).items()}
