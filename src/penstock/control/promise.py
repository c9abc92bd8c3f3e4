"""Did a change bring what it promised? Measured before, expected, and measured after."""

from __future__ import annotations

import math

from penstock.control.correction import measured_s
from penstock.control.decisions import Hold
from penstock.control.demand import demand_of
from penstock.control.situation import Situation
from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome

_A_DIFFERENCE = 0.02  # of what it was: less is not a promise
_WORTH_S = 1.0  # from which on what waits is a backlog
_NOISE = 0.2  # of the rows/s of a few windows
_HARM = 0.05  # of the rows/s: from which on more replicas have made it slower


def kept(
    before: PlanOutcome,
    expected: PlanOutcome,
    observed: PlanOutcome,
    *,
    tolerance: float,
    comes_per_s: float | None = None,
) -> bool:
    """A change that promised less of the latency, or more rows, has to bring 1 - tolerance of the promised step.

    Where it promised more rows, the plan before it did not keep up and had no latency to speak of: only rows count,
    and no plan takes in more than comes.
    One that promised slots has to do no harm: to stay below the target, or where there is none or it was missed before,
    within 1 + tolerance of what it expected and of what was. What is not known breaks no promise.

    >>> before, expected = PlanOutcome(slots=4, latency_s=2.0), PlanOutcome(slots=6, latency_s=1.0)
    >>> [kept(before, expected, PlanOutcome(slots=6, latency_s=s), tolerance=0.5) for s in (0.9, 1.4, 1.6, 2.5)]
    [True, True, False, False]
    """
    was, promised, is_now = before.rows_per_s, expected.rows_per_s, observed.rows_per_s
    if promised is not None and comes_per_s is not None:
        promised = min(promised, comes_per_s)
    if was is not None and promised is not None and is_now is not None:
        if not _releases(before, expected) and promised > was * (1.0 + _A_DIFFERENCE):
            return is_now >= was + (1.0 - tolerance) * (promised - was)
        if is_now < promised * (1.0 - _NOISE):
            return False
    return _latency_kept(before, expected, observed, tolerance)


def _latency_kept(before: PlanOutcome, expected: PlanOutcome, observed: PlanOutcome, tolerance: float) -> bool:
    was, promised, is_now = before.latency_s, expected.latency_s, observed.latency_s
    if promised is None or is_now is None or was is None:
        # It promised no latency; to lose one that met the target was no part of it.
        at_most = expected.at_most_s
        return at_most is None or is_now is None or was is None or not was <= at_most < is_now
    if _releases(before, expected):
        # That it expected less of the latency, too, is no promise: a few percent of it are within the noise.
        met_before = expected.at_most_s is not None and was <= expected.at_most_s
        return expected.met_by(observed) if met_before else is_now <= (1.0 + tolerance) * max(was, promised)
    if promised < was * (1.0 - _A_DIFFERENCE):
        # The target may be met although the model promised more: nobody is to be rolled back out of it.
        met = expected.at_most_s is not None and is_now <= expected.at_most_s
        return met or is_now <= was - (1.0 - tolerance) * (was - promised)
    if expected.at_most_s is not None:
        return is_now <= expected.at_most_s
    return is_now <= (1.0 + tolerance) * promised


def _releases(before: PlanOutcome, expected: PlanOutcome) -> bool:
    return expected.slots < before.slots


def left_over(before: PlanOutcome, observed: PlanOutcome, *, now_s: float, since_s: float) -> bool:
    """Whether the rows that come out are those from before the change, or none do where some did.

    >>> before, slow = PlanOutcome(slots=3, latency_s=9.0), PlanOutcome(slots=9, latency_s=20.0)
    >>> [left_over(before, slow, now_s=now_s, since_s=100.0) for now_s in (115.0, 125.0)]
    [True, False]
    """
    if observed.latency_s is None or observed.rows_per_s == 0:
        return before.latency_s is not None
    return now_s - observed.latency_s < since_s


