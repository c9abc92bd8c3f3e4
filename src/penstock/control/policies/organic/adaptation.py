"""One period of organic adaptation (algorithms 1, 5, 6 and 7).

`adapt` is the procedure Adapt of the paper as a function of values. Without a change in progress it resolves all
bottleneck regions together. Otherwise it evaluates the change: it is finalised, or reverted, blacklisted and replaced
by another one. If no other change is left, the whole period is reverted.

Two points that the print leaves open:

- Algorithm 7 updates the metrics only if the load has changed. Here these metrics are the reference for the next change
  of the load, and bottlenecks are found by the metrics of the current period.
- A reverted region is resolved again by the metrics from before the adaptation, because they describe the configuration
  that it returns to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.organic.profile import Profiles, RegionProfile
from penstock.control.policies.organic.redistribution import Redistribution
from penstock.control.policies.organic.release import Removable, release
from penstock.control.policies.organic.resolution import Expandable, Resolution, resolve
from penstock.control.policies.organic.state import AdaptingRegion, OrganicState, Reference
from penstock.control.region_configuration import RegionConfiguration, RegionConfigurations

_BACKLOG_NOISE = 0.02  # relative difference between arriving and processed rows that is noise
_IDLE = 0.1  # utilisation below which the load of a region varies without a consequence


class Action(StrEnum):
    ADAPT = "adapt"  # bottlenecks are resolved
    RELEASE = "release"  # pipelines are merged or shrunk
    REDISTRIBUTE = "redistribute"  # the slots are distributed anew
    FINALISE = "finalise"  # the last change is kept
    RETRY = "retry"  # a region is reverted and changed in another way
    REVERT = "revert"  # the whole period is reverted
    NOTHING = "nothing"  # no bottleneck, or no change that resolves it
    STABLE = "stable"  # adaptation has stopped until the load changes


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationGraph:
    """The properties of a dataflow that adaptation depends on."""

    kinds: Mapping[str, Expandable]  # region -> kind, upstream first
    removable: Mapping[str, Removable]  # by region: cuts that may be removed
    exits: frozenset[str]  # regions with sinks
    followers: Mapping[str, str]  # region -> the region whose pipeline it can be merged with
    upstream: Mapping[str, frozenset[str]]  # region -> all regions before it
    slots: Callable[[RegionConfigurations], int]  # slots that all regions use together
    max_slots: int
    redistributed: Callable[[], Redistribution | None]  # a faster plan for the same slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The result of one period."""

    action: Action
    state: OrganicState
    regions: tuple[str, ...] = ()  # changed, kept or reverted
    failed: str | None = None  # the region whose throughput did not increase enough
    bottlenecks: Mapping[str, Resolution] | None = None  # bottleneck regions without a change
    load_changed: tuple[str, ...] = ()  # regions


def adapt(
    state: OrganicState, profiles: Profiles, parameters: AdaptationParameters, network: AdaptationGraph
) -> Period:
    """Adapt once (algorithm 1)."""
    if state.adapting:
        return _evaluate(state, profiles, parameters, network)
    state, changed = _update_metrics(state, profiles, parameters)
    if changed:
        state = msgspec.structs.replace(state.without_failures(), stable_periods=0)
    if state.stable_periods >= parameters.stable_periods:
        return Period(action=Action.STABLE, state=state)
    return _resolve_all(state, profiles, parameters, network, changed)


def _resolve_all(
    state: OrganicState,
    profiles: Profiles,
    parameters: AdaptationParameters,
    network: AdaptationGraph,
    load_changed: tuple[str, ...],
) -> Period:
    configurations = dict(state.configurations)
    adapting: list[AdaptingRegion] = []
    unresolved: dict[str, Resolution] = {}
    for name, profile in profiles.items():
        resolution = _resolution(name, profile, configurations, state, parameters, network)
        if resolution is None:
            continue
        if resolution.candidate is None:
            unresolved[name] = resolution
            continue
        adapting.append(
            AdaptingRegion(
                region=name,
                base=configurations[name],
                by_pipeline=resolution.candidate.by_pipeline,
                profile=profile,
            )
        )
        configurations[name] = resolution.candidate.configuration
    action = Action.ADAPT
    low_periods: dict[str, int] = {}
    if any(resolution.beyond_slots is not None for resolution in unresolved.values()):
        # The slots that are left would resolve some of the bottlenecks, and the others would limit the throughput.
        distributed = _redistributed(state, profiles, parameters, network)
        if distributed is not None:
            adapting, configurations = distributed
            action = Action.REDISTRIBUTE
    if not adapting and not unresolved and not parameters.strict:
        adapting, low_periods = release(state, profiles, parameters, network.removable, network.followers)
        configurations |= {
            region.region: next(iter(region.by_pipeline.values())) for region in adapting
        }  # all pipelines of a release have the same configuration
        action = Action.RELEASE
    if not adapting:
        waits = any(low_periods.values())  # a release that is due soon keeps adaptation awake
        state = msgspec.structs.replace(
            state, stable_periods=0 if waits else state.stable_periods + 1, low_periods=low_periods
        )
        return Period(action=Action.NOTHING, state=state, bottlenecks=unresolved, load_changed=load_changed)
    state = msgspec.structs.replace(
        state, configurations=configurations, adapting=tuple(adapting), stable_periods=0, low_periods={}
    )
    return Period(
        action=action,
        state=state,
        regions=tuple(region.region for region in adapting),
        bottlenecks=unresolved,
        load_changed=load_changed,
    )


