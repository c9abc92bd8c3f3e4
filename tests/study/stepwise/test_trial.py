"""Trials on the simulator: the load under control obeys Little's law, and the length of a trial depends on its answer."""

from __future__ import annotations

import pytest

import penstock
from penstock.apps.stepwise import word_count
from penstock.control.loop import Clock
from penstock.dataflow import Dataflow
from penstock.engines.ports import RunnableEngine
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour, SimulatedEngine
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.plan import Plan, default_plan
from penstock.study.stepwise.feature_trial import measure_features, measure_features_in_batches
from penstock.study.stepwise.operator_types import OperatorType
from penstock.study.stepwise.region_graph import (
    RegionFeatures,
    equal_within_queries,
    region_features,
    regions_by_query,
    separating_cuts,
)
from penstock.study.stepwise.sequential_test import TrialLimits, Verdict
from penstock.study.stepwise.trial import FreshEngine, TrialSettings, measure_trial
from tests.support.simulated_flows import MODES, chain, plan_for

SETTINGS = TrialSettings(latency_target_s=1.0, window_s=4.0)
CAPACITY_PER_S = 200.0  # two replicas, 10 ms per row
BEHAVIOUR = Behaviour(
    operators={"work": OperatorBehaviour(service_s=Exponential(mean=0.01))},
    batch=SimulatedBatchCosts(batch_s=0.1, task_s=0.0, target_s=10.0),
)


def engines(flow: Dataflow, behaviour: Behaviour, mode: str) -> FreshEngine:
    made = []

    def fresh(plan: Plan) -> tuple[RunnableEngine, Clock]:
        made.append(plan)
        engine = SimulatedEngine(flow, behaviour, plan=plan, mode=mode, seed=len(made))
        return engine, engine.clock

    return fresh


def features_of(flow: Dataflow, fresh: FreshEngine) -> RegionFeatures:
    return region_features(flow, measure_features(fresh, plan_for(flow), {}))


@pytest.mark.parametrize("rows", [50, 150])
def test_rows_in_flight_and_latency_obey_littles_law_row_by_row(rows: int) -> None:
    flow = chain("work")
    fresh = engines(flow, BEHAVIOUR, "row-by-row")
    trial = measure_trial(
        fresh, plan_for(flow, work=2), features_of(flow, fresh), SETTINGS, unfinished_rows=rows, reference=None
    )
    rate = sum(trial.rows_per_s) / len(trial.rows_per_s)
    assert rate == pytest.approx(CAPACITY_PER_S, rel=0.05)
    # Two more rows are in service. The load varies around its limit.
    assert trial.latency_s == pytest.approx((rows + 2) / CAPACITY_PER_S, rel=0.2)
    assert trial.regions["work"].capacity == pytest.approx(1.0, abs=0.05)
    assert trial.regions["work"].latency_s == pytest.approx(trial.latency_s, rel=0.2)


def test_the_throughput_of_batches_depends_on_the_rows_in_flight() -> None:
    flow = chain("work")
    fresh = engines(flow, BEHAVIOUR, "micro-batch")
    features, rates = features_of(flow, fresh), []
    for rows in (20, 400):
        trial = measure_trial(fresh, plan_for(flow, work=2), features, SETTINGS, unfinished_rows=rows, reference=None)
        rates.append(sum(trial.rows_per_s) / len(trial.rows_per_s))
    # A batch of 20 rows takes 0.1 s + 20 / 200 s, which is half of the capacity; 400 rows reach 95 % of it.
    assert rates[0] < 0.7 * CAPACITY_PER_S < 0.8 * CAPACITY_PER_S < rates[1] <= 1.03 * CAPACITY_PER_S


@pytest.mark.parametrize("mode", MODES)
def test_features_do_not_depend_on_the_engine(mode: str) -> None:
    flow = chain("a", "b", "c")
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Fixed(value=0.002), selectivity=Fixed(value=3.0)),
            "b": OperatorBehaviour(service_s=Fixed(value=0.001), selectivity=Fixed(value=0.5)),
            "c": OperatorBehaviour(service_s=Fixed(value=0.004)),
        }
    )
    features = features_of(flow, engines(flow, behaviour, mode))
    assert features.visits == pytest.approx({"source": 1, "a": 1, "b": 3, "c": 1.5, "out": 1.5}, rel=0.05)
    assert features.seconds_per_external_row == pytest.approx({"a": 0.002, "b": 0.003, "c": 0.006}, rel=0.05)
    # Streams per row: 1 to a, 3 to b, 1.5 to c, 1.5 to the sink.
    sizes = {name: load.input_size for name, load in features.loads.items()}
    assert sizes == pytest.approx({"a": 1 / 7, "b": 3 / 7, "c": 1.5 / 7}, rel=0.05)
    assert features.non_scalable == frozenset()


