"""Dataflows for the arena: the shapes and rates of the two applications of DRS, without their work.

Fu et al., "DRS: Auto-Scaling for Real-Time Stream Analytics", section V. Service times are exponential; their means are
chosen so that the best of all ways to spread 22 slots row by row is the published one: (10:11:1) and (6:13:3).

Engines that work in micro-batches are for many small rows: with a row that takes as long as a batch, a batch lasts as
long as its slowest row. There each row comes as `grain` rows with as much less work, so that the load stays what it is.
Batches cost what they were seen to cost on Spark: about 0.1 s each, and 20 ms for each task with state.
"""

from __future__ import annotations

from collections.abc import Mapping

import penstock
from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated import (
    BatchCosts,
    Behaviour,
    Exponential,
    Fixed,
    OperatorBehaviour,
    SourceBehaviour,
)

FINE = 100  # rows for each one: the grain for micro-batches


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
    """Frequent patterns of a sliding window, with the loop of the detector."""
    flow = penstock.Dataflow("patterns")
    both = [
        flow.source(name, penstock.generate(int, schema="n bigint", rows_per_s=160.0))
        for name in ("entering", "leaving")
    ]
    changes = flow.feedback("changes", schema="pattern string, sign int")
    candidates = flow.stateless("generate", None, inputs=both, columns=["pattern", "sign"])
    found = flow.keyed("detect", _no_work, keys=["pattern"], inputs=[candidates, changes], columns=["pattern", "sign"])
    found.feed(changes)
    found.keyed("report", _no_work, keys=["sign"]).sink("out", penstock.noop())
    return flow, _behaviour(flow, {"generate": 80.0, "detect": 40.0, "report": 55.0}, {"detect": 0.2}, 160.0, grain)


def _behaviour(
    flow: Dataflow,
    service_per_s: Mapping[str, float],
    selectivity: Mapping[str, float],
    rows_per_s: float,
    grain: int,
) -> Behaviour:
    """Rows arrive at random (Poisson) and take exponential times: a Jackson network."""
    operators = {
        name: OperatorBehaviour(
            service_s=Exponential(mean=1.0 / (rate * grain)), selectivity=Fixed(value=selectivity.get(name, 1.0))
        )
        for name, rate in service_per_s.items()
    }
    sources = [one.name for one in flow.operators if one.kind is Kind.SOURCE]
    return Behaviour(
        operators=operators,
        sources={name: SourceBehaviour(rates=((0.0, rows_per_s * grain),)) for name in sources},
        batch=BatchCosts(batch_s=0.1, task_s=0.02, aim_s=10.0),
    )


SCENARIOS = {"video": video, "patterns": patterns}
