"""Decisions of policy auto in words."""

from __future__ import annotations

import math

import numpy as np

from penstock.control.policies.auto.choices import View
from penstock.control.policies.auto.learning import present_counts
from penstock.control.policies.auto.replay import ReplayedPlan, Target
from penstock.control.policy import latency_s
from penstock.plan.counts import slots_text


def observed(view: View, target: Target | None, paid_slots: int) -> str:
    """Return what was measured, in words."""
    quantile = None if target is None else target.quantile
    measured_s = latency_s(view.latest.latency, quantile)
    metric = "mean latency" if quantile is None else f"p{100 * quantile:g} latency"
    text = f"The {metric} is {'unknown' if measured_s is None else f'{measured_s:.3g} s'}"
    if target is not None:
        text += f" (target {target.seconds:.3g} s)"
    rate = view.latest.external_rows_per_s or 0.0
    text += f" with {slots_text(paid_slots)} at {rate:.4g} rows/s"
    if abs(view.expected.level_per_s - rate) > 0.1 * rate:
        text += f", and {view.expected.level_per_s:.4g} rows/s are expected"
    return text


def limit_text(view: View, needs: int | None, limiting: str | None, reachable_s: float | None) -> str:
    """Return which limit is binding, and what happens if each limit is relaxed."""
    limit = slots_text(view.situation.max_slots)
    if limiting is not None:
        return (
            f"operator '{limiting}' cannot process the load with any allowed number of replicas, so neither more slots "
            "nor a higher target helps"
        )
    target = "" if reachable_s is None else f"a target of {reachable_s:.3g} s would be met within {limit}"
    if needs is None:
        return f"no plan meets the target, and more slots do not help; {target or 'the load needs all slots'}"
    more = f"no plan meets the target within {limit}; {slots_text(needs)} would meet it"
    return f"{more}, and {target}" if target else f"{more}, and no higher target helps within {limit}"


def bottleneck(view: View) -> str:
    """Return the operator with the highest utilisation."""
    network = view.present
    busy = network.utilisation(present_counts(network, view.situation.plan), view.expected.level_per_s)
    return network.stations[int(np.argmax(busy))][0]


def interval(result: ReplayedPlan) -> str:
    """Return the expected latency with its interval."""
    if not math.isfinite(result.latency_s) or result.latency_s > 1e5:
        return "a growing backlog"
    low_s, high_s = result.interval_s
    return f"{result.latency_s:.3g} s (90 % of windows: {low_s:.3g} to {high_s:.3g} s)"
