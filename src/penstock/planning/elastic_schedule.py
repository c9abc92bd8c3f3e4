"""How many VMs to rent as the load moves: what a schedule costs and when it falls short.

Source of the rules: Imai, Patterson and Varela (2017), section 6. At each interval's start the scheduler sees the load
and orders VMs; for `delay_s` the VMs of the interval before still carry it. Load above the MST of the VMs that carry it
is a violation. What a backlog does, and what VMs cost while they start, is ours.
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
    """The prices, delays or bounds of a schedule make no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalTerms:
    """What a VM costs an hour, how long a change takes, and how many VMs there may be."""

    price_per_h: float = 0.10
    delay_s: float = 60.0
    max_vms: int = 128

    def __post_init__(self) -> None:
        if not (math.isfinite(self.price_per_h) and self.price_per_h > 0):
            raise ElasticError(f"a VM costs {self.price_per_h} an hour; the price must be above 0")
        if not (math.isfinite(self.delay_s) and self.delay_s >= 0):
            raise ElasticError(f"a change takes {self.delay_s} s; the delay must be 0 or more")
        if self.max_vms < 1:
            raise ElasticError(f"at most {self.max_vms} VMs; the bound must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticSchedule:
    """VMs by interval: `vms` once the change is through, `ready` while it is under way (its first `delay_s`).

    `instant` schedules know no delay; none such can be had.
    """

    policy: str
    vms: Counts
    ready: Counts
    instant: bool = False

    def part(self, first: int, last: int) -> ElasticSchedule:
        return replace(self, vms=self.vms[first:last], ready=self.ready[first:last])


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticOutcome:
    """Shares are of time. `violations`: load above MST, as the paper counts. `behind`: with a backlog, which drains
    when there is capacity to spare; `worst_lag_s` is how long the oldest of it waited at worst."""

    policy: str
    cost_per_h: float
    violations: float
    behind: float
    worst_lag_s: float
    mean_vms: float
    peak_vms: int


def ground_truth(samples: ThroughputSamples, max_vms: int) -> Floats:
    """Mean MST on 1, 2, ... `max_vms` VMs, linear between the counts measured: what a schedule is judged by."""
    if max_vms > max(samples.vms):
        raise SamplesError(
            f"app '{samples.app}' was measured on up to {max(samples.vms)} VMs, a schedule may take {max_vms}; "
            "measure more or allow fewer"
        )
    counts = np.arange(1, max_vms + 1)
    truth: Floats = np.interp(counts, samples.vms, samples.means())
    return truth


def needed_vms(capacity: Floats, rates: Floats) -> Counts:
    """The fewest VMs whose capacity (by VM count, from 1) is at least the rate (equation 11).

    Where none is, the fewest with the largest capacity: more of them may do less.

    >>> needed_vms(np.array([2.0, 4.0, 3.0, 9.0, 7.0]), np.array([1.0, 3.5, 4.5, 20.0])).tolist()
    [1, 2, 4, 4]
    """
    best = running_maximum(capacity)
    found: Counts = np.searchsorted(best, np.minimum(rates, best[-1]), side="left") + 1
    return found


def reactive(policy: str, vms: Counts) -> ElasticSchedule:
    """VMs are ordered when the interval's load is seen; until they are there, those of the interval before serve."""
    return ElasticSchedule(policy=policy, vms=vms, ready=np.concatenate([vms[:1], vms[:-1]]))


def simulate(trace: Trace, schedule: ElasticSchedule, truth: Floats, terms: RentalTerms) -> ElasticOutcome:
    """Every VM is paid from its order to its release: while it starts, and while its successor starts."""
    rates, interval_s = trace.array(), trace.interval_s
    delay_s = 0.0 if schedule.instant else min(terms.delay_s, interval_s)
    vms, ready = schedule.vms, schedule.ready
    early, late = truth[ready - 1], truth[vms - 1]
    violated_s = (early < rates).sum() * delay_s + (late < rates).sum() * (interval_s - delay_s)

    ordered_before = np.maximum(0, ready[1:] - vms[:-1]).sum()  # ready at once means ordered a delay earlier
    vm_s = (np.maximum(vms, ready).sum() + ordered_before) * delay_s + vms.sum() * (interval_s - delay_s)

    capacities = np.stack([early, late], axis=-1).ravel()
    spans_s = np.tile([delay_s, interval_s - delay_s], len(rates))
    behind_s, lag_s = _backlog(np.repeat(rates, 2), capacities, spans_s)
    total_s = interval_s * len(rates)
    return ElasticOutcome(
        policy=schedule.policy,
        cost_per_h=float(vm_s) / total_s * terms.price_per_h,
        violations=float(violated_s) / total_s,
        behind=behind_s / total_s,
        worst_lag_s=lag_s,
        mean_vms=float(vms.mean()),
        peak_vms=int(vms.max()),
    )


def _backlog(rates: Floats, capacities: Floats, spans_s: Floats) -> tuple[float, float]:
    """Seconds with a backlog, and the longest that its head waited (backlog / capacity), for loads constant in spans.

    A backlog b grows by (rate - capacity) a second; with capacity to spare it is gone after b / (capacity - rate).
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
