"""Profiles of small dataflows as values, for tests of the policy that uses them."""

from __future__ import annotations

from penstock.plan import default_plan
from penstock.store import ProfiledOperator
from penstock.study.stepwise.stored_profile import ProfiledPlan, StoredProfile
from tests.support.applications import video


def operator(name: str, seconds: float, rows_in: float, streams: dict[str, float]) -> ProfiledOperator:
    return ProfiledOperator(operator=name, type="proportional", min_latency_s=seconds, rows_in=rows_in, streams=streams)


def video_profile(*sizes: tuple[int, dict[str, int], float]) -> StoredProfile:
    """The video application, whose operators process 5, 4.5 and 100 rows/s, for (slots, tasks, rows/s)."""
    flow = video()
    plans = sizes or (
        (3, {"extract": 1, "match": 1, "aggregate": 1}, 4.5),
        (12, {"extract": 5, "match": 6, "aggregate": 1}, 25.0),
        (24, {"extract": 11, "match": 12, "aggregate": 1}, 54.0),
    )
    return StoredProfile(
        dataflow=flow.name,
        plans=tuple(
            ProfiledPlan(plan=default_plan(flow, slots=slots, replicas=tasks), rows_per_s=rate, latency_s=0.4)
            for slots, tasks, rate in plans
        ),
        operators=(
            operator("frames", 0.0, 1.0, {"extract": 1 / 4}),
            operator("extract", 1 / 5.0, 1.0, {"match": 1 / 4}),
            operator("match", 1 / 4.5, 1.0, {"aggregate": 1 / 4}),
            operator("aggregate", 1 / 100.0, 1.0, {"logos": 1 / 4}),
            operator("logos", 0.0, 1.0, {}),
        ),
        latency_target_s=1.5,
    )
