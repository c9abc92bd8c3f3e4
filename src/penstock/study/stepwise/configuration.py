"""The configuration of a trial, its result, and the decision about the next trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean

from penstock.study.stepwise.sequential_test import Verdict


class TrialChange(StrEnum):
    """The difference between the configuration of a round and its reference."""

    FIRST = "first"
    SOURCE = "source + 1"
    SINKS = "operators by ratio"
    FILL = "fill the slots"
    THROTTLE = "throttle"
    OPERATOR = "operator + 1"
    CUT = "operator + 1 with a cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The tasks of sources and operators, and the throttling of the sources."""

    source_tasks: int = 1
    tasks: Mapping[str, int]
    throttle: float = 1.0  # share of the rows in flight that the sources may have; 1: not throttled
    cuts: frozenset[str] = frozenset()  # operators behind which queries are separated, besides the required ones

    def with_source_task(self) -> Configuration:
        return replace(self, source_tasks=self.source_tasks + 1)

    def with_tasks(self, added: Mapping[str, int]) -> Configuration:
        return replace(self, tasks={name: count + added.get(name, 0) for name, count in self.tasks.items()})

    def with_counts(self, tasks: Mapping[str, int]) -> Configuration:
        return replace(self, tasks={name: tasks.get(name, count) for name, count in self.tasks.items()})

    def with_cuts(self, added: frozenset[str]) -> Configuration:
        return replace(self, cuts=self.cuts | added)

    def throttled(self, share: float) -> Configuration:
        return replace(self, throttle=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMeasurement:
    """An operator during a trial."""

    latency_s: float  # mean time of a row in the operator, waiting included
    capacity: float  # share of the time of its tasks in which they execute rows (Equation 2)
    processing_s: float | None = None  # mean time of a row in the operator without waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A configuration and the result of its trial."""

    configuration: Configuration
    change: TrialChange
    rows_per_s: tuple[float, ...]  # one value per window
    latency_s: float
    verdict: Verdict | None = None  # compared with the reference; None for the first round
    operators: Mapping[str, OperatorMeasurement] = field(default_factory=dict)

    @property
    def mean_rows_per_s(self) -> float:
        return fmean(self.rows_per_s)

    def meets(self, latency_target_s: float) -> bool:
        return self.latency_s <= latency_target_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTrial:
    """The decision to try another configuration."""

    configuration: Configuration
    change: TrialChange
    reference: int  # number of the round to compare with, from 0
    reason: str
    ends_when_missed: bool = False  # whether the trial is of no use if it misses the latency target


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The decision to stop, and the round with the best configuration."""

    round: int  # from 0
    reason: str


Decision = NextTrial | Finished


def best_round(rounds: Sequence[Round], latency_target_s: float) -> int:
    """Return the round with the highest throughput within the latency target, else the one with the lowest latency."""
    within = [number for number, round_ in enumerate(rounds) if round_.meets(latency_target_s)]
    if within:
        return max(within, key=lambda number: rounds[number].mean_rows_per_s)
    return min(range(len(rounds)), key=lambda number: rounds[number].latency_s)
