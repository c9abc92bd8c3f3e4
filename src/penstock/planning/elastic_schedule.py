"""Elastic schedules: the number of VMs over time, their cost, and the time in which capacity is too low.

Source of the rules: Imai, Patterson and Varela (2017), section 6. At the start of each interval the scheduler observes
the load and orders VMs. For `delay_s` the VMs of the previous interval still serve the load. A load above the MST of
the serving VMs is a violation. The backlog and the cost of VMs while they start are not in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.fitted_curve import running_maximum
from penstock.models.mst.samples import Floats, SamplesError, ThroughputSamples
from penstock.planning.trace import Trace

Counts = NDArray[np.int64]


class ElasticError(PenstockError):
    """A price, delay or bound of an elastic schedule is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalTerms:
    """The price of a VM per hour, the delay of a change, and the maximum number of VMs."""

    price_per_h: float = 0.10
    delay_s: float = 60.0
    max_vms: int = 128

    def __post_init__(self) -> None:
        if not (math.isfinite(self.price_per_h) and self.price_per_h > 0):
            raise ElasticError(f"The price of a VM is {self.price_per_h} per hour. It must be a finite number above 0.")
        if not (math.isfinite(self.delay_s) and self.delay_s >= 0):
            raise ElasticError(f"The delay of a change is {self.delay_s} s. It must be a finite number, 0 or more.")
        if self.max_vms < 1:
            raise ElasticError(f"The maximum number of VMs is {self.max_vms}. It must be at least 1.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticSchedule:
    """VMs per interval: `ready` serve until those of the latest order are ready, `vms` for the rest of it.

    A delay longer than an interval is that of an order some intervals ago; see `reactive`.

    An `instant` schedule ignores the delay; it is an unreachable reference.
    """

    policy: str
    vms: Counts
    ready: Counts
    instant: bool = False

    def part(self, first: int, last: int) -> ElasticSchedule:
        """Return the intervals from `first` up to, but not including, `last`."""
        return replace(self, vms=self.vms[first:last], ready=self.ready[first:last])


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticOutcome:
    """Cost and quality of a schedule.

    `violations` is the share of time with a load above the MST, as in the paper. The share of time with a backlog is
    `behind`; a backlog drains while capacity exceeds the load. `worst_lag_s` is the longest wait of the oldest row in
    it.
    """

    policy: str
    cost_per_h: float
    violations: float
    behind: float
    worst_lag_s: float
    mean_vms: float
    peak_vms: int


def ground_truth(samples: ThroughputSamples, max_vms: int) -> Floats:
    """Return the mean MST on 1, 2, ..., `max_vms` VMs, linear between measured counts.

    Schedules are evaluated with it.
    """
    if max_vms > max(samples.vms):
        raise SamplesError(
            f"App '{samples.app}' was measured on at most {max(samples.vms)} VMs, but a schedule may use {max_vms}. "
            "Measure more VMs or allow fewer."
        )
    counts = np.arange(1, max_vms + 1)
    truth: Floats = np.interp(counts, samples.vms, samples.means())
    return truth


def needed_vms(capacity: Floats, rates: Floats) -> Counts:
    """Return the fewest VMs whose capacity is at least the rate (equation 11). `capacity[m - 1]` is for m VMs.

    If no capacity suffices, return the fewest VMs with the largest capacity; more VMs may have less.

    >>> needed_vms(np.array([2.0, 4.0, 3.0, 9.0, 7.0]), np.array([1.0, 3.5, 4.5, 20.0])).tolist()
    [1, 2, 4, 4]
    """
    best = running_maximum(capacity)
    vms: Counts = np.searchsorted(best, np.minimum(rates, best[-1]), side="left") + 1
    return vms


def intervals_ahead(trace: Trace, terms: RentalTerms) -> int:
    """Return the intervals before which VMs must be ordered to serve a whole interval; at least 1.

    >>> minutes = Trace(rates=(1.0, 2.0), interval_s=60.0)
    >>> [intervals_ahead(minutes, RentalTerms(delay_s=delay_s)) for delay_s in (0.0, 60.0, 90.0, 300.0)]
    [1, 1, 2, 5]
    """
    return max(1, math.ceil(terms.delay_s / trace.interval_s - 1e-9))


def reactive(policy: str, vms: Counts, ahead: int = 1) -> ElasticSchedule:
    """Return a schedule that orders VMs when it observes the load; the previous VMs serve until they are ready.

    `ahead` is the number of intervals from an order to the first one that the VMs serve as a whole.
    """
    return ElasticSchedule(policy=policy, vms=delayed(vms, ahead - 1), ready=delayed(vms, ahead))


def delayed(vms: Counts, intervals: int) -> Counts:
    """Return the counts of so many intervals earlier, and the first count before that."""
    earlier: Counts = vms[np.maximum(0, np.arange(len(vms)) - intervals)]
    return earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """Cost and violations of a schedule."""

    cost_per_h: float
    violations: float  # share of time with a load above the MST


def rental(trace: Trace, schedule: ElasticSchedule, truth: Floats, terms: RentalTerms) -> Rental:
    """Return the cost and violations of a schedule; see `simulate`."""
    rates, interval_s = trace.array(), trace.interval_s
    delay_s = _delay_s(trace, schedule, terms)
    vms, ready = schedule.vms, schedule.ready
    early, late = truth[ready - 1], truth[vms - 1]
    violated_s = (early < rates).sum() * delay_s + (late < rates).sum() * (interval_s - delay_s)

    # VMs are paid from their order, which is `terms.delay_s` before they serve.
    serving = np.stack([ready, vms], axis=-1).ravel()
    since_s = np.add.outer(interval_s * np.arange(len(rates)), [0.0, delay_s]).ravel()
    ordered_s = 0.0 if schedule.instant else terms.delay_s
    starting_s = (np.maximum(0, np.diff(serving)) * np.minimum(ordered_s, since_s[1:])).sum()
    vm_s = ready.sum() * delay_s + vms.sum() * (interval_s - delay_s) + starting_s
    total_s = interval_s * len(rates)
    return Rental(cost_per_h=float(vm_s) / total_s * terms.price_per_h, violations=float(violated_s) / total_s)


def simulate(trace: Trace, schedule: ElasticSchedule, truth: Floats, terms: RentalTerms) -> ElasticOutcome:
    """Evaluate a schedule. Every VM is paid from its order to its release, including the time in which it starts."""
    rented = rental(trace, schedule, truth, terms)
    delay_s, interval_s = _delay_s(trace, schedule, terms), trace.interval_s
    capacities = np.stack([truth[schedule.ready - 1], truth[schedule.vms - 1]], axis=-1).ravel()
    spans_s = np.tile([delay_s, interval_s - delay_s], len(trace.rates))
    behind_s, lag_s = _backlog(np.repeat(trace.array(), 2), capacities, spans_s)
    return ElasticOutcome(
        policy=schedule.policy,
        cost_per_h=rented.cost_per_h,
        violations=rented.violations,
        behind=behind_s / (interval_s * len(trace.rates)),
        worst_lag_s=lag_s,
        mean_vms=float(schedule.vms.mean()),
        peak_vms=int(schedule.vms.max()),
    )


def _delay_s(trace: Trace, schedule: ElasticSchedule, terms: RentalTerms) -> float:
    """Return the time at the start of an interval in which `ready` VMs serve: the delay without whole intervals."""
    if schedule.instant:
        return 0.0
    return terms.delay_s - (intervals_ahead(trace, terms) - 1) * trace.interval_s


def _backlog(rates: Floats, capacities: Floats, spans_s: Floats) -> tuple[float, float]:
    """Return the seconds with a backlog, and the longest wait of its oldest row (backlog / capacity).

    The load is constant within a span. A backlog b changes by (rate - capacity) per second, so a positive spare
    capacity removes it after b / (capacity - rate) seconds.
    """
    backlog, behind_s, worst_s = 0.0, 0.0, 0.0
    for rate, capacity, span_s in zip(rates.tolist(), capacities.tolist(), spans_s.tolist(), strict=True):
        spare = capacity - rate
        if spare < 0:
            behind_s += span_s
            backlog -= spare * span_s
        elif backlog > 0:
            drained_s = backlog / spare if spare > 0 else math.inf
            behind_s += min(span_s, drained_s)
            backlog = max(0.0, backlog - spare * span_s)
        worst_s = max(worst_s, backlog / capacity)
    return behind_s, worst_s
