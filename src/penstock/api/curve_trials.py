"""The engines of `penstock.measure_curves`: an operator alone on one slot, simulated or on Spark."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.dataflow import Dataflow, Operator
from penstock.dataflow.concurrent_calls import ConcurrentCalls, Order
from penstock.dataflow.operator_class import PortOperator
from penstock.dataflow.operators import Kind, RowFunction
from penstock.dataflow.sinks import noop
from penstock.dataflow.sources import generate

if TYPE_CHECKING:
    from penstock.control.loop import Clock
    from penstock.engines.ports import RunnableEngine
    from penstock.engines.simulated import Behaviour, SimulatedEngine
    from penstock.plan import Plan
    from penstock.study.curves.rate_trial import TrialEngine

_DRAIN_STEP_S, _DRAIN_STEPS = 0.5, 600
_SAMPLE_ROWS = 200
_TRIALS = "trials"  # in the directory of the study
_IDLE_S = 4.0  # over which the idle load is measured
_MASTER, _NAME = "local[1]", "penstock curves"
_GROUP = "measured"  # the executor of the operator on a cluster
_SHARED_EXECUTORS = 2  # one for the source, one for the sink


def simulated_trials(operator: Operator, costs: Behaviour, seed: int) -> Callable[[], TrialEngine]:
    """Return a function that starts a simulation of the operator alone."""

    def start() -> TrialEngine:
        from penstock.engines.simulated import Behaviour, Fixed, SimulatedEngine, SourceBehaviour
        from penstock.engines.simulated.behaviour import UNLIMITED_ROWS
        from penstock.plan import default_plan

        flow = Dataflow("curve")
        source = flow.source(f"{operator.name}_input", generate(_unchanged, schema="n bigint", rows_per_s=1.0))
        source.rows(operator.name, _unchanged, "n bigint", threads=1).sink(f"{operator.name}_output", noop())
        own = msgspec.structs.replace(costs.of(operator.name), routes={}, buffer_rows=None, pairs=False)
        behaviour = Behaviour(
            operators={operator.name: own},
            # Rows at equal intervals, as on Spark: random ones would need long trials.
            sources={
                f"{operator.name}_input": SourceBehaviour(
                    rates=((0.0, 0.0),), rows=UNLIMITED_ROWS, interarrival=Fixed(value=1.0), batch=Fixed(value=1.0)
                )
            },
        )
        engine = SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=1), seed=seed)
        return _trial_engine(engine, engine.clock, _SimulatedUsage(engine, operator.name))

    return start


def spark_trials(
    flow: Dataflow, operator: Operator, directory: Path, spark: Any, cluster: Path | None = None
) -> Callable[[], TrialEngine]:
    """Return a function that starts the operator alone on Spark, with a sample of its own input.

    cluster: directory of a cluster, on which source and sink run on other executors than the operator.
    """

    def start() -> TrialEngine:
        from penstock.api.spark_session import prepared_session
        from penstock.engines.spark.batch_result import operator_input
        from penstock.engines.spark.engine import SparkEngine
        from penstock.engines.spark.process_usage import ProcessUsage
        from penstock.engines.spark.run_directory.orphans import await_orphan
        from penstock.engines.spark.session import end, session
        from penstock.study.curves.measured_curve import CurveStudyError
        from penstock.study.stepwise.continued_engine import warm_up

        folder = directory / _TRIALS
        await_orphan(folder)
        shutil.rmtree(folder, ignore_errors=True)
        place = _Place.local() if cluster is None else _Place.on(cluster)
        own = None if spark is not None else session(place.master, _NAME, place.confs, run=directory)
        used = own if own is not None else prepared_session(spark)
        try:
            if cluster is None and used.sparkContext.defaultParallelism != 1:
                raise CurveStudyError(
                    f"The Spark session has {used.sparkContext.defaultParallelism} slots; a curve is measured with "
                    "one: give a session with master 'local[1]', or none."
                )
            schema, rows = operator_input(flow, operator.name, _SAMPLE_ROWS, used)
            if not rows:
                raise CurveStudyError(f"No row of the sample reaches '{operator.name}', so it cannot be measured.")
            alone = alone_with(operator, schema, rows)
            engine = SparkEngine(alone, folder, spark=used, plan=place.plan(alone, operator.name))

            def own_executor() -> tuple[str, ...]:
                return engine.executors.counts().groups[_GROUP] if engine.generation else ()  # 0 before the start

            usage = ProcessUsage(used, None if cluster is None else own_executor)
            trial = _trial_engine(engine, time, usage, at_end=(lambda: end(own)) if own is not None else None)
        except BaseException:
            if own is not None:
                end(own)
            raise
        try:
            warm_up(engine, time)
            trial.drain()
            usage()  # begins to count
            time.sleep(_IDLE_S)
            usage.set_idle()
        except BaseException:
            trial.stop()
            raise
        return trial

    return start


def session_fingerprint(spark: Any, cluster: Path | None = None) -> str:
    """Return a hash of the settings of a given session, or of the one that `spark_trials` creates."""
    from penstock.engines.spark.properties import default_properties, measured_settings, session_properties

    if spark is None:
        confs = {} if cluster is None else _Place.on(cluster).confs
        properties = default_properties() | session_properties(_MASTER, _NAME, confs)
    else:
        properties = dict(spark.sparkContext.getConf().getAll())
    return hashlib.sha256(measured_settings(properties).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the trials of an operator run: in a local session with one slot, or on executors of one slot each."""

    master: str
    confs: dict[str, str]
    shared_executors: int  # for source and sink; 0: all share the slot of the operator

    @staticmethod
    def local() -> _Place:
        return _Place(master=_MASTER, confs={}, shared_executors=0)

    @staticmethod
    def on(cluster: Path) -> _Place:
        from penstock.engines.spark.cluster import running
        from penstock.study.curves.measured_curve import CurveStudyError

        up = running(cluster)
        workers = up.record.size.workers
        if workers < 2:
            raise CurveStudyError(
                f"The cluster in '{cluster}' has 1 worker; a curve is measured with 2 or more: one for the operator, "
                "and one for source and sink. Start it with --workers 3."
            )
        return _Place(
            master=up.master,
            confs=up.confs | {"spark.executor.cores": "1"},
            shared_executors=min(_SHARED_EXECUTORS, workers - 1),
        )

    def plan(self, flow: Dataflow, operator: str) -> Plan:
        """Return the plan of the trials. On a cluster, cuts separate the operator from source and sink."""
        from penstock.plan import ExecutorGroup, default_plan, forbidden_cuts, validated

        if not self.shared_executors:
            return default_plan(flow, slots=1)
        plan = default_plan(flow, slots=1)
        cuts = {operator, *flow[operator].inputs} - forbidden_cuts(flow).keys()
        group = ExecutorGroup(operators=(operator,), slots=1)
        slots = self.shared_executors + 1
        return validated(flow, plan.replace(cuts=plan.cuts | cuts, slots=slots, groups={_GROUP: group}))


