"""The engines of the trials of `penstock.profile`: a simulated engine for each trial, or one running Spark engine."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.api.policy_options import OptionError
from penstock.api.simulated_costs import limited_batches
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory
from penstock.dataflow.sources import Generate, Replay, Source

if TYPE_CHECKING:
    from penstock.control.loop import Clock
    from penstock.engines.ports import RunnableEngine
    from penstock.engines.simulated import Behaviour, SimulatedEngine
    from penstock.plan import Plan
    from penstock.store import Store
    from penstock.study.stepwise.continued_engine import ContinuedEngine

_SEEDS_PER_TRIAL = 100
_ENDLESS = 1_000_000  # repetitions of replayed files
_SAMPLE_ROWS = 50  # rows of each source whose streams show the size of a row
_TRIALS = "trials"  # in the directory of the study


class ProfileTrials(Protocol):
    """Creates the engines of a study."""

    def fresh(self, plan: Plan) -> tuple[RunnableEngine, Clock]:
        """Return an engine that is not started, and the clock of its time."""

    def row_bytes(self) -> dict[str, float]:
        """Return the mean size of a row of each stream by its producer, as far as it is known."""

    def time(self) -> float:
        """Return the time of the record."""

    def close(self) -> None:
        """End everything that the trials left running."""


class SimulatedTrials:
    """One engine per trial. The time of a trial begins where that of the previous one ended."""

    def __init__(self, flow: Dataflow, costs: Behaviour, mode: str, seed: int, store: Store) -> None:
        self._flow, self._costs, self._mode, self._seed, self._store = flow, costs, mode, seed, store
        self._started_s = time.time()
        self._engine: SimulatedEngine | None = None
        self._trial, self._run = -1, 0

    def fresh(self, plan: Plan) -> tuple[RunnableEngine, Clock]:
        """Return an engine. Its seed depends on the number of the trial, so a resumed study has the same results."""
        from penstock.engines.simulated import SimulatedEngine

        trial = len(self._store.trials())
        self._run = self._run + 1 if trial == self._trial else 0
        self._trial = trial
        self._engine = SimulatedEngine(
            self._flow,
            self._costs,
            plan=plan,
            mode=self._mode,
            seed=self._seed + _SEEDS_PER_TRIAL * trial + self._run,
            epoch_s=self.time(),
        )
        return self._engine, self._engine.clock

    def row_bytes(self) -> dict[str, float]:
        """Return the sizes of the behaviour."""
        sizes = {name: own.row_bytes for name, own in self._costs.operators.items()}
        sizes |= {name: source.row_bytes for name, source in self._costs.sources.items()}
        return {name: size for name, size in sizes.items() if size is not None}

    def time(self) -> float:
        return self._started_s if self._engine is None else self._engine.clock.time()

    def close(self) -> None:
        pass


def costs_for_trials(flow: Dataflow, costs: Behaviour) -> Behaviour:
    """Let the study set the rates of all sources, whatever they declare."""
    from penstock.engines.simulated.behaviour import UNLIMITED_ROWS

    costs.check(flow)
    sources = {
        operator.name: msgspec.structs.replace(costs.source(operator.name), rates=((0.0, 1.0),), rows=UNLIMITED_ROWS)
        for operator in flow.operators
        if operator.kind is Kind.SOURCE
    }
    return limited_batches(costs.replace(sources=sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlatform:
    """Where trials run on Spark: a session of the user, a cluster, or a local session with so many slots."""

    slots: int
    executors: int
    spark: Any = None
    master: str = ""
    confs: dict[str, str] | None = None

    @property
    def name(self) -> str:
        """The master, without the address of a cluster, which changes with each start."""
        return self.master if self.master.startswith("local") else "cluster"


def given_session(spark: Any, cluster: str | Path | None) -> Any:
    """Return the session to use, which stays open: the given one, or the active one as in `penstock.run`."""
    if spark is None and cluster is None:
        from penstock.api.spark_session import active_session

        return active_session()
    return spark


def spark_platform(
    slots: int | None, executors: int | None, cluster: str | Path | None, spark: Any = None
) -> SparkPlatform:
    """Return the platform that these options describe. Raises OptionError if they contradict each other."""
    if cluster is None and executors is not None:
        raise OptionError("A number of executors requires a cluster or a simulation; give the cluster, or slots.")
    if cluster is not None and (slots is not None or spark is not None):
        raise OptionError("A cluster has the slots of its executors; give executors instead of slots or spark.")
    if cluster is not None:
        from penstock.engines.spark import cluster as clusters

        up = clusters.running(local_directory(cluster))
        size = up.record.size
        count = size.workers if executors is None else executors
        if count > size.workers:
            raise OptionError(
                f"{count} executors are required, but the cluster in '{cluster}' has {size.workers} workers; give "
                "fewer executors or start a larger cluster."
            )
        return SparkPlatform(slots=count * size.slots, executors=count, master=up.master, confs=up.confs)
    if spark is not None:
        available = int(spark.sparkContext.defaultParallelism)
        if slots not in (None, available):
            raise OptionError(
                f"slots is {slots}, but the Spark session has {available}; omit slots, or stop the session so that "
                "Penstock starts one."
            )
        return SparkPlatform(slots=available, executors=1, spark=spark, master=str(spark.sparkContext.master))
    slots = slots or os.cpu_count() or 1
    return SparkPlatform(slots=slots, executors=1, master=f"local[{slots}]")


def endless_sources(flow: Dataflow) -> Dataflow:
    """Return the dataflow with sources that never end and whose rate the study sets, in the declared proportion."""
    from penstock.study.mst.throughput import mix

    shares = mix(flow)
    sources: dict[str, Source] = {}
    for operator in flow.operators:
        source = operator.source
        if isinstance(source, Generate):
            sources[operator.name] = replace(source, rows=None, rows_per_s=shares[operator.name])
        elif isinstance(source, Replay):
            sources[operator.name] = replace(source, repeat=_ENDLESS, rows_per_s=shares[operator.name])
        elif source is not None:
            raise PenstockError(
                f"A profile sets the rate of source '{operator.name}', which is {type(source).__name__.lower()}; "
                "profile with penstock.generate, or with penstock.replay of a sample of its rows."
            )
    return flow.with_sources(sources)


class SparkTrials:
    """One Spark engine, whose plan changes from trial to trial. Spark starts with the first trial that is missing."""

    def __init__(self, flow: Dataflow, platform: SparkPlatform, directory: Path) -> None:
        self._flow, self._platform, self._directory = flow, platform, directory
        self._engines: ContinuedEngine | None = None
        self._spark: Any = None  # session of the trials
        self._session: Any = None  # the same, if this object has created it and stops it

    def fresh(self, plan: Plan) -> tuple[RunnableEngine, Clock]:
        from penstock.study.stepwise.continued_engine import ContinuedEngine

        if self._engines is None:
            self._engines = ContinuedEngine(self._start, time)
        return self._engines.trial(plan)

    def _start(self) -> RunnableEngine:
        """Start Spark and an engine with one replica per slot, and warm it up."""
        from penstock.api.spark_session import prepared_session
        from penstock.engines.spark.engine import SparkEngine
        from penstock.engines.spark.jvm import running_master
        from penstock.engines.spark.run_directory.orphans import await_orphan
        from penstock.engines.spark.session import session
        from penstock.plan import default_plan
        from penstock.study.stepwise.continued_engine import warm_up

        platform = self._platform
        if platform.spark is not None:
            spark = prepared_session(platform.spark)
        else:
            others = running_master() is not None  # a session that another thread of this process created
            spark = session(platform.master, "penstock profile", platform.confs, run=self._directory)
            if others:
                spark = prepared_session(spark)
            else:
                self._session = spark
        self._spark = spark
        folder = self._directory / _TRIALS
        await_orphan(folder)  # the JVM of a study that was killed may still write there
        shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted study
        plan = default_plan(self._flow, slots=platform.slots)
        engine = SparkEngine(self._flow, folder, spark=spark, plan=plan)
        engine.start()
        try:
            warm_up(engine, time)
        except BaseException:
            engine.stop()
            raise
        return engine

    def row_bytes(self) -> dict[str, float]:
        """Compute the streams of a sample of the input as one batch. Needs the session of the trials."""
        from penstock.engines.spark.batch_result import input_samples, row_sizes

        return row_sizes(self._flow, input_samples(self._flow, _SAMPLE_ROWS), self._spark)

    def time(self) -> float:
        return time.time()

    def close(self) -> None:
        from penstock.engines.spark.session import end

        try:
            if self._engines is not None:
                self._engines.close()
        finally:
            if self._session is not None:
                end(self._session)
            shutil.rmtree(self._directory / _TRIALS, ignore_errors=True)