def overrun(before: PlanOutcome, observed: PlanOutcome, comes_per_s: float | None) -> bool:
    """Whether the plan before took in less than what comes, and no more than this one: there is no way back to it.

    >>> observed = PlanOutcome(slots=9, rows_per_s=150.0)
    >>> [overrun(PlanOutcome(slots=3, rows_per_s=before), observed, 200.0) for before in (70.0, 190.0)]
    [True, False]
    """
    was, is_now = before.rows_per_s, observed.rows_per_s
    if was is None or is_now is None or comes_per_s is None:
        return False
    return was < comes_per_s * (1.0 - _NOISE) and was <= is_now


def outgrown(situation: Situation, old: Plan, before: PlanOutcome, observed: PlanOutcome) -> bool:
    """Whether rows pile up under a plan that has all that the one before had, and is no slower: less will not do."""
    was, is_now, latest = before.rows_per_s, observed.rows_per_s, situation.latest
    if was is None or is_now is None or is_now < was * (1.0 - _HARM) or latest is None:
        return False
    new = situation.plan
    more = new.slots >= old.slots and all(new.replicas.get(name, 0) >= k for name, k in old.replicas.items())
    return more and situation.waiting(latest) > _in_passing(situation, latest)


def observed_outcome(situation: Situation, quantile: float | None) -> PlanOutcome:
    """What the windows under the plan in force say."""
    window = situation.window
    assert window is not None
    return PlanOutcome(
        slots=situation.slots,
        latency_s=measured_s(window.latency, quantile),
        quantile=quantile,
        rows_per_s=taken_in(situation, window),
    )


def taken_in(situation: Situation, window: Window) -> float | None:
    """Rows/s from outside that were done.

    In micro-batches those that were read from all sources; not known where a batch took longer than the windows and
    none was committed. Row by row a source passes on at once whatever comes: there it is what the slowest operator did.
    """
    total = 0.0
    in_hand = {name for one in window.pipelines if not one.batches for name in one.operators}
    for one in window.operators:
        if one.operator in situation.shape.sources:
            if one.processed_rows_per_s is None or (situation.micro_batch and one.operator in in_hand):
                return None
            total += one.processed_rows_per_s
    return total if situation.micro_batch else min(total, _slowest(situation, window))


def _slowest(situation: Situation, window: Window) -> float:
    """Rows/s from outside that the operator did which was furthest behind what came to it.

    One that nothing to speak of waits for did all that came: of few rows its own count would be mostly noise.
    """
    demand = demand_of(situation)
    if isinstance(demand, Hold):
        return math.inf
    done = [
        one.processed_rows_per_s * demand.external_per_s / coming
        for one in window.operators
        if one.processed_rows_per_s is not None
        and (coming := demand.arrivals.get(one.operator, 0.0)) > 0.0
        and (one.backlog_rows or 0) > _WORTH_S * coming
    ]
    return min(done, default=math.inf)


def draining(situation: Situation, previous: Window | None) -> bool:
    """Whether a backlog worth a second or more got smaller: what is measured meanwhile is of the past.

    What comes while a batch runs always waits for the next one, and is no backlog.
    """
    latest = situation.latest
    if previous is None or latest is None:
        return False
    return situation.waiting(previous) > max(situation.waiting(latest), _in_passing(situation, previous))


def _in_passing(situation: Situation, window: Window) -> float:
    """Rows that wait where all is well.

    Where a batch lasts for several windows, most of them end within one: only all of them together, smoothed, tell how
    long it takes.
    """
    latest, smoothed = situation.latest, situation.window
    usual_s = {} if smoothed is None else {one.pipeline: one.batch_s for one in smoothed.pipelines}
    batch_s = sum(one.batch_s or usual_s.get(one.pipeline) or 0.0 for one in window.pipelines)
    return (_WORTH_S + batch_s) * ((latest and latest.external_rows_per_s) or 0.0)
