"""What is to be planned for, and the plan that comes back."""

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
    """`least` and `most` bound its processors; one that cannot run in parallel has a `most` of 1."""

    name: str
    station: StationModel
    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        if self.least < 1 or (self.most is not None and self.most < self.least):
            raise PlanError(
                f"operator '{self.name}' has bounds min {self.least} and max {self.most}; "
                "min must be 1 or more and max no less than min"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorNetwork:
    """Operators under an external rate; an operator's visits are its arrival rate over the external one."""

    external_per_s: float
    operators: tuple[OperatorStation, ...]
    visit_law: Visits | None = field(default=None, compare=False)  # from the streams, if they are known

    def __post_init__(self) -> None:
        positive("the external rate (rows/s)", self.external_per_s)
        names = [operator.name for operator in self.operators]
        if not names or len(set(names)) < len(names):
            raise PlanError(f"operators are {names}; one or more are required, each with a name of its own")

    def visits(self) -> list[float]:
        return [operator.station.arrival_per_s / self.external_per_s for operator in self.operators]

    def unbounded(self) -> OperatorNetwork:
        """Without any `most`."""
        operators = tuple(msgspec.structs.replace(operator, most=None) for operator in self.operators)
        return replace(self, operators=operators)

    def keeping_up(self) -> list[int] | None:
        """The fewest processors, within bounds, that keep up with the external rate; None where there are none."""
        counts = []
        for operator in self.operators:
            stable = operator.station.least_stable()
            if stable is None or (operator.most is not None and stable > operator.most):
                return None
            counts.append(max(stable, operator.least))
        return counts

    def mean_s(self, counts: Sequence[int]) -> float:
        """E[T] = sum_i visits_i E[T_i](k_i)."""
        return math.fsum(
            visits * operator.station.mean_s(k)
            for operator, k, visits in zip(self.operators, counts, self.visits(), strict=True)
        )

    def floor_s(self) -> float:
        """What E[T] stays above, however many processors there are."""
        return math.fsum(
            visits * operator.station.floor_s() for operator, visits in zip(self.operators, self.visits(), strict=True)
        )

    def latency(self, counts: Sequence[int]) -> NetworkLatency:
        moments = [next(operator.station.moments(k)) for operator, k in zip(self.operators, counts, strict=True)]
        return network_latency(self.law(), moments)

    def law(self) -> Visits:
        """Only quantiles need more of the visits than their means."""
        return self.visit_law or Visits.of_means(np.array(self.visits()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What the demand would take, were there no budget and no upper bounds; None where no number of processors does."""

    processors: dict[str, int] | None
    reason: str
    in_the_way: str = ""  # the end of the reason, for who has another target in mind than was asked for

    @property
    def total(self) -> int | None:
        return None if self.processors is None else sum(self.processors.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Processors by operator. Where it is not feasible, `binding` names the operator that holds it back."""

    network: OperatorNetwork
    counts: tuple[int, ...]
    binding: str | None = None
    needs: Requirement | None = None

    @property
    def feasible(self) -> bool:
        return self.binding is None

    @property
    def processors(self) -> dict[str, int]:
        return {operator.name: k for operator, k in zip(self.network.operators, self.counts, strict=True)}

    @property
    def total(self) -> int:
        return sum(self.counts)

    def sustained_per_s(self) -> dict[str, float]:
        """The external rate at which each operator is saturated; infinite for one that gets nothing."""
        return {
            operator.name: sustained_per_s(operator.station, k, visits)
            for operator, k, visits in zip(self.network.operators, self.counts, self.network.visits(), strict=True)
        }

    @property
    def bottleneck(self) -> str:
        """The operator that saturates first when the external rate grows."""
        rates = self.sustained_per_s()
        return min(rates, key=lambda name: rates[name])

    @property
    def max_external_per_s(self) -> float:
        """The external rate that the plan stays below: at it, the bottleneck is saturated."""
        return min(self.sustained_per_s().values())

    def latency(self) -> NetworkLatency | None:
        """None where the plan does not keep up with the external rate."""
        for operator, k in zip(self.network.operators, self.counts, strict=True):
            least = operator.station.least_stable()
            if least is None or k < least:
                return None
        return self.network.latency(self.counts)


def sustained_per_s(station: StationModel, count: int, visits: float) -> float:
    return station.capacity_per_s(count) / visits if visits else math.inf
