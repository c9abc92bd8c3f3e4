"""Evaluate a plan change: compare what was measured before, what was expected, and what was measured after."""

from __future__ import annotations

import math
from typing import NamedTuple

from penstock.control.demand import demand_of
from penstock.control.policy import Hold, Situation, latency_s
from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import DecisionRecord

_SIGNIFICANT = 0.02  # a smaller relative difference is not an expected improvement
_BACKLOG_S = 1.0  # rows that wait for less time are not a backlog
_NOISE = 0.2  # relative noise of the throughput of a few windows
_SLOWDOWN = 0.05  # relative loss of throughput from which more replicas count as harmful


class OutcomeBound(NamedTuple):
    """A bound on what is measured after a change."""

    value: float
    share: float  # power by which the bound follows the value measured before, which is noisy
    is_least: bool  # a least throughput; otherwise a greatest latency

    def met_by(self, observed: PlanOutcome) -> bool:
        """Return whether a measurement is within the bound. Unknown values are."""
        measured = observed.rows_per_s if self.is_least else observed.latency_s
        return measured is None or (measured >= self.value if self.is_least else measured <= self.value)


def outcome_bounds(
    before: PlanOutcome, expected: PlanOutcome, *, tolerance: float, input_per_s: float | None = None
) -> tuple[OutcomeBound, ...]:
    """Return the bounds within which a change meets its expectation. Unknown values have no bound.

    - An expected improvement of latency or throughput must be reached up to `tolerance` of the step. If a higher
      throughput was expected, the old plan did not keep up and had no steady latency, so only the throughput counts.
      No plan processes more than `input_per_s`.
    - A release of slots must keep the latency target. Without a target, or if it was missed before, the latency may be
      at most 1 + tolerance times the expected and the previous one.
    """
    old, wanted = before.rows_per_s, expected.rows_per_s
    if wanted is not None and input_per_s is not None:
        wanted = min(wanted, input_per_s)
    latency = _latency_bounds(before, expected, tolerance)
    if old is None or wanted is None:
        return latency
    if not _is_release(before, expected) and wanted > old * (1.0 + _SIGNIFICANT):
        return (_step(old, wanted, tolerance, is_least=True),)
    return (OutcomeBound(wanted * (1.0 - _NOISE), 0.0, is_least=True), *latency)


def _latency_bounds(before: PlanOutcome, expected: PlanOutcome, tolerance: float) -> tuple[OutcomeBound, ...]:
    old, wanted, target = before.latency_s, expected.latency_s, expected.at_most_s
    at_target = () if target is None else (OutcomeBound(target, 0.0, is_least=False),)
    if old is None:
        return ()
    if wanted is None:
        # No latency was expected, but a target that was met before must still be met.
        return at_target if target is not None and old <= target else ()
    if _is_release(before, expected):
        # A lower latency is not part of the expectation here: a few percent are within the noise.
        if target is not None and old <= target:
            return at_target
        return (OutcomeBound((1.0 + tolerance) * max(old, wanted), 1.0 if old > wanted else 0.0, is_least=False),)
    if wanted < old * (1.0 - _SIGNIFICANT):
        # A plan that meets the target is kept even if the model expected more.
        step = _step(old, wanted, tolerance, is_least=False)
        return at_target if target is not None and target > step.value else (step,)
    return at_target or (OutcomeBound((1.0 + tolerance) * wanted, 0.0, is_least=False),)


def _step(old: float, wanted: float, tolerance: float, *, is_least: bool) -> OutcomeBound:
    """Return the bound that at most the share `tolerance` of an improvement is missing."""
    bound = old + (1.0 - tolerance) * (wanted - old)
    return OutcomeBound(bound, tolerance * old / bound if bound > 0 else 0.0, is_least)


def expectation_met(
    before: PlanOutcome,
    expected: PlanOutcome,
    observed: PlanOutcome,
    *,
    tolerance: float,
    input_per_s: float | None = None,
) -> bool:
    """Return whether a measurement is within all bounds.

    >>> before, expected = PlanOutcome(slots=4, latency_s=2.0), PlanOutcome(slots=6, latency_s=1.0)
    >>> observed = [PlanOutcome(slots=6, latency_s=s) for s in (0.9, 1.4, 1.6, 2.5)]
    >>> [expectation_met(before, expected, outcome, tolerance=0.5) for outcome in observed]
    [True, True, False, False]
    """
    required = outcome_bounds(before, expected, tolerance=tolerance, input_per_s=input_per_s)
    return all(bound.met_by(observed) for bound in required)


def _is_release(before: PlanOutcome, expected: PlanOutcome) -> bool:
    return expected.slots < before.slots


def measures_earlier_rows(before: PlanOutcome, observed: PlanOutcome, *, now_s: float, since_s: float) -> bool:
    """Return whether the measured rows arrived before the change, or no rows come out although some did before.

    >>> before, slow = PlanOutcome(slots=3, latency_s=9.0), PlanOutcome(slots=9, latency_s=20.0)
    >>> [measures_earlier_rows(before, slow, now_s=now_s, since_s=100.0) for now_s in (115.0, 125.0)]
    [True, False]
    """
    if observed.latency_s is None or observed.rows_per_s == 0:
        return before.latency_s is not None
    return now_s - observed.latency_s < since_s


