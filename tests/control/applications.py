"""The two applications of the DRS paper as dataflows: their shape and their rates, not their work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product

from queueing_engine import mmk_sojourn_s

import penstock as ps
from penstock.plan import Plan, default_plan


def no_work(frame: object) -> object:
    return frame


def video() -> ps.Dataflow:
    """Video logo detection: frames -> features -> matches -> logos."""
    flow = ps.Dataflow("video")
    frames = flow.source("frames", ps.generate(lambda n: n, schema="n bigint", rows_per_s=13.0))
    features = frames.stateless("extract", no_work, columns=["frame", "feature"])
    matches = features.keyed("match", ["feature"], no_work, columns=["frame", "logo"])
    matches.keyed("aggregate", ["frame"], no_work).sink("logos", ps.noop())
    return flow


def patterns() -> ps.Dataflow:
    """Frequent patterns, with the loop of the detector."""
    flow = ps.Dataflow("patterns")
    entering = flow.source("entering", ps.generate(lambda n: n, schema="n bigint", rows_per_s=160.0))
    leaving = flow.source("leaving", ps.generate(lambda n: n, schema="n bigint", rows_per_s=160.0))
    changes = flow.feedback("changes", "pattern string, sign int")
    candidates = flow.stateless("generate", no_work, inputs=[entering, leaving], columns=["pattern", "sign"])
    found = flow.keyed("detect", no_work, keys=["pattern"], inputs=[candidates, changes], columns=["pattern", "sign"])
    found.feed(changes)
    found.keyed("report", ["sign"], no_work).sink("out", ps.noop())
    return flow


VIDEO_SERVICE = {"extract": 1.6, "match": 1.4, "aggregate": 120.0}
PATTERNS_SERVICE = {"generate": 80.0, "detect": 40.0, "report": 55.0}
PATTERNS_SELECTIVITY = {"detect": 0.2}


def plan_of(flow: ps.Dataflow, counts: Mapping[str, int], slots: int = 22) -> Plan:
    return default_plan(flow, slots=slots, replicas=counts)


def allocations(names: list[str], total: int) -> Iterator[dict[str, int]]:
    """All that use exactly so many."""
    for counts in product(range(1, total), repeat=len(names)):
        if sum(counts) == total:
            yield dict(zip(names, counts, strict=True))


def mean_s(
    visits: Mapping[str, float], external: float, service: Mapping[str, float], counts: Mapping[str, int]
) -> float:
    """E[T] of an open Jackson network, station by station; infinite where one does not keep up."""
    total = 0.0
    for name, k in counts.items():
        arrival = visits[name] * external
        if arrival >= k * service[name]:
            return math.inf
        total += visits[name] * mmk_sojourn_s(arrival, service[name], k)
    return total
