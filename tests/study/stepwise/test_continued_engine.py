"""One engine for all trials, on the simulator: plans are applied, and the totals of a trial begin with it."""

from __future__ import annotations

import pytest

from penstock.dataflow import PenstockError
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.study.stepwise.continued_engine import ContinuedEngine, warm_up
from penstock.study.stepwise.feature_trial import measure_features_in_batches
from penstock.study.stepwise.region_graph import region_features
from penstock.study.stepwise.trial import TrialSettings, measure_trial
from tests.support.simulated_flows import MODES, chain, plan_for

BEHAVIOUR = Behaviour(
    operators={"work": OperatorBehaviour(service_s=Fixed(value=0.01))},
    batch=SimulatedBatchCosts(batch_s=0.05, task_s=0.0, target_s=10.0),
)


class Engines:
    """One simulated engine that is started when the first trial begins."""

    def __init__(self, mode: str) -> None:
        self.flow = chain("work")
        self.engine = SimulatedEngine(self.flow, BEHAVIOUR, plan=plan_for(self.flow), mode=mode, seed=1)
        self.starts = 0
        self.continued = ContinuedEngine(self._start, self.engine.clock)

    def _start(self) -> SimulatedEngine:
        self.starts += 1
        self.engine.start()
        return self.engine


@pytest.mark.parametrize("mode", MODES)
def test_the_next_trial_changes_the_plan_of_the_running_engine(mode: str) -> None:
    engines = Engines(mode)
    for replicas in (1, 3):
        engine, clock = engines.continued.trial(plan_for(engines.flow, work=replicas))
        engine.start()
        assert engine.plan.replicas["work"] == replicas
        engine.set_rate("source", 20.0)
        clock.sleep(30.0)
        window = engine.observe()
        # 20 rows/s for 30 s, at random times; rows of the earlier trial do not count.
        assert window.operator("work").rows_in_total == pytest.approx(600, rel=0.2)
        engine.stop()
        clock.sleep(10.0)
        engine.observe()
        clock.sleep(10.0)
        assert engine.observe().external_rows_per_s == 0
    assert engines.starts == 1
    engines.continued.close()


def test_fewer_slots_than_planned_are_an_error() -> None:
    engines = Engines("row-by-row")
    engines.engine.apply = lambda plan: None  # type: ignore[assignment, method-assign]  # executors do not arrive
    engine, _ = engines.continued.trial(plan_for(engines.flow).replace(slots=1_000))
    with pytest.raises(PenstockError, match="A trial needs 1000 slots, but only"):
        engine.start()


def test_trials_on_one_engine_measure_what_the_operators_allow() -> None:
    """One replica processes 100 rows/s, and a batch takes 0.05 s in addition."""
    engines = Engines("micro-batch")
    fresh = engines.continued.trial
    features = region_features(engines.flow, measure_features_in_batches(fresh, plan_for(engines.flow), {}))
    assert features.seconds_per_external_row["work"] == pytest.approx(0.01, rel=0.05)
    settings = TrialSettings(latency_target_s=1.0, window_s=4.0)
    rates = []
    for replicas in (1, 2):
        plan = plan_for(engines.flow, work=replicas)
        trial = measure_trial(fresh, plan, features, settings, unfinished_rows=200, reference=None)
        rates.append(sum(trial.rows_per_s) / len(trial.rows_per_s))
    assert rates == pytest.approx([100.0, 200.0], rel=0.1)


def test_the_warm_up_ends_with_sources_that_are_stopped() -> None:
    engines = Engines("micro-batch")
    engines.engine.start()
    warm_up(engines.engine, engines.engine.clock)
    warmed_s = engines.engine.clock.time()
    assert warmed_s < 30.0  # batches of equal length are warm
    engines.engine.clock.sleep(10.0)
    engines.engine.observe()
    engines.engine.clock.sleep(10.0)
    assert engines.engine.observe().external_rows_per_s == 0
