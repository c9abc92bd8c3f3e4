"""Parameters of the policy `organic`. They are in a file of their own, so that the command line starts quickly."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from penstock.dataflow.errors import PenstockError


class Variant(StrEnum):
    """The kinds of change that are tried, and their order. Fusion decides on pipelines, fission on replicas."""

    FUSION_FIRST = "fusion-first"
    FISSION_FIRST = "fission-first"
    FUSION_ONLY = "fusion-only"
    FISSION_ONLY = "fission-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationParameters:
    """Thresholds of organic adaptation (Kahveci and Gedik, JPDC 2020, section 4.4). All shares are relative.

    Attributes:
        variant: Kinds of change and their order.
        bottleneck: Utilisation from which a pipeline is a bottleneck.
        split_gain: Smallest predicted gain of throughput for which a pipeline is split.
        throughput_increase: Increase of throughput that a change must exceed to be kept.
        load_change: Relative difference of throughput or utilisation from which the load counts as changed.
        stable_periods: Periods without a change after which adaptation stops until the load changes.
        max_replicas: Largest number of replicas of a region; None: only the slots limit it.
        period_s: Length of a period of measurement.
        strict: Decide as the paper prints it, without the extensions of Penstock.
    """

    variant: Variant = Variant.FUSION_FIRST
    bottleneck: float = 0.8
    split_gain: float = 0.2
    throughput_increase: float = 0.1
    load_change: float = 0.2
    stable_periods: int = 3
    max_replicas: int | None = None
    period_s: float = 30.0
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("split_gain", "throughput_increase", "load_change", "period_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise PenstockError(f"{name} is {getattr(self, name)}; it must be a finite number, 0 or more.")
        if not 0 < self.bottleneck <= 1:
            raise PenstockError(f"bottleneck is {self.bottleneck}; it must be above 0 and at most 1.")
        if self.stable_periods < 1:
            raise PenstockError(f"stable_periods is {self.stable_periods}; it must be 1 or more.")
        if self.max_replicas is not None and self.max_replicas < 1:
            raise PenstockError(f"max_replicas is {self.max_replicas}; it must be 1 or more.")
        if self.variant not in list(Variant):
            raise PenstockError(f"There is no variant '{self.variant}'; the variants are {', '.join(Variant)}.")

    @property
    def splits(self) -> bool:
        return self.variant is not Variant.FISSION_ONLY

    @property
    def expands(self) -> bool:
        return self.variant is not Variant.FUSION_ONLY


PARAMETER_NAMES = tuple(field.name for field in fields(AdaptationParameters))
