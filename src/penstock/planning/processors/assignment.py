"""The result of the processor planners."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.models.network.latency import NetworkLatency
from penstock.planning.processors.operator_network import OperatorNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """The processors that the demand needs without budget and upper bounds; None if no number suffices."""

    processors: dict[str, int] | None
    reason: str
    in_the_way: str = ""  # the last part of the reason, without the target that was missed

    @property
    def total(self) -> int | None:
        return None if self.processors is None else sum(self.processors.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Processors per operator. If the assignment is not feasible, `binding` names the operator that limits it."""

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

    @property
    def bottleneck(self) -> str:
        """Return the operator that saturates first when the external rate grows."""
        rates = self.network.sustained_per_s(self.counts)
        return self.network.operators[rates.index(min(rates))].name

    @property
    def max_external_per_s(self) -> float:
        """Return the external rate at which the bottleneck is saturated."""
        return min(self.network.sustained_per_s(self.counts))

    def latency(self) -> NetworkLatency | None:
        """Return the latency; None if the processors do not sustain the external rate."""
        for operator, k in zip(self.network.operators, self.counts, strict=True):
            fewest = operator.station.least_stable()
            if fewest is None or k < fewest:
                return None
        return self.network.latency(self.counts)
