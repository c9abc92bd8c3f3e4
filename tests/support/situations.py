"""Situations of policies: small dataflows on the queueing engine, measured under a constant load."""

from __future__ import annotations

from hypothesis import strategies as st

import penstock
from penstock.control.policy import Situation
from penstock.control.topology import Topology
from tests.support.applications import patterns, plan_of, video
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import QueueingEngine


def branches() -> penstock.Dataflow:
    """A fan-out, an operator with one global state, and a join of two streams."""
    flow = penstock.Dataflow("branches")
    source = flow.source("lines", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10.0))
    left = source.keyed("left", lambda frame: frame, keys=["n"], columns=["n"])
    right = source.global_state("right", lambda frame: frame, columns=["n"])
    flow.keyed("both", lambda frame: frame, keys=["n"], inputs=[left, right]).sink("out", penstock.noop())
    return flow


FLOWS = {
    "video": (video, {"extract": 5.0, "match": 4.5, "aggregate": 100.0}, {}),
    "patterns": (patterns, {"generate": 5.0, "detect": 4.5, "report": 9.0}, {"detect": 0.2}),
    "branches": (branches, {"left": 4.0, "right": 30.0, "both": 6.0}, {"left": 0.5}),
}


def situation_of(
    flow_name: str, counts: tuple[int, ...], rate: float, slots: int, *, micro_batch: bool = False, windows: int = 2
) -> Situation:
    make, service, selectivity = FLOWS[flow_name]
    flow = make()
    clock = FakeClock()
    given = dict(zip(service, counts, strict=True))
    if flow_name == "branches":
        given["right"] = 1
    engine = QueueingEngine(
        flow,
        plan_of(flow, given, slots=slots),
        clock=clock,
        rate=lambda _: rate,
        service_per_s=service,
        selectivity=selectivity,
        batch_s=0.1 if micro_batch else None,
        replica_s=0.02,
    )
    engine.start()
    for _ in range(windows):
        clock.sleep(60.0)
        window = engine.observe()
    return Situation(
        now_s=clock.time(),
        topology=Topology.of(flow),
        plan=engine.plan,
        window=window,
        latest=window,
        max_slots=slots,
        micro_batch=micro_batch,
        stale_after_s=60.0,
    )


situations = st.builds(
    situation_of,
    st.sampled_from(sorted(FLOWS)),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.floats(0.5, 40.0),
    st.integers(3, 24),
    micro_batch=st.booleans(),
)
