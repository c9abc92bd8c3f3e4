"""The expected or observed outcome of a plan, and the alternatives that a policy rejected."""

from __future__ import annotations

import msgspec


class PlanOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Latency and throughput of one plan under one load. None: unknown, for example because the plan is unstable."""

    slots: int  # tasks that can run at the same time under the plan
    latency_s: float | None = None
    quantile: float | None = None  # the quantile that `latency_s` is; None: `latency_s` is the mean
    low_s: float | None = None  # 90 % of the windows are expected between low_s and high_s; None: no interval is known
    high_s: float | None = None
    at_most_s: float | None = None  # the latency target, if there is one
    rows_per_s: float | None = None  # external rows that the plan processes

    def met_by(self, observed: PlanOutcome) -> bool:
        """Return whether the observed latency meets the target; true if either of them is unknown."""
        return self.at_most_s is None or observed.latency_s is None or observed.latency_s <= self.at_most_s


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that a policy considered and rejected."""

    replicas: dict[str, int]  # by region
    expected: PlanOutcome
    reason: str  # reason for the rejection