def alone_with(operator: Operator, schema: Any, rows: list[dict[str, Any]]) -> Dataflow:
    """Return a dataflow of a source that repeats these rows, the operator, and a sink that writes nothing."""
    flow = Dataflow("curve")
    columns = [field.name for field in schema.fields]
    values = rows if len(columns) > 1 else [{columns[0]: row[columns[0]]} for row in rows]
    source = flow.source(
        f"{operator.name}_input", generate(lambda n: values[n % len(values)], schema=schema, rows_per_s=1.0)
    )
    fn = operator.fn
    if isinstance(fn, RowFunction):
        results = source.rows(operator.name, fn.fn, fn.schema, **_call_options(fn.calls))
        results.sink(f"{operator.name}_output", noop())
        if fn.calls is not None and fn.calls.dead_letters:
            results.dead_letters.sink(f"{operator.name}_failed", noop())
        return flow
    assert fn is not None and not isinstance(fn, PortOperator)
    if operator.kind is Kind.STATELESS:
        results = source.stateless(operator.name, fn, columns=operator.columns)
    elif operator.kind is Kind.KEYED:
        results = source.keyed(operator.name, fn, keys=operator.keys, output_mode=operator.output_mode)
    else:
        results = source.global_state(operator.name, fn, output_mode=operator.output_mode)
    results.sink(f"{operator.name}_output", noop())
    return flow