def _redistributed(
    state: OrganicState, profiles: Profiles, parameters: AdaptationParameters, network: AdaptationGraph
) -> tuple[list[AdaptingRegion], dict[str, RegionConfiguration]] | None:
    """Return all regions with their configurations, if another distribution of the slots is predicted to be faster.

    A configuration of a region may be on its blacklist, because it did not help alone. The whole plan must not have
    failed, and no configuration may be part of a distribution that failed.
    """
    redistribution = None if parameters.strict else network.redistributed()
    if redistribution is None or redistribution.gain <= parameters.throughput_increase:
        return None
    changed_regions = [name for name in profiles if redistribution.configurations[name] != state.configurations[name]]
    if redistribution.configurations in state.failed or any(
        redistribution.configurations[name] == failed[name]
        for failed in state.failed_distributions
        for name in changed_regions
    ):
        return None
    adapting = []
    for name, profile in profiles.items():
        current, wanted = state.configurations[name], redistribution.configurations[name]
        changed = {pipeline.name: wanted for pipeline in profile.pipelines} if wanted != current else {}
        adapting.append(
            AdaptingRegion(region=name, base=current, by_pipeline=changed, profile=profile, kind="redistribution")
        )
    return adapting, dict(redistribution.configurations)


def _resolution(
    name: str,
    profile: RegionProfile,
    configurations: dict[str, RegionConfiguration],
    state: OrganicState,
    parameters: AdaptationParameters,
    network: AdaptationGraph,
) -> Resolution | None:
    return resolve(
        profile,
        configurations[name],
        state.blacklists.get(name, {}),
        parameters,
        kind=network.kinds[name],
        fits=lambda wanted: network.slots(configurations | {name: wanted}) <= network.max_slots,
    )


def _evaluate(
    state: OrganicState, profiles: Profiles, parameters: AdaptationParameters, network: AdaptationGraph
) -> Period:
    failed = _non_resolved(state, profiles, parameters, network)
    if failed is None:
        regions = tuple(region.region for region in state.adapting)
        return Period(action=Action.FINALISE, state=_finalised(state, profiles), regions=regions)
    state = _reverted(state.failing(), failed)
    resolution = None
    if failed.kind == "resolution":
        resolution = _resolution(failed.region, failed.profile, dict(state.configurations), state, parameters, network)
    if resolution is not None and resolution.candidate is not None:
        again = msgspec.structs.replace(failed, by_pipeline=resolution.candidate.by_pipeline)
        state = msgspec.structs.replace(
            state,
            configurations=state.configurations | {failed.region: resolution.candidate.configuration},
            adapting=tuple(again if region is failed else region for region in state.adapting),
        )
        return Period(action=Action.RETRY, state=state, regions=(failed.region,), failed=failed.region)
    regions = tuple(region.region for region in state.adapting)
    for region in state.adapting:
        if region is not failed:
            state = _reverted(state, region)
    state = msgspec.structs.replace(state, adapting=())
    return Period(action=Action.REVERT, state=state, regions=regions, failed=failed.region)


def _non_resolved(
    state: OrganicState, profiles: Profiles, parameters: AdaptationParameters, network: AdaptationGraph
) -> AdaptingRegion | None:
    """Return an adapting region that the change did not improve, among those nearest to the sources.

    Their throughput represents the regions behind them. A release must not slow down any region.
    """
    if state.adapting[0].kind == "redistribution":
        return _slowest_if_not_faster(state, profiles, parameters, network)
    adapting = {region.region for region in state.adapting}
    for region in state.adapting:
        after = profiles[region.region]
        if region.kind == "release":
            if not _stays_fast(region.profile, after, parameters):
                return region
        elif not adapting & network.upstream[region.region] and not _improves(region.profile, after, parameters):
            return region
    return None


