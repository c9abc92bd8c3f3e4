"""Dataflows for tests of policies: the two applications of the DRS paper without work, and a chain that sleeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product

import penstock
from penstock.control.arena import scenarios
from penstock.plan import Plan, default_plan
from tests.support.queueing_engine import mmk_latency_s


def video() -> penstock.Dataflow:
    return scenarios.video()[0]


def patterns() -> penstock.Dataflow:
    return scenarios.patterns()[0]


VIDEO_SERVICE = {"extract": 1.6, "match": 1.4, "aggregate": 120.0}
PATTERNS_SERVICE = {"generate": 80.0, "detect": 40.0, "report": 55.0}
PATTERNS_SELECTIVITY = {"detect": 0.2}


def plan_of(flow: penstock.Dataflow, counts: Mapping[str, int], slots: int = 22) -> Plan:
    return default_plan(flow, slots=slots, replicas=counts)


def allocations(names: list[str], total: int) -> Iterator[dict[str, int]]:
    """Return all allocations with this total."""
    for counts in product(range(1, total), repeat=len(names)):
        if sum(counts) == total:
            yield dict(zip(names, counts, strict=True))


def mean_s(
    visits: Mapping[str, float], external: float, service: Mapping[str, float], counts: Mapping[str, int]
) -> float:
    """Return E[T] of an open Jackson network; infinite if a station is unstable."""
    total = 0.0
    for name, k in counts.items():
        arrival = visits[name] * external
        if arrival >= k * service[name]:
            return math.inf
        total += visits[name] * mmk_latency_s(arrival, service[name], k)
    return total


def waiting() -> penstock.Dataflow:
    flow = penstock.Dataflow("waiting")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10.0))
    rows.stateless("wait", lambda frame: frame).sink("out", penstock.noop())
    return flow