def _call_options(calls: ConcurrentCalls | None) -> dict[str, Any]:
    """Return the arguments that declare these calls, with one thread: a trial sets the number itself."""
    if calls is None:
        return {}
    declared = {field.name: getattr(calls, field.name) for field in fields(calls) if field.name != "order"}
    ordered = {Order.ALL: True, Order.KEY: "key", Order.NONE: False}[calls.order]
    return declared | {"threads": 1, "ordered": ordered, "keys": calls.keys or None}


def _unchanged(row: Any) -> Any:
    return row


def _trial_engine(
    engine: RunnableEngine,
    clock: Clock,
    usage: Callable[[], tuple[float, float]],
    at_end: Callable[[], None] | None = None,
) -> TrialEngine:
    from penstock.plan import rescaled
    from penstock.study.curves.measured_curve import CurveStudyError
    from penstock.study.curves.rate_trial import TrialEngine, set_rate
    from penstock.study.mst.trial_engine import recovered

    def set_threads(threads: int) -> None:
        for name in engine.plan.threads:
            engine.apply(rescaled(engine.flow, engine.plan, {f"{name}.threads": threads}))

    def drain() -> None:
        set_rate(engine, 0.0)
        steps = 0  # without a processed row
        while steps < _DRAIN_STEPS:
            clock.sleep(_DRAIN_STEP_S)
            recovered(engine, "between two trials")
            window = engine.observe()
            is_working = any(operator.rows_in for operator in window.operators)
            if not is_working and not any(operator.backlog_rows for operator in window.operators):
                return
            steps = 0 if is_working else steps + 1
        raise CurveStudyError(
            f"Rows of a trial are waiting, but none was processed for {_DRAIN_STEP_S * _DRAIN_STEPS:g} s."
        )

    def stop() -> None:
        try:
            engine.stop()
        finally:
            if at_end is not None:
                at_end()

    engine.start()
    return TrialEngine(engine=engine, clock=clock, usage=usage, set_threads=set_threads, drain=drain, stop=stop)


class _SimulatedUsage:
    """The CPU and memory that the operator's curve gives for its rate; without a curve, its time on the core."""

    def __init__(self, engine: SimulatedEngine, operator: str) -> None:
        self._engine, self._operator = engine, operator
        self._at = [declared.name for declared in engine.flow.operators].index(operator)
        self._before = (0.0, 0.0, 0.0)

    def __call__(self) -> tuple[float, float]:
        from penstock.models.curve import curve_from_points

        counts = self._engine.simulation.counts.operators[self._at]
        now = (self._engine.now_s, float(counts["rows_in"]), float(counts["busy_s"]))
        span_s, rows, busy_s = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        behaviour = self._engine.behaviour.of(self._operator)
        if span_s <= 0:
            return 0.0, 0.0
        if not behaviour.curve:
            return min(100.0, 100.0 * behaviour.cpu_share * busy_s / span_s), 0.0
        curve = curve_from_points({int(threads): point for threads, point in behaviour.curve.items()})
        point = curve.at(self._engine.plan.bundles(self._operator, 1)[0])
        load = min(1.0, rows / span_s / point.rows_per_s)
        return load * point.cpu, load * point.memory
