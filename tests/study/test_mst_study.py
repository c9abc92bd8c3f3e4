"""MST on the simulated engine, whose capacity has a closed form, and interrupted studies."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.control.controller import Settings
from penstock.control.policies.drs import Drs, DrsSettings, LeastLatency
from penstock.dataflow import Dataflow, PenstockError
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine
from penstock.engines.simulated.behaviour import ChangePause, SimulatedBatchCosts, SimulatedCluster
from penstock.measure.smoothing import MovingAverage
from penstock.measure.stationarity import latency_grows, latency_slope
from penstock.plan import Plan, default_plan
from penstock.store import RunStart, Store, StoreReader, Trial
from penstock.study.mst.design import (
    PACED,
    SATURATED,
    PlannedTrial,
    grid,
    next_trial,
    plan_for,
    replicas_per_query,
    samples_of,
)
from penstock.study.mst.model import model_of
from penstock.study.mst.paced import Bisection, keeps_up, measure_paced
from penstock.study.mst.replica_search import ReplicaPolicy
from penstock.study.mst.samples import Saturation
from penstock.study.mst.saturated import measure_saturated
from penstock.study.mst.study import Fresh, MstStudy
from penstock.study.mst.trial_engine import started
from tests.support.trial_clock import SLOTS_EACH, WAIT_S, Time


def waiting_bound() -> Dataflow:
    flow = penstock.Dataflow("waiting")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10.0))
    rows.stateless("wait", lambda frame: frame).sink("out", penstock.noop())
    return flow


def engine_of(executors: int, *, mode: str, seed: int = 0) -> SimulatedEngine:
    flow = waiting_bound()
    behaviour = Behaviour(
        operators={"wait": OperatorBehaviour(service_s=Fixed(value=WAIT_S))},
        cluster=SimulatedCluster(slots_per_executor=SLOTS_EACH, max_executors=4),
        batch=SimulatedBatchCosts(batch_s=0.05, task_s=0.0, max_rows=2_000),
    )
    return SimulatedEngine(flow, behaviour, plan=plan_for(flow, executors, SLOTS_EACH), mode=mode, seed=seed)


class Poisoned(SimulatedEngine):
    """A query that always fails at the same row; the engine gives up after three restarts."""

    starts = 0

    def recover(self) -> tuple[str, ...]:
        self.starts += 1
        return ("pipeline 'wait' failed and was started again: row 700 is bad",)

    def failure(self) -> str | None:
        return "pipeline 'wait' failed: row 700 is bad (4 times at the same place)" if self.starts > 3 else None


def study_of(store: Store, clock: Time, fresh: Fresh, by: ReplicaPolicy | None = None) -> MstStudy:
    return MstStudy(
        app="waiting",
        fresh=fresh,
        store=store,
        clock=clock,
        saturation=Saturation(window_s=10.0, warm_up=2),
        bisection=Bisection(window_s=20.0, warm_up=3, windows=10),
        slots_per_executor=SLOTS_EACH,
        by=by,
    )


def study_in(store: Store, mode: str, made: list[tuple[PlannedTrial, int]] | None = None, die_at: int = -1) -> MstStudy:
    clock = Time()
    count = [0]

    def fresh(planned: PlannedTrial, run: int) -> SimulatedEngine:
        if count[0] == die_at:
            raise KeyboardInterrupt
        count[0] += 1
        if made is not None:
            made.append((planned, run))
        clock.engine = engine_of(planned.executors, mode=mode, seed=planned.repeat)
        return clock.engine

    clock.engine = engine_of(1, mode=mode)
    return study_of(store, clock, fresh)


def begun(at: Path) -> Store:
    store = Store(at)
    store.begin_run(RunStart(dataflow="waiting", flow_file="-", pid=1, master="simulated", started_s=0.0))
    return store


@pytest.mark.parametrize("mode", ["row-by-row", "micro-batch"])
def test_both_definitions_find_the_capacity(tmp_path: Path, mode: str) -> None:
    with begun(tmp_path) as store:
        study_in(store, mode).run([1, 3], paced=True)
        trials = {(trial.study, trial.executors): trial for trial in store.trials()}
    for executors in (1, 3):
        capacity = executors * SLOTS_EACH / WAIT_S  # slots over seconds per row
        first, second = trials[SATURATED, executors], trials[PACED, executors]
        assert first.converged and second.converged
        assert first.rows_per_s == pytest.approx(capacity, rel=0.1)
        assert second.rows_per_s == pytest.approx(first.rows_per_s, rel=0.15)


def chain_study(
    store: Store, mode: str, costs: dict[str, float], each: int, by: ReplicaPolicy | None = None
) -> MstStudy:
    """Return a chain of keyed operators in separate queries, on 4 executors."""
    flow = penstock.Dataflow("chain")
    stream = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint, m bigint", rows_per_s=10.0))
    for number, name in enumerate(costs):
        stream = stream.keyed(name, lambda frame: frame, keys=[("n", "m")[number % 2]], columns=["n", "m"])
    stream.sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={name: OperatorBehaviour(service_s=Fixed(value=cost)) for name, cost in costs.items()},
        cluster=SimulatedCluster(slots_per_executor=SLOTS_EACH, max_executors=4),
        batch=SimulatedBatchCosts(batch_s=0.05, task_s=0.0, max_rows=2_000),
    )
    clock, cuts = Time(), frozenset(list(costs)[:-1])
    even = Plan(dataflow="chain", cuts=cuts, replicas=dict.fromkeys(costs, each), slots=4 * SLOTS_EACH)

    def fresh(planned: PlannedTrial, run: int) -> SimulatedEngine:
        clock.engine = SimulatedEngine(flow, behaviour, plan=planned.plan or even, mode=mode)
        return clock.engine

    fresh(PlannedTrial(executors=4, repeat=0), 0)
    return study_of(store, clock, fresh, by)


@pytest.mark.parametrize("mode", ["row-by-row", "micro-batch"])
@pytest.mark.parametrize("costs", [(0.01, 0.02, 0.05), (0.05, 0.02, 0.01), (0.01, 0.05, 0.03)])
def test_the_slowest_of_several_queries_is_measured(tmp_path: Path, mode: str, costs: tuple[float, ...]) -> None:
    with begun(tmp_path) as store:
        chain_study(store, mode, dict(zip("abc", costs, strict=True)), each=2).run([4])
        (trial,) = store.trials()
    assert trial.rows_per_s == pytest.approx(2 / 0.05, rel=0.05)


def two_sources() -> tuple[Dataflow, Plan]:
    """Return an engine with the sources orders and clicks; each has its own operator and query."""
    flow = penstock.Dataflow("two")
    for name, rate in (("orders", 10.0), ("clicks", 1000.0)):
        stream = flow.source(name, penstock.generate(lambda n: n, schema="n bigint", rows_per_s=rate))
        stream.stateless(f"{name}_work", lambda frame: frame).sink(f"{name}_out", penstock.noop())
    return flow, default_plan(flow, slots=4, replicas={"orders_work": 2, "clicks_work": 2})


@pytest.mark.parametrize("mode", ["row-by-row", "micro-batch"])
def test_sources_have_their_declared_shares(tmp_path: Path, mode: str) -> None:
    flow, plan = two_sources()
    costs = {"orders_work": 0.05, "clicks_work": 0.0005}
    behaviour = Behaviour(
        operators={name: OperatorBehaviour(service_s=Fixed(value=cost)) for name, cost in costs.items()},
        cluster=SimulatedCluster(slots_per_executor=SLOTS_EACH, max_executors=2),
        batch=SimulatedBatchCosts(batch_s=0.05, task_s=0.0, max_rows=2_000),
    )
    clock = Time()

    def fresh(planned: PlannedTrial, run: int) -> SimulatedEngine:
        clock.engine = SimulatedEngine(flow, behaviour, plan=plan, mode=mode)
        return clock.engine

    fresh(PlannedTrial(executors=2, repeat=0), 0)
    with begun(tmp_path) as store:
        study_of(store, clock, fresh).run([2])
        (trial,) = store.trials()
    # Clicks are served at 4,000 rows/s, orders at 40. 10 of 1,010 rows are orders, so clicks are the bottleneck.
    assert trial.converged and trial.rows_per_s == pytest.approx(4_000 * 1010 / 1000, rel=0.1)


@pytest.mark.parametrize("mode", ["row-by-row", "micro-batch"])
def test_a_policy_sets_the_replicas_of_a_trial(tmp_path: Path, mode: str) -> None:
    costs = {"light": 0.01, "heavy": 0.05}
    settings = Settings(mode="active", smoothing=MovingAverage(2), micro_batch=mode == "micro-batch", warm_up_s=20.0)
    drs = ReplicaPolicy(policy=Drs(DrsSettings(goal=LeastLatency())), settings=settings)
    with begun(tmp_path) as store:
        chain_study(store, mode, costs, each=4, by=drs).run([4], repeats=2)
        trials = store.trials()
    best = max(min(k / costs["light"], (8 - k) / costs["heavy"]) for k in range(1, 8))
    assert [trial.rows_per_s for trial in trials] == [pytest.approx(best, rel=0.05)] * 2
    assert [trial.replicas_by for trial in trials] == ["drs"] * 2


@pytest.mark.parametrize(("rows_per_s", "kept_up"), [(70.0, True), (90.0, True), (115.0, False), (126.0, False)])
def test_batches_longer_than_windows_do_not_hide_a_backlog(rows_per_s: float, kept_up: bool) -> None:
    clock = Time()

    def fresh() -> SimulatedEngine:
        clock.engine = engine_of(1, mode="micro-batch")  # 100 rows/s, in batches of up to 20 s
        return clock.engine

    fresh()
    how = Bisection(window_s=5.0, warm_up=3, windows=10)
    assert keeps_up(fresh, rows_per_s, how, clock) is kept_up


def test_samples_before_a_step_do_not_count() -> None:
    """Three windows of one replica, then three of two: four of the five differences are small."""
    clock = Time()
    flow = waiting_bound()
    behaviour = Behaviour(
        operators={"wait": OperatorBehaviour(service_s=Fixed(value=WAIT_S))}, change=ChangePause(fixed_s=0.0)
    )
    two = plan_for(flow, 1, SLOTS_EACH)
    clock.engine = engine = SimulatedEngine(flow, behaviour, plan=two, mode="row-by-row")
    engine.start()
    engine.apply(two.replace(replicas=two.replicas | {"wait": 1}))
    slept = []

    def sleep(seconds: float, /) -> None:
        if len(slept) == 5:
            engine.apply(two)
        slept.append(seconds)
        engine.clock.sleep(seconds)

    clock.sleep = sleep  # type: ignore[method-assign]
    measured = measure_saturated(lambda _: engine, Saturation(window_s=10.0, warm_up=2), clock)
    assert measured.converged and measured.rows_per_s == pytest.approx(2 / WAIT_S, rel=0.05)


@pytest.mark.parametrize(
    "error", [penstock.PenstockError("'out' failed while it was drained: job 8 cancelled"), ConnectionRefusedError()]
)
def test_failures_during_an_interruption_are_not_errors(error: Exception) -> None:
    """On Ctrl-C, PySpark cancels its jobs and a draining query fails; a SIGTERM to the process group ends the JVM."""
    engine = engine_of(1, mode="row-by-row")

    def failed() -> None:
        raise error

    engine.stop = failed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), started(engine):
        raise KeyboardInterrupt
    with pytest.raises(type(error)), started(engine):
        pass


@pytest.mark.parametrize("guess_per_s", [40.0, 100.0, 180.0])
def test_a_guess_that_is_off_is_widened(guess_per_s: float) -> None:
    clock = Time()

    def fresh() -> SimulatedEngine:
        clock.engine = engine_of(1, mode="row-by-row")  # 100 rows/s
        return clock.engine

    fresh()
    measured = measure_paced(fresh, guess_per_s, Bisection(window_s=20.0, warm_up=3, windows=10), clock)
    assert measured.converged and measured.rows_per_s == pytest.approx(100.0, rel=0.1)


def test_a_trial_without_a_result_is_repeated(tmp_path: Path) -> None:
    with begun(tmp_path) as store:
        study = study_in(store, "row-by-row")

        def fewer(planned: PlannedTrial, run: int) -> SimulatedEngine:
            return study.fresh(PlannedTrial(executors=1, repeat=planned.repeat), run)

        short = MstStudy(app="waiting", fresh=fewer, store=store, clock=study.clock, slots_per_executor=SLOTS_EACH)
        short.run([2], paced=True)
        assert [(trial.study, trial.rows_per_s) for trial in store.trials()] == [(SATURATED, None), (PACED, None)]
        study.run([2], paced=True)
        assert [trial.rows_per_s is None for trial in store.trials()] == [True, True, False, False]


def test_an_interrupted_study_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    first: list[tuple[PlannedTrial, int]] = []
    with pytest.raises(KeyboardInterrupt), begun(tmp_path) as store:
        study_in(store, "row-by-row", first, die_at=3).run([1, 2, 3], repeats=2)
    with StoreReader(tmp_path) as reader:
        assert len(reader.trials()) == 3
    second: list[tuple[PlannedTrial, int]] = []
    seen: list[tuple[int, int]] = []
    with begun(tmp_path) as store:
        study_in(store, "row-by-row", second).run(
            [1, 2, 3], repeats=2, on=lambda trial, done, total: seen.append((done, total))
        )
        assert [trial.key for trial in store.trials()] == [trial.key for trial in grid([1, 2, 3], 2)]
    assert {trial.key for trial, _ in first}.isdisjoint(trial.key for trial, _ in second)
    assert seen == [(4, 6), (5, 6), (6, 6)]


def capped_study(store: Store, made: list[int]) -> MstStudy:
    """Return a study of an operator with at most four replicas: more than two executors add nothing."""
    clock, flow = Time(), waiting_bound()
    behaviour = Behaviour(operators={"wait": OperatorBehaviour(service_s=Fixed(value=WAIT_S))})

    def fresh(planned: PlannedTrial, run: int) -> SimulatedEngine:
        plan = plan_for(flow, planned.executors, SLOTS_EACH)
        made.append(planned.executors)
        replicas = plan.replicas | {"wait": min(4, plan.replicas["wait"])}
        clock.engine = SimulatedEngine(flow, behaviour, plan=plan.replace(replicas=replicas), mode="row-by-row")
        return clock.engine

    fresh(PlannedTrial(executors=1, repeat=0), 0)
    made.clear()
    return study_of(store, clock, fresh)


def test_the_counts_at_which_the_models_differ_are_measured_and_select_the_model(tmp_path: Path) -> None:
    made: list[int] = []
    with begun(tmp_path) as store:
        study = capped_study(store, made)
        study.run([1, 2, 3])
        seen: list[tuple[int, int]] = []
        study.validate(8, on=lambda trial, done, total: seen.append((done, total)))
        counts = made[3:]
        assert counts and all(3 < count <= 8 for count in counts)
        assert seen == [(3 + number, 3 + len(counts)) for number in range(1, len(counts) + 1)]
        study.validate(8)
        assert made[3:] == counts  # nothing is measured twice
        trials = store.trials()
    model = model_of(samples_of("waiting", trials), trials, 16)  # type: ignore[arg-type]
    assert model.selection.validated == tuple(sorted(set(counts)))
    assert model.selection.trained == (1, 2, 3)
    (prediction,) = model.predict([16])
    assert prediction.throughput == pytest.approx(4 / WAIT_S, rel=0.1)  # four replicas


def test_models_that_agree_need_no_validation(tmp_path: Path) -> None:
    with begun(tmp_path) as store:
        study = study_in(store, "row-by-row")
        study.run([1, 2, 3])
        study.validate(4)
        assert len(store.trials()) == 3


def test_missing_executors_give_no_sample(tmp_path: Path) -> None:
    with begun(tmp_path) as store:
        study = study_in(store, "row-by-row")

        def fewer(planned: PlannedTrial, run: int) -> SimulatedEngine:
            return study.fresh(PlannedTrial(executors=2, repeat=planned.repeat), run)

        MstStudy(app="waiting", fresh=fewer, store=store, clock=study.clock, slots_per_executor=SLOTS_EACH).run([3])
        (trial,) = store.trials()
    assert trial.rows_per_s is None and trial.reason == "3 executors were requested, but only 2 were available"
    assert samples_of("waiting", [trial]) is None


def trial_of(executors: int, rows_per_s: float, repeat: int = 0) -> Trial:
    plan = plan_for(waiting_bound(), executors, SLOTS_EACH)
    return Trial(
        study=SATURATED,
        executors=executors,
        repeat=repeat,
        plan=plan,
        began_s=0.0,
        ended_s=1.0,
        rows_per_s=rows_per_s,
        converged=True,
    )


def test_a_budget_measures_the_ends_first_and_then_the_widest_interval(tmp_path: Path) -> None:
    allowed = [1, 2, 3, 4]
    assert next_trial("a", [], allowed, 8) == PlannedTrial(executors=1, repeat=0)
    assert next_trial("a", [trial_of(1, 100.0)], allowed, 8) == PlannedTrial(executors=4, repeat=0)
    noisy = [trial_of(1, 100.0), trial_of(1, 101.0, 1), trial_of(4, 250.0), trial_of(4, 390.0, 1)]
    planned = next_trial("a", noisy, allowed, 8)
    assert planned.executors in (2, 3)  # there is no measurement
    with begun(tmp_path) as store:
        study_in(store, "row-by-row").spend(4, allowed, predict=8)
        done = store.trials()
    assert len(done) == 4 and {1, 4} < {trial.executors for trial in done}


def test_a_budget_counts_trials_with_a_result(tmp_path: Path) -> None:
    with begun(tmp_path) as store:
        study = study_in(store, "row-by-row")

        def fewer(planned: PlannedTrial, run: int) -> SimulatedEngine:
            return study.fresh(PlannedTrial(executors=1, repeat=planned.repeat), run)

        seen: list[tuple[int, int]] = []
        replace(study, fresh=fewer).spend(2, [2, 3], predict=4, on=lambda _, done, total: seen.append((done, total)))
        assert [trial.rows_per_s for trial in store.trials()] == [
            None,
            None,
        ]  # and the study does not repeat them endlessly
        study.spend(2, [2, 3], predict=4)
        made = [trial.executors for trial in store.trials() if trial.rows_per_s is not None]
        study.spend(2, [2, 3], predict=4)
        assert sorted(made) == [2, 3] and len(store.trials()) == 4
    assert seen == [(1, 2), (2, 2)]


def test_a_count_without_a_result_does_not_use_the_whole_budget() -> None:
    failed = msgspec.structs.replace(trial_of(1, 0.0), rows_per_s=None)
    assert next_trial("a", [failed, trial_of(4, 390.0)], [1, 2, 3, 4], 8).executors == 2
    again = [failed, msgspec.structs.replace(failed, executors=4)]
    assert next_trial("a", again, [1, 4], 8) == PlannedTrial(executors=1, repeat=1)
    assert next_trial("a", [*again, trial_of(1, 100.0, 1)], [1, 4], 8) == PlannedTrial(executors=4, repeat=1)


def test_a_trial_knows_what_was_measured_and_on_what(tmp_path: Path) -> None:
    with begun(tmp_path) as store:
        replace(study_in(store, "row-by-row"), program="0a1b", memory_mb=700).run([1])
        (trial,) = store.trials()
    assert (trial.program, trial.memory_mb) == ("0a1b", 700)


def test_the_paper_s_rule_for_replicas() -> None:
    assert [replicas_per_query(m, 2, 3) for m in (1, 3, 5)] == [1, 2, 3]  # figure 2: n = 3, gamma = 2
    assert plan_for(waiting_bound(), 3, 2).replicas == {"wait": 6}  # one query: its stages take turns


def test_a_growing_latency_is_distinguished_from_noise() -> None:
    chance = random.Random(0)
    times = [float(n) for n in range(12)]
    noise = [chance.gauss(0.0, 0.05) for _ in times]
    assert not latency_grows(times, [1.0 + error for error in noise])
    assert latency_grows(times, [1.0 + 0.1 * at + error for at, error in zip(times, noise, strict=True)])
    assert not latency_grows(times, [5.0 - 0.1 * at for at in times])
    assert latency_slope([0.0, 1.0], [0.0, 9.0]) == (0.0, 1.0)  # two points always form a line


@pytest.mark.parametrize("paced", [False, True])
def test_a_failing_row_is_reported_instead_of_measured(paced: bool) -> None:
    clock = Time()
    flow = waiting_bound()
    behaviour = Behaviour(operators={"wait": OperatorBehaviour(service_s=Fixed(value=WAIT_S))})
    engine = clock.engine = Poisoned(flow, behaviour, plan=plan_for(flow, 1, SLOTS_EACH), mode="fluid")
    with pytest.raises(PenstockError, match="row 700 is bad"):
        if paced:
            keeps_up(lambda: engine, 10.0, Bisection(window_s=1.0), clock)
        else:
            measure_saturated(lambda _: engine, Saturation(window_s=1.0), clock)
