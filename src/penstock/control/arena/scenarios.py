"""Dataflows of the arena: the graphs and rates of the two applications of DRS, without their work.

Fu et al., "DRS: Auto-Scaling for Real-Time Stream Analytics", section V. Service times are exponential. Their means are
chosen so that the best row-by-row allocation of 22 slots is the published one: (10:11:1) and (6:13:3).

Micro-batch engines are made for many small rows: a batch lasts at least as long as its slowest row. In that mode each
row is replaced by `grain` rows with 1/`grain` of the work, which keeps the load the same. Batch costs are those that
were measured on Spark: about 0.1 s per batch, and 20 ms per task with state.
"""

from __future__ import annotations

from collections.abc import Mapping

import penstock
from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Fixed,
    OperatorBehaviour,
    SimulatedBatchCosts,
    SourceBehaviour,
)

FINE = 100  # grain for micro-batches


def _no_work(*frames: object) -> object:
    return frames[0]


def video(grain: int = 1) -> tuple[Dataflow, Behaviour]:
    """Logo detection: frames -> features -> matches -> logos."""
    flow = penstock.Dataflow("video")
    frames = flow.source("frames", penstock.generate(int, schema="n bigint", rows_per_s=13.0))
    features = frames.stateless("extract", _no_work, columns=["frame", "feature"])
    matches = features.keyed("match", _no_work, keys=["feature"], columns=["frame", "logo"])
    matches.keyed("aggregate", _no_work, keys=["frame"]).sink("logos", penstock.noop())
    return flow, _behaviour(flow, {"extract": 1.6, "match": 1.4, "aggregate": 120.0}, {}, 13.0, grain)


def patterns(grain: int = 1) -> tuple[Dataflow, Behaviour]:
    """Frequent patterns of a sliding window; the detector feeds back to itself."""
    flow = penstock.Dataflow("patterns")
    both = [
        flow.source(name, penstock.generate(int, schema="n bigint", rows_per_s=160.0))
        for name in ("entering", "leaving")
    ]
    changes = flow.feedback("changes", schema="pattern string, sign int")
    candidates = flow.stateless("generate", None, inputs=both, columns=["pattern", "sign"])
    detected = flow.keyed(
        "detect", _no_work, keys=["pattern"], inputs=[candidates, changes], columns=["pattern", "sign"]
    )
    detected.feed(changes)
    detected.keyed("report", _no_work, keys=["sign"]).sink("out", penstock.noop())
    return flow, _behaviour(flow, {"generate": 80.0, "detect": 40.0, "report": 55.0}, {"detect": 0.2}, 160.0, grain)


def _behaviour(
    flow: Dataflow,
    service_per_s: Mapping[str, float],
    selectivity: Mapping[str, float],
    rows_per_s: float,
    grain: int,
) -> Behaviour:
    """Return Poisson arrivals and exponential service times: a Jackson network."""
    operators = {
        name: OperatorBehaviour(
            service_s=Exponential(mean=1.0 / (rate * grain)), selectivity=Fixed(value=selectivity.get(name, 1.0))
        )
        for name, rate in service_per_s.items()
    }
    sources = [operator.name for operator in flow.operators if operator.kind is Kind.SOURCE]
    return Behaviour(
        operators=operators,
        sources={name: SourceBehaviour(rates=((0.0, rows_per_s * grain),)) for name in sources},
        batch=SimulatedBatchCosts(batch_s=0.1, task_s=0.02, target_s=10.0),
    )


SCENARIOS = {"video": video, "patterns": patterns}
