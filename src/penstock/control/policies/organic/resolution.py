"""Find the bottleneck pipelines of a region, and a change that resolves them (algorithms 2, 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from penstock.control.policies.adaptation_parameters import AdaptationParameters, Variant
from penstock.control.policies.organic.profile import PipelineProfile, RegionProfile
from penstock.control.policies.organic.splitting import balanced_positions, split_gain
from penstock.control.region_configuration import RegionConfiguration

Blacklist = Mapping[str, Sequence[RegionConfiguration]]  # by pipeline
Fits = Callable[[RegionConfiguration], bool]  # whether the slots suffice

_LARGE = 2.0  # shortfall from which a pipeline is split into several parts at once (section 4.5)
_MARGIN = 1.5  # ideal gain of the fewest additional replicas, relative to the increase that is required


class Expandable(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of a region, which decides whether it may have several replicas."""

    keyed: bool  # it has keyed state
    replicable: bool  # it has no global state


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one region, and for each bottleneck pipeline the configuration to blacklist if it does not help."""

    configuration: RegionConfiguration
    by_pipeline: dict[str, RegionConfiguration]


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a bottleneck region, or why there is none."""

    bottlenecks: tuple[str, ...]  # pipelines
    candidate: Candidate | None = None
    beyond_slots: RegionConfiguration | None = None  # the smallest change that only the slots prevent


def bottleneck_pipelines(profile: RegionProfile, parameters: AdaptationParameters) -> list[PipelineProfile]:
    """Return the pipelines whose utilisation reaches the threshold.

    While a backlog drains, more rows are processed than arrive. Unless `strict`, only the utilisation that the arriving
    rows cause counts then: the backlog needs no further change.
    """
    share = 1.0
    if not parameters.strict and 0.0 < profile.offered_per_s < profile.rows_per_s:
        share = profile.offered_per_s / profile.rows_per_s
    return [pipeline for pipeline in profile.pipelines if pipeline.utilisation * share >= parameters.bottleneck]


def resolve(
    profile: RegionProfile,
    current: RegionConfiguration,
    blacklist: Blacklist,
    parameters: AdaptationParameters,
    *,
    kind: Expandable,
    fits: Fits,
) -> Resolution | None:
    """Return the change of a region; None if it has no bottleneck (algorithm 2)."""
    bottlenecks = bottleneck_pipelines(profile, parameters)
    if not bottlenecks:
        return None
    splits = _splits(profile, bottlenecks, current, parameters)
    expansions = _expansions(profile, bottlenecks, current, parameters, kind)
    in_order = {
        Variant.FUSION_FIRST: [*splits, *expansions],
        Variant.FISSION_FIRST: [*expansions, *splits],
        Variant.FUSION_ONLY: splits,
        Variant.FISSION_ONLY: expansions,
    }[parameters.variant]
    names = tuple(pipeline.name for pipeline in bottlenecks)
    allowed = [candidate for candidate in in_order if not _is_blacklisted(candidate, blacklist)]
    for candidate in allowed:
        if fits(candidate.configuration):
            return Resolution(bottlenecks=names, candidate=candidate)
    beyond = allowed[-1].configuration if allowed else None
    return Resolution(bottlenecks=names, beyond_slots=beyond)


def _is_blacklisted(candidate: Candidate, blacklist: Blacklist) -> bool:
    return any(change in blacklist.get(pipeline, ()) for pipeline, change in candidate.by_pipeline.items())


def _splits(
    profile: RegionProfile,
    bottlenecks: Sequence[PipelineProfile],
    current: RegionConfiguration,
    parameters: AdaptationParameters,
) -> list[Candidate]:
    """Return the splits of all bottleneck pipelines into many parts first, and into two parts last (algorithm 3)."""
    most = min(_parts(profile, parameters), max(len(pipeline.steps) for pipeline in bottlenecks))
    splits = [_split(bottlenecks, current, parameters, parts) for parts in range(most, 1, -1)]
    return _distinct(split for split in splits if split is not None)


def _distinct(candidates: Iterator[Candidate]) -> list[Candidate]:
    result: list[Candidate] = []
    for candidate in candidates:
        if candidate not in result:
            result.append(candidate)
    return result


def _split(
    bottlenecks: Sequence[PipelineProfile], current: RegionConfiguration, parameters: AdaptationParameters, parts: int
) -> Candidate | None:
    by_pipeline: dict[str, RegionConfiguration] = {}
    cuts: list[str] = []
    for pipeline in bottlenecks:
        positions = balanced_positions(pipeline.steps, parts)
        if not positions or split_gain(pipeline.steps, positions) < parameters.split_gain:
            return None
        own = tuple(pipeline.steps[position - 1].operator for position in positions)
        by_pipeline[pipeline.name] = current.with_cuts(own)
        cuts += own
    return Candidate(configuration=current.with_cuts(tuple(cuts)), by_pipeline=by_pipeline)


def _expansions(
    profile: RegionProfile,
    bottlenecks: Sequence[PipelineProfile],
    current: RegionConfiguration,
    parameters: AdaptationParameters,
    kind: Expandable,
) -> list[Candidate]:
    """Return the configurations with many more replicas first, and with one more last (algorithm 4).

    The paper expands keyed regions only, because it keeps the order of the rows of a key. Unless `strict`, stateless
    regions are expanded as well.
    """
    if not (kind.keyed if parameters.strict else kind.replicable):
        return []
    most = math.inf if parameters.max_replicas is None else parameters.max_replicas
    counts = [current.replicas + step for step in _steps(profile, current, parameters)]
    return [
        Candidate(configuration=expanded, by_pipeline={pipeline.name: expanded for pipeline in bottlenecks})
        for count in counts
        if count <= most
        for expanded in [current.with_replicas(count)]
    ]


def _parts(profile: RegionProfile, parameters: AdaptationParameters) -> int:
    """Return the parts to split a pipeline into: 2, or more if the shortfall is large."""
    if parameters.strict or profile.shortfall < _LARGE:
        return 2
    return math.ceil(profile.shortfall)


def _steps(profile: RegionProfile, current: RegionConfiguration, parameters: AdaptationParameters) -> Iterator[int]:
    """Yield the replicas to add, which is 1 as the paper prints it.

    Otherwise the first number covers the shortfall or doubles the replicas; then it is halved. One replica more than n
    raises the throughput by 1 / n at most. This must exceed the required increase, so several replicas are added to
    many.
    """
    fewest = step = 1
    if not parameters.strict:
        fewest = max(1, math.ceil(_MARGIN * parameters.throughput_increase * current.replicas - 1e-9))
        step = min(current.replicas, math.ceil(current.replicas * (profile.shortfall - 1.0)))
    while step > fewest:
        yield step
        step //= 2
    yield fewest
