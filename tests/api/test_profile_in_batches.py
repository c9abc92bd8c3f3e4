"""The settings of a profile on Spark, with a simulated engine in place of Spark: batches with a fixed time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.api.profile_trials import costs_for_trials
from penstock.apps.stepwise import word_count
from penstock.control.loop import Clock
from penstock.dataflow import Dataflow
from penstock.engines.ports import RunnableEngine
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.measure.window import Window
from penstock.plan import Plan, default_plan
from penstock.study.stepwise.continued_engine import ContinuedEngine
from penstock.study.stepwise.profile import Profile

BATCH_S, TASK_S, ROW_S, SLOTS, LATENCY_S = 0.12, 0.004, 0.005, 16, 0.5
BATCHES = SimulatedBatchCosts(batch_s=BATCH_S, task_s=TASK_S, target_s=2.0)


class SparkLike(SimulatedEngine):
    """Tells when batches ended, within the time between two windows."""

    def observe(self) -> Window:
        window = super().observe()
        ended = tuple(
            msgspec.structs.replace(query, last_batch_ended_s=window.end_s if query.batches else None)
            for query in window.pipelines
        )
        return msgspec.structs.replace(window, pipelines=ended)


def profiled(monkeypatch: pytest.MonkeyPatch, flow: Dataflow, costs: Behaviour, slots: int, at: Path) -> Profile:
    class Trials:
        def __init__(self, flow: Dataflow, platform: Any, directory: Path) -> None:
            plan = default_plan(flow, slots=slots)
            self.engine = SparkLike(
                flow, costs_for_trials(flow, costs.replace(batch=BATCHES)), plan=plan, mode="micro-batch", seed=1
            )
            self.engines = ContinuedEngine(self.start, self.engine.clock)

        def start(self) -> RunnableEngine:
            self.engine.start()
            return self.engine

        def fresh(self, plan: Plan) -> tuple[RunnableEngine, Clock]:
            return self.engines.trial(plan)

        def row_bytes(self) -> dict[str, float]:
            return {}

        def time(self) -> float:
            return self.engine.clock.time()

        def close(self) -> None:
            self.engines.close()

    monkeypatch.setattr("penstock.api.profiling.SparkTrials", Trials)
    return penstock.profile(flow, slots=slots, latency_s=LATENCY_S, at=at)


@pytest.mark.long
def test_the_result_is_close_to_the_best_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flow = penstock.Dataflow("waiting")
    rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1.0))
    rows.stateless("wait", lambda df: df).sink("out", penstock.noop())
    costs = Behaviour(operators={"wait": OperatorBehaviour(service_s=Fixed(value=ROW_S))})
    result = profiled(monkeypatch, flow, costs, SLOTS, tmp_path / "study")
    # A batch takes D = A / (1 - rate x cost / tasks) with A = fixed time + time per task. A row waits for D / 2 and is
    # processed within D, so that 1.5 D is the latency. The best of all plans by this formula:
    best = max(tasks / ROW_S * (1.0 - 1.5 * (BATCH_S + TASK_S * tasks) / LATENCY_S) for tasks in range(1, SLOTS + 1))
    assert result.meets_target
    assert result.rows_per_s >= 0.9 * best
    assert len(result.rounds) <= 16
    assert penstock.Plan.from_json((tmp_path / "study" / "plan.json").read_bytes()) == result.plan


def test_a_task_for_one_stage_of_a_query_is_tried_with_a_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On two slots, a query for each stage pays the fixed time of batches twice and gains nothing."""
    result = profiled(monkeypatch, word_count.flow(), word_count.behaviour(), 2, tmp_path / "study")
    tried = [row for row in result.rounds if row.change == "operator + 1 with a cut"]
    assert tried and all(row.plan.cuts == {"split"} and "need a cut after split" in row.reason for row in tried)
    assert not any(row.kept for row in tried)
    assert result.plan.cuts == frozenset()
    assert set(result.plan.replicas.values()) == {2}