def test_features_in_batches_are_those_of_the_operators() -> None:
    """A batch takes 0.1 s at least, which is not part of the cost of an operator."""
    flow = chain("a", "b")
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Fixed(value=0.002), selectivity=Fixed(value=3.0)),
            "b": OperatorBehaviour(service_s=Fixed(value=0.001)),
        },
        batch=SimulatedBatchCosts(batch_s=0.1, task_s=0.0, target_s=10.0),
    )
    measured = measure_features_in_batches(engines(flow, behaviour, "micro-batch"), plan_for(flow), {})
    features = region_features(flow, measured)
    assert features.visits == pytest.approx({"source": 1, "a": 1, "b": 3, "out": 3}, rel=0.05)
    assert features.seconds_per_external_row == pytest.approx({"a": 0.002, "b": 0.003}, rel=0.05)
    assert {operator.type for operator in measured} == {"proportional"}


def test_a_trial_ends_when_its_question_is_answered() -> None:
    flow = chain("work")
    fresh = engines(flow, BEHAVIOUR, "row-by-row")
    features, settings = features_of(flow, fresh), SETTINGS
    first = measure_trial(fresh, plan_for(flow, work=2), features, settings, unfinished_rows=100, reference=None)
    better = measure_trial(
        fresh, plan_for(flow, work=3), features, settings, unfinished_rows=100, reference=first.rows_per_s
    )
    worse = measure_trial(
        fresh, plan_for(flow, work=1), features, settings, unfinished_rows=100, reference=first.rows_per_s
    )
    assert (first.verdict, better.verdict, worse.verdict) == (None, Verdict.BETTER, Verdict.WORSE)
    longest_s = (settings.limits.max_warm_up + settings.limits.max_windows) * settings.window_s
    assert 0.5 * longest_s < min(better.saved_s, worse.saved_s) < longest_s
    assert len(better.rows_per_s) >= settings.limits.min_windows


def test_a_trial_that_misses_the_target_ends_if_it_is_of_no_use_then() -> None:
    flow = chain("work")
    fresh = engines(flow, BEHAVIOUR, "row-by-row")
    settings = TrialSettings(latency_target_s=0.2, window_s=4.0, limits=TrialLimits())
    features = features_of(flow, fresh)
    plan, rows = default_plan(flow, slots=64, replicas={"work": 2}), 400  # 2 s at 200 rows/s
    first = measure_trial(fresh, plan, features, settings, unfinished_rows=rows, reference=None)
    again = measure_trial(
        fresh, plan, features, settings, unfinished_rows=rows, reference=first.rows_per_s, ends_when_missed=True
    )
    assert again.verdict is Verdict.TARGET_MISSED


def test_a_region_behind_a_logic_dependent_operator_does_not_scale() -> None:
    flow = penstock.Dataflow("branches")
    rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1.0))
    top = rows.global_state("top", lambda df: df)
    top.keyed("behind", lambda df: df, keys=["m"]).sink("out", penstock.noop())
    rows.keyed("beside", lambda df: df, keys=["n"]).sink("other", penstock.noop())
    service = OperatorBehaviour(service_s=Fixed(value=0.001))
    fresh = engines(flow, Behaviour(operators={"top": service, "behind": service, "beside": service}), "row-by-row")
    measured = measure_features(fresh, plan_for(flow), {"top": OperatorType.LOGIC_DEPENDENT})
    features = region_features(flow, measured)
    assert features.non_scalable == {"behind"}
    assert {name: load.non_parallel for name, load in features.loads.items()} == {
        "top": True,
        "behind": False,
        "beside": False,
    }


def test_stages_of_one_query_get_equal_tasks() -> None:
    assert equal_within_queries(word_count.flow(), {"parse": 3, "count": 2}) == {"parse": 3, "count": 3}
    # Operators with state and different keys are in separate queries.
    assert equal_within_queries(chain("a", "b"), {"a": 1, "b": 3}) == {"a": 1, "b": 3}


def test_a_region_gets_a_query_of_its_own_by_cuts() -> None:
    flow = word_count.flow()
    whole, cut = default_plan(flow), default_plan(flow).replace(cuts=frozenset({"split"}))
    assert regions_by_query(flow, whole) == [{"parse", "count"}]  # the first one also contains split
    assert regions_by_query(flow, cut) == [{"parse"}, {"count"}]
    # The first region reads the source directly, and the last one ends in a sink.
    assert separating_cuts(flow, "parse") == {"split"} == separating_cuts(flow, "count")
    assert separating_cuts(chain("a", "b", "c"), "b") == {"a", "b"}


def test_copies_of_a_row_in_parallel_branches_count_once() -> None:
    """Each of two operators keeps up with 100 rows/s, and the same rows wait for both of them."""
    flow = penstock.Dataflow("branches")
    rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1.0))
    branches = [rows.stateless(name, lambda df: df) for name in ("left", "right")]
    flow.stateless("merge", lambda df: df, inputs=branches).sink("out", penstock.noop())
    service = OperatorBehaviour(service_s=Exponential(mean=0.01))
    fresh = engines(flow, Behaviour(operators={"left": service, "right": service}), "row-by-row")
    trial = measure_trial(
        fresh, plan_for(flow), features_of(flow, fresh), SETTINGS, unfinished_rows=100, reference=None
    )
    # The longer of two queues has 100 rows, which is 1 s; the other one is shorter at times.
    assert 0.6 < trial.latency_s < 1.2