def _slowest_if_not_faster(
    state: OrganicState, profiles: Profiles, parameters: AdaptationParameters, network: AdaptationGraph
) -> AdaptingRegion | None:
    """Return the slowest region with a sink, unless more of its rows are completed than of the slowest one before.

    A log between two regions may hold rows that the new plan has to process first, so the regions nearest to the
    sources say little.
    """
    exits = [region for region in state.adapting if region.region in network.exits] or list(state.adapting)
    before = min(_share(region.profile) for region in exits)
    slowest = min(exits, key=lambda region: _share(profiles[region.region]))
    after = _share(profiles[slowest.region])
    return None if after > before * (1.0 + parameters.throughput_increase) else slowest


def _share(profile: RegionProfile) -> float:
    return profile.completed_per_s / profile.offered_per_s if profile.offered_per_s > 0 else math.inf


def _improves(before: RegionProfile, after: RegionProfile, parameters: AdaptationParameters) -> bool:
    """Return whether the throughput has increased by more than the threshold.

    Under a paced load it cannot exceed the load. Unless `strict`, a backlog that grew and does not grow any more is a
    success as well.
    """
    if after.rows_per_s > before.rows_per_s * (1.0 + parameters.throughput_increase):
        return True
    return not parameters.strict and _backlog_grows(before) and not _backlog_grows(after)


def _stays_fast(before: RegionProfile, after: RegionProfile, parameters: AdaptationParameters) -> bool:
    """Return whether a region with fewer resources still processes all rows, without becoming a bottleneck."""
    keeps_up = after.rows_per_s >= min(before.rows_per_s, after.offered_per_s) * (1.0 - parameters.throughput_increase)
    return keeps_up and not _backlog_grows(after) and after.utilisation < parameters.bottleneck


def _backlog_grows(profile: RegionProfile) -> bool:
    return profile.rows_per_s < profile.offered_per_s * (1.0 - _BACKLOG_NOISE)


def _finalised(state: OrganicState, profiles: Profiles) -> OrganicState:
    """Return the state with the new configurations and metrics, and without their blacklists (algorithm 5)."""
    references = dict(state.references)
    for region in state.adapting:
        state = state.clearing(region.region, set(region.by_pipeline))
        references[region.region] = _reference(profiles[region.region])
    return msgspec.structs.replace(state.without_failures(), adapting=(), references=references)


def _reverted(state: OrganicState, region: AdaptingRegion) -> OrganicState:
    """Return the state with the base configuration of a region and its change blacklisted (algorithm 6)."""
    state = state.blacklisting(region)
    return msgspec.structs.replace(state, configurations=state.configurations | {region.region: region.base})


def _update_metrics(
    state: OrganicState, profiles: Profiles, parameters: AdaptationParameters
) -> tuple[OrganicState, tuple[str, ...]]:
    """Forget the blacklists of pipelines whose load has changed; return their regions as well (algorithm 7).

    Extensions: a region that was saturated and still is processes what it can. Its throughput varies with its batches
    and says nothing about the load, so the rows count that are offered to it. A region that was idle and still is needs
    no change: 1.3 % instead of 1.0 % busy is noise.
    """
    changed: list[str] = []
    for name, profile in profiles.items():
        known = state.references.get(name)
        if known is None:
            state = msgspec.structs.replace(state, references=state.references | {name: _reference(profile)})
            continue
        before, now = max(known.utilisation.values(), default=0.0), profile.utilisation
        if not parameters.strict and max(before, now) < _IDLE:
            continue
        least = 0.0 if parameters.strict else _IDLE
        stays_saturated = not parameters.strict and min(before, now) >= parameters.bottleneck
        pipelines = {
            pipeline.name
            for pipeline in profile.pipelines
            if (
                _differs(profile.offered_per_s, known.offered_per_s, parameters.load_change)
                if stays_saturated
                else _differs(profile.rows_per_s, known.rows_per_s, parameters.load_change)
            )
            or _differs(pipeline.utilisation, known.utilisation.get(pipeline.name), parameters.load_change, least)
        }
        if pipelines:
            changed.append(name)
            state = state.clearing(name, pipelines)
            state = msgspec.structs.replace(state, references=state.references | {name: _reference(profile)})
    return state, tuple(changed)


def _differs(now: float, before: float | None, threshold: float, least: float = 0.0) -> bool:
    """Return whether a metric differs by more than the share of its old value, or of `least` if that is more.

    An unknown old value belongs to a pipeline that is new.

    >>> [_differs(now, 100.0, 0.2) for now in (79.0, 81.0, 119.0, 121.0)]
    [True, False, False, True]
    >>> _differs(0.013, 0.010, 0.2), _differs(0.013, 0.010, 0.2, least=0.1)
    (True, False)
    """
    return before is not None and abs(now - before) > threshold * max(before, least)


def _reference(profile: RegionProfile) -> Reference:
    return Reference(
        rows_per_s=profile.rows_per_s,
        offered_per_s=profile.offered_per_s,
        utilisation={pipeline.name: pipeline.utilisation for pipeline in profile.pipelines},
    )
