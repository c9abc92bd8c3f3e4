"""The contract of a policy: a `Situation` goes in; a `Decision`, which is `Hold` or `Change`, comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.control.topology import Topology
from penstock.measure.window import Latency, Window
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import Alternative, PlanOutcome

if TYPE_CHECKING:
    from penstock.control.recorded_load import RecordedRate

Inputs = dict[str, float | None]
# Numbers and texts that a policy has learned; the store keeps them, and a resumed run gets them back.
Memory = Mapping[str, Any]
Verdict = Literal["kept", "fell short", "rolled back", "load changed", "superseded"]  # on an applied change


class Reason(StrEnum):
    """The reason of a decision as a code. The first group changes the plan, all others hold it."""

    SHORTAGE = "shortage"  # the target is missed or the backlog grows: more slots
    RELEASE = "release"  # fewer slots meet the target
    REALLOCATION = "reallocation"  # the same number of slots, distributed differently
    CONGESTION = "congestion"  # an operator is too busy, or receives more rows than it processes
    TRUE_RATES = "true-rates"  # the true processing rates require different replica counts
    PROFILED = "profiled"  # a profile has a plan for this platform
    RECALIBRATION = "recalibration"  # the profiled plan does not fit the platform, the program or the data any more
    ROLL_BACK = "roll-back"  # the last change did not have the expected effect

    BEST = "best"  # no better plan exists
    ADAPTED = "adapted"  # the last change is kept; the next decision follows after another measurement
    WITHIN_TARGET = "within-target"  # the target is met and no slot can be released
    AT_LIMIT = "at-limit"  # the demand needs more slots than are allowed
    CATCHING_UP = "catching-up"  # the plan suffices for the load, but an old backlog must drain first
    IDLE = "idle"  # no rows arrive

    MISSING = "missing-metrics"
    STALE = "stale-metrics"
    WARMING_UP = "warming-up"  # too soon after a start or a change to measure
    SETTLING = "settling"  # too few windows since the change

    MEASURING = "measuring"  # a trial of another plan is not complete

    COOLDOWN = "cooldown"
    QUIET_HOURS = "quiet-hours"
    OUT_OF_BOUNDS = "out-of-bounds"
    TOO_LITTLE_GAIN = "too-little-gain"
    NOT_YET = "not-yet"  # the condition has not lasted long enough
    NOT_PAID_BACK = "not-paid-back"

    REFUTED = "refuted"  # this plan has failed under the same load before
    POLICY_FAILED = "policy-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keep the plan."""

    reason_code: Reason
    reason: str  # one sentence with the numbers
    inputs: Inputs = field(default_factory=dict)  # the numbers that the decision is based on
    binding: str | None = None  # the bottleneck operator
    alternatives: tuple[Alternative, ...] = ()
    needs_slots: int | None = None  # slots that would meet the demand, if they are more than allowed
    verdict: Verdict | None = None  # on the last change, by a policy that evaluates its changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Apply another plan."""

    plan: Plan
    reason_code: Reason
    reason: str  # one sentence with the numbers
    staying: PlanOutcome  # prediction for the current plan
    expected: PlanOutcome  # prediction for the new plan; later compared with measurements
    inputs: Inputs = field(default_factory=dict)
    binding: str | None = None
    alternatives: tuple[Alternative, ...] = ()
    needs_slots: int | None = None
    verdict: Verdict | None = None  # on the last change, by a policy that evaluates its changes

    def vetoed(self, reason_code: Reason, reason: str) -> Hold:
        """Return the Hold that replaces this change; the rejected plan becomes its first alternative."""
        rejected = Alternative(
            replicas=self.plan.replicas, expected=self.expected, reason=f"vetoed {self.reason_code}: {self.reason}"
        )
        return Hold(
            reason_code=reason_code,
            reason=reason,
            inputs=self.inputs,
            binding=self.binding,
            alternatives=(rejected, *self.alternatives),
            needs_slots=self.needs_slots,
        )


Decision = Hold | Change


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChange:
    """A plan change of this run, made by the controller or by a user."""

    at_s: float
    old: Plan
    new: Plan
    pause_s: float | None = None
    took_s: float | None = None  # the pause, and the wait for executors before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that a policy may base a decision on, as one value."""

    now_s: float
    topology: Topology
    plan: Plan  # in force
    window: Window | None  # smoothed over the windows of this plan; None before enough were measured
    latest: Window | None  # the most recent window, not smoothed
    changes: tuple[PastChange, ...] = ()  # oldest first
    started_s: float | None = None  # start of the run or of its resumption; None: unknown
    max_slots: int  # upper limit on the slots that a plan may use
    micro_batch: bool = False  # True: the stages of a query run one after another; False: operators run concurrently
    stale_after_s: float = 60.0
    recorded: tuple[RecordedRate, ...] = ()  # arrivals of the last hour, oldest first
    refuted: tuple[Plan, ...] = ()  # plans that could not be applied, or did not help, under the present load
    # Derived values, computed once for all policies and guards of a turn. They must not depend on `max_slots`.
    cache: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def slots(self) -> int:
        """Return the slots that the plan uses."""
        return self.topology.slots(self.plan, micro_batch=self.micro_batch)

    def backlog_rows(self, window: Window) -> int:
        """Return the rows that wait anywhere, each counted once.

        Row-at-a-time engines report the rows in front of the first operator for the source as well.
        """
        rows = {operator.operator: operator.backlog_rows or 0 for operator in window.operators}
        counted_twice = 0
        if not self.micro_batch:
            for source in self.topology.sources:
                if source not in self.plan.cuts:
                    behind = sum(rows.get(consumer.name, 0) for consumer in self.topology.flow.consumers(source))
                    counted_twice += min(rows.get(source, 0), behind)
        return sum(rows.values()) - counted_twice

    def with_max_slots(self, max_slots: int) -> Situation:
        """Return the same situation under another slot limit; both share the cache."""
        limited = replace(self, max_slots=max_slots)
        object.__setattr__(limited, "cache", self.cache)
        return limited

    def measured(self) -> tuple[Window, Window] | Hold:
        """Return `window` and `latest`, or the Hold for missing or stale measurements."""
        if self.window is None or self.latest is None:
            return Hold(reason_code=Reason.MISSING, reason="No complete measurement exists for the current plan yet.")
        if (age_s := self.now_s - self.latest.end_s) > self.stale_after_s:
            return Hold(reason_code=Reason.STALE, reason=stale_sentence(age_s, self.stale_after_s))
        return self.window, self.latest


def stale_sentence(age_s: float, stale_after_s: float) -> str:
    return f"The last window ended {age_s:.0f} s ago; measurements older than {stale_after_s:g} s are not used."


def latency_s(latency: Latency | None, quantile: float | None) -> float | None:
    """Return the mean latency, or the given quantile of it (0.5, 0.95 or 0.99)."""
    if latency is None:
        return None
    if quantile is None:
        return latency.mean_s
    return {0.5: latency.p50_s, 0.95: latency.p95_s, 0.99: latency.p99_s}[quantile]


class Policy(Protocol):
    """A pure function of situation and memory.

    Contract: it returns Hold while measurements are missing or stale. A Change contains a plan that is valid for the
    dataflow and uses at most `max_slots`. The controller evaluates its changes and rolls them back, unless the policy
    has an attribute `evaluates_changes` that is true: it then gives a verdict itself.
    """

    @property
    def name(self) -> str: ...

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]: ...
