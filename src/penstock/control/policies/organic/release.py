"""Merge and shrink pipelines that stay under-utilised. This is an extension of the paper, which only adds resources.

A release is evaluated and reverted by the same rules as any other change. It is made after `stable_periods` periods in
which fewer resources would have sufficed. A merge moves no state, so it is preferred to fewer replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.organic.profile import Profiles, RegionProfile
from penstock.control.policies.organic.state import AdaptingRegion, OrganicState
from penstock.control.region_configuration import RegionConfiguration

Removable = frozenset[str]  # operators after which a region has a cut that no rule requires

_SPARE = 0.75  # a release must leave the utilisation below this share of the bottleneck threshold


def release(
    state: OrganicState,
    profiles: Profiles,
    parameters: AdaptationParameters,
    removable: Mapping[str, Removable],
    followers: Mapping[str, str],
) -> tuple[list[AdaptingRegion], dict[str, int]]:
    """Return the regions to release resources of, and how long smaller configurations have sufficed by region."""
    released: list[AdaptingRegion] = []
    low_periods: dict[str, int] = {}
    for name, profile in profiles.items():
        current = state.configurations[name]
        follower = profiles.get(followers.get(name, ""))
        smaller = _smaller(profile, follower, current, parameters, removable[name])
        banned = state.blacklists.get(name, {})
        if smaller is None or any(smaller in banned.get(pipeline.name, ()) for pipeline in profile.pipelines):
            continue
        low_periods[name] = state.low_periods.get(name, 0) + 1
        if low_periods[name] >= parameters.stable_periods:
            released.append(
                AdaptingRegion(
                    region=name,
                    base=current,
                    by_pipeline={pipeline.name: smaller for pipeline in profile.pipelines},
                    profile=profile,
                    kind="release",
                )
            )
    return released, low_periods


def _smaller(
    profile: RegionProfile,
    follower: RegionProfile | None,
    current: RegionConfiguration,
    parameters: AdaptationParameters,
    removable: Removable,
) -> RegionConfiguration | None:
    """Return the configuration with two pipelines merged, or with the fewest replicas; None if all are needed."""
    most = _SPARE * parameters.bottleneck
    if parameters.splits:
        following = [*profile.pipelines[1:], *(follower.pipelines[:1] if follower is not None else ())]
        for before, after in zip(profile.pipelines, following, strict=False):
            if before.last in removable and before.utilisation + after.utilisation <= most:
                return current.without_cut(before.last)
    if parameters.expands and current.replicas > 1:
        fewest = max(1, math.ceil(current.replicas * profile.utilisation / most - 1e-9))
        if fewest < current.replicas:
            return current.with_replicas(fewest)
    return None
