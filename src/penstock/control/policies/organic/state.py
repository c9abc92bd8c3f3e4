"""The state of an adaptation between two periods: metrics, blacklists and changes in progress.

A policy is a pure function, so its state is a value in its memory. The store keeps it, and blacklists survive a
restart.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.control.policies.organic.profile import RegionProfile
from penstock.control.policy import Memory
from penstock.control.region_configuration import RegionConfiguration, RegionConfigurations

_STATE, _BEFORE = "organic.state", "organic.before"


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of a region with which later metrics are compared to detect a change of the load."""

    rows_per_s: float
    utilisation: dict[str, float]  # by pipeline
    offered_per_s: float | None = None  # None in the state of an earlier version


class AdaptingRegion(msgspec.Struct, frozen=True, kw_only=True):
    """A region whose configuration was changed in this adaptation, and not evaluated yet."""

    region: str
    base: RegionConfiguration  # before the adaptation
    by_pipeline: dict[str, RegionConfiguration]  # bottleneck pipeline -> configuration to blacklist if it does not help
    profile: RegionProfile  # before the adaptation
    kind: Literal["resolution", "release", "redistribution"] = "resolution"


class OrganicState(msgspec.Struct, frozen=True, kw_only=True):
    configurations: dict[str, RegionConfiguration] = {}  # in force once the last decision was applied
    references: dict[str, Reference] = {}  # by region
    blacklists: dict[str, dict[str, tuple[RegionConfiguration, ...]]] = {}  # region -> pipeline -> configurations
    adapting: tuple[AdaptingRegion, ...] = ()  # upstream first
    failed: tuple[dict[str, RegionConfiguration], ...] = ()  # complete plans, by region, that did not help
    failed_distributions: tuple[dict[str, RegionConfiguration], ...] = ()  # attempts to distribute the slots anew
    stable_periods: int = 0  # consecutive periods without a change
    low_periods: dict[str, int] = {}  # region -> consecutive periods in which fewer resources would suffice
    period_end_s: float | None = None

    def blacklisting(self, region: AdaptingRegion) -> OrganicState:
        """Return the state with the change of a region on the blacklists of its pipelines."""
        known = self.blacklists.get(region.region, {})
        added = {
            name: (*known.get(name, ()), change)
            for name, change in region.by_pipeline.items()
            if change not in known.get(name, ())
        }
        return msgspec.structs.replace(self, blacklists=self.blacklists | {region.region: known | added})

    def failing(self) -> OrganicState:
        """Return the state with its configurations among the plans that did not help."""
        plan = dict(self.configurations)
        distributions = self.failed_distributions
        if self.adapting[0].kind == "redistribution":
            distributions = (*distributions, plan)
        return msgspec.structs.replace(self, failed=(*self.failed, plan), failed_distributions=distributions)

    def without_failures(self) -> OrganicState:
        """Return the state in which each plan may be tried again, except changes on the blacklists of regions."""
        return msgspec.structs.replace(self, failed=(), failed_distributions=())

    def clearing(self, region: str, pipelines: set[str]) -> OrganicState:
        """Return the state with empty blacklists of these pipelines."""
        left = {name: banned for name, banned in self.blacklists.get(region, {}).items() if name not in pipelines}
        return msgspec.structs.replace(self, blacklists=self.blacklists | {region: left})


def remembered(memory: Memory, configurations: RegionConfigurations) -> OrganicState:
    """Return the state that belongs to the plan in force.

    The last decision may have been vetoed, or recommended only. The state before it continues then. If the plan is
    neither, somebody else has changed it: the adaptation in progress ends, and the blacklists stay.
    """
    state = _decoded(memory.get(_STATE))
    if state is None:
        return OrganicState(configurations=dict(configurations))
    for known in (state, _decoded(memory.get(_BEFORE))):
        if known is not None and known.configurations == configurations:
            return known
    return msgspec.structs.replace(
        state,
        configurations=dict(configurations),
        adapting=(),
        stable_periods=0,
        low_periods={},
        period_end_s=None,
    )


def remembering(memory: Memory, before: OrganicState, after: OrganicState) -> Memory:
    """Return the memory with the state after a decision, and with the state to return to if it is not applied."""
    return {**memory, _STATE: _encoded(after), _BEFORE: _encoded(before)}


def _encoded(state: OrganicState) -> str:
    return msgspec.json.encode(state).decode()


def _decoded(text: object) -> OrganicState | None:
    """Return None if there is no state, or one of another version."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=OrganicState)
    except msgspec.ValidationError:
        return None
