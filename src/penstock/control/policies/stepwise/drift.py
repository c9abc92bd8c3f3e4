"""Data drift: the backlog or the latency is above its threshold for some time although the plan sustained this rate.

A high load alone is not drift. A plan that has a backlog processes as many rows as it can, so the rows/s in these
windows show its present capacity. Only a capacity, or without a backlog a load, clearly below the sustained rate means
that the rows have become more expensive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from penstock.control.evaluation import normal_backlog_rows
from penstock.control.policies.stepwise.memory import Notes
from penstock.control.policies.stepwise.observation import costs_s
from penstock.control.policy import Situation
from penstock.study.stepwise.sequential_test import confidence_interval

_KEPT = 12  # latest windows whose throughput and costs are remembered
_CLEAR = 0.9  # a throughput below this share of the sustained rate is a loss
_BACKLOG_TARGETS = 2.0  # rows that take this many latency targets are too many


class Condition(Enum):
    NORMAL = "normal"
    HIGH_LOAD = "high load"  # above a threshold, but the plan processes what it sustained before
    SUSPECTED = "suspected"  # above a threshold, not long enough yet
    DRIFT = "drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    sustained_per_s: float  # rows/s that the plan sustained in the profile, or after its recalibration
    latency_s: float
    lasting_s: float  # time for which a threshold must be exceeded

    @property
    def backlog_rows(self) -> float:
        return _BACKLOG_TARGETS * self.latency_s * self.sustained_per_s


def exceeded(situation: Situation, thresholds: Thresholds) -> str | None:
    """Return which threshold the latest window exceeds, in words, or None."""
    latest = situation.latest
    assert latest is not None
    backlog = situation.backlog_rows(latest)
    allowed = max(thresholds.backlog_rows, normal_backlog_rows(situation, latest))
    if backlog > allowed:
        return f"{backlog} rows wait, more than {allowed:.0f}"
    if latest.latency is not None and latest.latency.mean_s > thresholds.latency_s:
        return f"the latency is {latest.latency.mean_s:.3g} s, above {thresholds.latency_s:.3g} s"
    return None


def watched(
    situation: Situation, notes: Notes, thresholds: Thresholds, throughput_per_s: float | None
) -> tuple[Condition, Notes]:
    """Return the condition after the latest window, and the notes that include it."""
    latest = situation.latest
    assert latest is not None
    if exceeded(situation, thresholds) is None:
        is_unknown = latest.latency is None and situation.backlog_rows(latest) > 0  # no batch has ended
        if is_unknown and notes.over_s is not None:
            return Condition.SUSPECTED, notes
        return Condition.NORMAL, replace(notes, over_s=None, samples=(), costs={})
    over_s = latest.start_s if notes.over_s is None else notes.over_s
    notes = replace(remembered(situation, notes, throughput_per_s), over_s=over_s)
    if latest.end_s - over_s < thresholds.lasting_s or len(notes.samples) < 2:
        return Condition.SUSPECTED, notes
    _, high = confidence_interval(notes.samples)
    return Condition.DRIFT if high < _CLEAR * thresholds.sustained_per_s else Condition.HIGH_LOAD, notes


def remembered(situation: Situation, notes: Notes, throughput_per_s: float | None) -> Notes:
    """Return the notes with the throughput and the costs of the latest window."""
    assert situation.latest is not None
    samples = notes.samples if throughput_per_s is None else (*notes.samples, throughput_per_s)[-_KEPT:]
    costs = dict(notes.costs)
    for name, seconds in costs_s(situation.latest).items():
        costs[name] = (*costs.get(name, ()), seconds)[-_KEPT:]
    return replace(notes, samples=samples, costs=costs)