def old_plan_was_insufficient(before: PlanOutcome, observed: PlanOutcome, input_per_s: float | None) -> bool:
    """Return whether the old plan processed less than arrives, and no more than the new one: a roll-back cannot help.

    >>> new = PlanOutcome(slots=9, rows_per_s=150.0)
    >>> [old_plan_was_insufficient(PlanOutcome(slots=3, rows_per_s=r), new, 200.0) for r in (70.0, 190.0)]
    [True, False]
    """
    old, new = before.rows_per_s, observed.rows_per_s
    if old is None or new is None or input_per_s is None:
        return False
    return old < input_per_s * (1.0 - _NOISE) and old <= new


def reverses(row: DecisionRecord, plan: Plan, expected: PlanOutcome) -> bool:
    """Return whether a plan takes back an earlier change: the old plan, or more slots after a release."""
    released = row.before is not None and row.expected is not None and _is_release(row.before, row.expected)
    return plan == row.old or (released and row.expected is not None and expected.slots > row.expected.slots)


def needs_its_resources(situation: Situation, old_plan: Plan, before: PlanOutcome, observed: PlanOutcome) -> bool:
    """Return whether rows pile up under a plan that has at least the resources of the old one and is no slower."""
    old, new, latest = before.rows_per_s, observed.rows_per_s, situation.latest
    if old is None or new is None or new < old * (1.0 - _SLOWDOWN) or latest is None:
        return False
    plan = situation.plan
    is_larger = plan.slots >= old_plan.slots and all(
        plan.replicas.get(name, 0) >= count for name, count in old_plan.replicas.items()
    )
    return is_larger and situation.backlog_rows(latest) > normal_backlog_rows(situation, latest)


def observed_outcome(situation: Situation, quantile: float | None) -> PlanOutcome:
    """Return what was measured under the current plan."""
    window = situation.window
    assert window is not None
    return PlanOutcome(
        slots=situation.slots,
        latency_s=latency_s(window.latency, quantile),
        quantile=quantile,
        rows_per_s=throughput_per_s(situation, window),
    )


def throughput_per_s(situation: Situation, window: Window) -> float | None:
    """Return the external rows/s that were processed.

    Micro-batch: the rows read from all sources; None if a batch lasted longer than the windows and none was committed.
    Row by row: a source passes rows on immediately, so the slowest operator counts.
    """
    total = 0.0
    uncommitted = {name for pipeline in window.pipelines if not pipeline.batches for name in pipeline.operators}
    for operator in window.operators:
        if operator.operator in situation.topology.sources:
            if operator.processed_rows_per_s is None or (situation.micro_batch and operator.operator in uncommitted):
                return None
            total += operator.processed_rows_per_s
    return total if situation.micro_batch else min(total, _slowest_operator_per_s(situation, window))


def _slowest_operator_per_s(situation: Situation, window: Window) -> float:
    """Return the external rows/s that the slowest operator with a backlog processed.

    Operators without a backlog processed all their input; their own counts would add noise.
    """
    demand = demand_of(situation)
    if isinstance(demand, Hold):
        return math.inf
    rates = [
        operator.processed_rows_per_s * demand.external_per_s / arrival_per_s
        for operator in window.operators
        if operator.processed_rows_per_s is not None
        and (arrival_per_s := demand.arrivals.get(operator.operator, 0.0)) > 0.0
        and (operator.backlog_rows or 0) > _BACKLOG_S * arrival_per_s
    ]
    return min(rates, default=math.inf)


def backlog_is_draining(situation: Situation, baseline: Window | None) -> bool:
    """Return whether a backlog has become smaller since the baseline window; measurements then describe the past."""
    latest = situation.latest
    if baseline is None or latest is None:
        return False
    return situation.backlog_rows(baseline) > max(
        situation.backlog_rows(latest), normal_backlog_rows(situation, baseline)
    )


def normal_backlog_rows(situation: Situation, window: Window) -> float:
    """Return the rows that wait in a healthy run, because rows that arrive during a batch wait for the next one.

    A window in which no batch ended has no batch duration; the smoothed window supplies it.
    """
    latest, smoothed = situation.latest, situation.window
    usual_s = {} if smoothed is None else {pipeline.pipeline: pipeline.batch_s for pipeline in smoothed.pipelines}
    batch_s = sum(pipeline.batch_s or usual_s.get(pipeline.pipeline) or 0.0 for pipeline in window.pipelines)
    return (_BACKLOG_S + batch_s) * ((latest and latest.external_rows_per_s) or 0.0)


def outcome_comparison(expected: PlanOutcome, observed: PlanOutcome) -> str:
    """Return the expected and the observed latency or throughput in words; empty if neither is known."""
    if expected.latency_s is not None and observed.latency_s is not None:
        return f": expected latency {expected.latency_s:.3g} s, observed {observed.latency_s:.3g} s"
    if expected.rows_per_s is not None and observed.rows_per_s is not None:
        return f": expected {expected.rows_per_s:.4g} rows/s, observed {observed.rows_per_s:.4g}"
    return ""
