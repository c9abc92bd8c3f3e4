"""The input of the processor planners: operators as stations under an external rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from penstock.dataflow.errors import PlanError
from penstock.models.network.latency import NetworkLatency, network_latency
from penstock.models.network.visits import Visits
from penstock.models.queueing.errors import positive
from penstock.models.queueing.station import StationModel


class OperatorStation(msgspec.Struct, frozen=True, kw_only=True):  # faster to create than a dataclass
    """An operator with its station model and the bounds of its processors.

    An operator that cannot run in parallel has a `max_processors` of 1.
    """

    name: str
    station: StationModel
    min_processors: int = 1
    max_processors: int | None = None

    def __post_init__(self) -> None:
        if self.min_processors < 1 or (self.max_processors is not None and self.max_processors < self.min_processors):
            raise PlanError(
                f"Operator '{self.name}' has bounds min {self.min_processors} and max {self.max_processors}. "
                "The min must be 1 or more, and the max must not be below the min."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorNetwork:
    """Operators under an external rate. The visits of an operator are its arrival rate over the external rate."""

    external_per_s: float
    operators: tuple[OperatorStation, ...]
    visit_law: Visits | None = field(default=None, compare=False)  # derived from the streams if they are known

    def __post_init__(self) -> None:
        positive("The external rate (rows/s)", self.external_per_s)
        names = [operator.name for operator in self.operators]
        if not names or len(set(names)) < len(names):
            raise PlanError(f"The operators are {names}. Give one or more, each with a unique name.")

    def visits(self) -> list[float]:
        """Return the mean number of visits to each operator per external row."""
        return [operator.station.arrival_per_s / self.external_per_s for operator in self.operators]

    def unbounded(self) -> OperatorNetwork:
        """Return the network without upper bounds."""
        operators = tuple(msgspec.structs.replace(operator, max_processors=None) for operator in self.operators)
        return replace(self, operators=operators)

    def least_stable(self) -> list[int] | None:
        """Return the fewest processors within the bounds that sustain the external rate; None if there are none."""
        counts = []
        for operator in self.operators:
            stable = operator.station.least_stable()
            if stable is None or (operator.max_processors is not None and stable > operator.max_processors):
                return None
            counts.append(max(stable, operator.min_processors))
        return counts

    def mean_s(self, counts: Sequence[int]) -> float:
        """Return E[T] = sum_i visits_i E[T_i](k_i) (DRS eq. 4)."""
        return math.fsum(self.mean_shares_s(counts))

    def mean_shares_s(self, counts: Sequence[int]) -> list[float]:
        """Return the share of each operator in the mean latency: visits_i E[T_i](k_i)."""
        return [
            visits * operator.station.mean_s(k)
            for operator, k, visits in zip(self.operators, counts, self.visits(), strict=True)
        ]

    def floor_s(self) -> float:
        """Return a lower bound of E[T] for any number of processors."""
        return math.fsum(
            visits * operator.station.floor_s() for operator, visits in zip(self.operators, self.visits(), strict=True)
        )

    def latency(self, counts: Sequence[int]) -> NetworkLatency:
        """Return the latency distribution of an external row with these processors."""
        moments = [next(operator.station.moments(k)) for operator, k in zip(self.operators, counts, strict=True)]
        return network_latency(self.visit_distribution(), moments)

    def visit_distribution(self) -> Visits:
        """Return the distribution of the visits; without streams it is derived from the means."""
        return self.visit_law or Visits.of_means(np.array(self.visits()))

    def sustained_per_s(self, counts: Sequence[int]) -> list[float]:
        """Return the external rate at which each operator is saturated; infinite for one without arrivals."""
        return [
            sustained_per_s(operator.station, k, visits)
            for operator, k, visits in zip(self.operators, counts, self.visits(), strict=True)
        ]


def sustained_per_s(station: StationModel, processors: int, visits: float) -> float:
    """Return the external rate at which a station with this many visits per external row is saturated."""
    return station.capacity_per_s(processors) / visits if visits else math.inf
