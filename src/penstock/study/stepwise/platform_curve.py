"""Performance against resources (Liu et al. 2017, figure 13): the best plan on each of several platforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from penstock.plan import Plan
from penstock.study.stepwise.profile import Profile

Machines = Literal["slots", "executors"]


class PlatformPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The best plan on one platform."""

    count: int  # slots or executors
    plan: Plan
    rows_per_s: float
    low_rows_per_s: float  # 95 % confidence interval of the mean
    high_rows_per_s: float
    latency_s: float
    meets_target: bool
    rounds: int
    seconds: float


class PlatformCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput by slots or executors. `smallest` is the fewest of them that sustain the given rate."""

    dataflow: str
    machines: Machines
    latency_target_s: float
    points: tuple[PlatformPoint, ...]  # smallest platform first
    rows_per_s: float | None = None  # rate to sustain; None if none was given
    smallest: int | None = None  # None if no platform sustains the rate


def platform_curve(
    machines: str, counts: Sequence[int], profiles: Sequence[Profile], *, rows_per_s: float | None
) -> PlatformCurve:
    """Combine the profiles of several platforms, smallest first.

    A platform sustains a rate if the lower end of the confidence interval of its throughput is not below the rate and
    the latency target is met.
    """
    points = tuple(_point(count, profile) for count, profile in zip(counts, profiles, strict=True))
    enough = [
        point.count
        for point in points
        if rows_per_s is not None and point.meets_target and point.low_rows_per_s >= rows_per_s
    ]
    return PlatformCurve(
        dataflow=profiles[0].dataflow,
        machines="slots" if machines == "slots" else "executors",
        latency_target_s=profiles[0].latency_target_s,
        points=points,
        rows_per_s=rows_per_s,
        smallest=min(enough, default=None),
    )


def _point(count: int, profile: Profile) -> PlatformPoint:
    best = profile.rounds[profile.best - 1]
    return PlatformPoint(
        count=count,
        plan=profile.plan,
        rows_per_s=profile.rows_per_s,
        low_rows_per_s=best.low_rows_per_s,
        high_rows_per_s=best.high_rows_per_s,
        latency_s=profile.latency_s,
        meets_target=profile.meets_target,
        rounds=len(profile.rounds),
        seconds=profile.seconds,
    )
