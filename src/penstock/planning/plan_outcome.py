"""What a plan is expected to bring or was seen to bring, and the plans that were looked at beside it."""

from __future__ import annotations

import msgspec


class PlanOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one plan under one load. None: nobody says, or it cannot be known (a plan that does not keep up)."""

    slots: int  # tasks that may run at once under the plan
    latency_s: float | None = None
    quantile: float | None = None  # that `latency_s` is of; None: it is the mean
    at_most_s: float | None = None  # what the latency may come to, where there is a target
    rows_per_s: float | None = None  # external rows that it takes in

    def met_by(self, observed: PlanOutcome) -> bool:
        """Whether what was observed is within the target, if there is one and it can be known."""
        return self.at_most_s is None or observed.latency_s is None or observed.latency_s <= self.at_most_s


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that was looked at and not taken."""

    replicas: dict[str, int]  # by region
    expected: PlanOutcome
    why: str  # it was not taken
