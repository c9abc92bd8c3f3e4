"""`penstock.profile`: the best plan of a dataflow on a given platform, found with a few trials."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.api.input_files import dataflow_from
from penstock.api.policy_options import OptionError
from penstock.api.profile_trials import (
    ProfileTrials,
    SimulatedTrials,
    SparkPlatform,
    SparkTrials,
    costs_for_trials,
    endless_sources,
    given_session,
    spark_platform,
)
from penstock.api.record import RunRecord
from penstock.api.simulated_costs import operator_costs, record_of_costs
from penstock.dataflow import Dataflow
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.engines.simulated import Behaviour
    from penstock.store import ProfiledOperator, Store
    from penstock.study.stepwise.operator_types import OperatorType
    from penstock.study.stepwise.profile import Profile, ProfileProgress
    from penstock.study.stepwise.study import StepwiseSettings

SPARK = "spark"
ProfiledEngine = Literal["spark", "row-by-row", "micro-batch"]
PROFILED_ENGINES: tuple[ProfiledEngine, ...] = ("spark", "row-by-row", "micro-batch")
OPERATOR_TYPES = ("proportional", "workload-dependent", "logic-dependent")
PLAN_FILE = "plan.json"
_ROUNDS_TO_SLOTS = 4  # rounds of Algorithm 2 until there are as many tasks as slots
# On Spark a trial takes seconds of real time: the tasks grow in few rounds, and windows have some batches each.
_SPARK_TIE = 0.1
_SPARK_HEADROOM = 0.45  # a row waits for half a batch, and batches have a fixed duration
_MIN_WINDOWS, _MAX_WINDOWS, _MAX_WARM_UP = 8, 16, 8
_SPARK_TOLERANCE = 0.05
_MIN_WINDOW_S = 1.0  # a window is as long as the latency target, and at least this


@checked_types(OptionError)
def profile(
    flow: Dataflow | str,
    *,
    latency_s: float = 0.5,
    slots: int | None = None,
    executors: int | None = None,
    cluster: str | Path | None = None,
    spark: Any = None,
    engine: ProfiledEngine | None = None,
    behaviour: Behaviour | str | Path | None = None,
    like: RunRecord | str | Path | None = None,
    slice: float = 0.3,
    k: float = 2.0,
    alpha: float = 0.9,
    types: Mapping[str, str] | None = None,
    at: str | Path | None = None,
    seed: int = 0,
    on_progress: Callable[[ProfileProgress], None] | None = None,
) -> Profile:
    """Find the plan with the highest throughput within a latency target, by trials, and store it.

    The study measures the operators at a small load, adds tasks in the ratio of their loads until the platform is used
    up, and then adjusts single operators. Each trial is stored when it ends, so the same call continues an interrupted
    study. The directory also contains the plan as `plan.json`, and the result as `profile.json`. Sinks compute
    everything and write nothing.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]".
        latency_s: Highest mean latency.
        slots: Number of slots of the platform. The default on Spark is the number of processors.
        executors: Number of executors of a cluster or of a simulation, instead of slots.
        cluster: Directory of a running cluster. The default is a local Spark session with `slots` slots.
        spark: An existing Spark session, which stays open. The default is the active session, if there is one and no
            cluster is given.
        engine: "spark", or a simulated engine: "row-by-row" or "micro-batch" (as Spark works). The default is "spark"
            if no cost of the operators is given, and "row-by-row" otherwise.
        behaviour: Simulated cost of the operators, as a value or as a JSON file; give either this or `like`.
        like: A record, or the directory of a run, whose measured operator costs are simulated.
        slice: Unit of the task load. A smaller unit follows the ratio of the loads more closely, in larger steps.
        k: Stop when the latency of each operator is within this multiple of its minimum.
        alpha: Share of the best throughput below which the platform is used up.
        types: Types of operators by name, if they are known: "proportional", "workload-dependent" or
            "logic-dependent". The types of all other operators are measured.
        at: Directory of the study; default `studies/<name of the dataflow>-profile`.
        seed: Seed of the random numbers of a simulation.
        on_progress: Called at the start and after each round.

    Returns:
        The best plan, its throughput and latency, and all rounds.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PenstockError: A source cannot be profiled, a trial failed, or the directory contains trials of another program
            or with other settings.
    """
    options = ProfileOptions(
        latency_s=latency_s, engine=engine, slice=slice, k=k, alpha=alpha, types=types or {}, seed=seed
    )
    study = prepared(flow, options, behaviour=behaviour, like=like, cluster=cluster, spark=spark)
    return study.run(study.platform(slots, executors), study.directory(at), on_progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """The options that do not depend on the platform."""

    latency_s: float
    engine: ProfiledEngine | None
    slice: float
    k: float
    alpha: float
    types: Mapping[str, str]
    seed: int

    def check(self) -> None:
        if self.engine is not None and self.engine not in PROFILED_ENGINES:
            raise OptionError(f"There is no engine '{self.engine}'; the engines are {', '.join(PROFILED_ENGINES)}.")
        if not 0 < self.latency_s < math.inf:
            raise OptionError(f"latency_s is {self.latency_s}; it must be a number of seconds above 0.")
        if not 0 < self.slice <= 1:
            raise OptionError(f"slice is {self.slice}; it must be above 0 and at most 1.")
        if not 1 <= self.k < math.inf:
            raise OptionError(f"k is {self.k}; it must be a number of at least 1.")
        if not 0 < self.alpha <= 1:
            raise OptionError(f"alpha is {self.alpha}; it must be above 0 and at most 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlatform:
    slots: int
    executors: int


Platform = SparkPlatform | SimulatedPlatform


def prepared(
    flow: Dataflow | str,
    options: ProfileOptions,
    *,
    behaviour: Behaviour | str | Path | None,
    like: RunRecord | str | Path | None,
    cluster: str | Path | None,
    spark: Any,
) -> PreparedProfile:
    """Check all options and load the dataflow. Raises OptionError before anything is written."""
    options.check()
    is_simulated = options.engine not in (None, SPARK) or behaviour is not None or like is not None
    if is_simulated and options.engine == SPARK:
        raise OptionError("Spark measures the cost of the operators; omit 'behaviour' and 'like', or simulate.")
    if is_simulated and (cluster is not None or spark is not None):
        raise OptionError("A simulation uses neither a cluster nor a Spark session; omit it, or omit the costs.")
    record = record_of_costs(behaviour, like) if is_simulated else None
    dataflow = dataflow_from(flow).without_output()
    _declared_types(dataflow, options.types)
    costs = None
    if is_simulated:
        costs = costs_for_trials(dataflow, operator_costs(dataflow, behaviour, record))
    else:
        dataflow = endless_sources(dataflow)
        spark = given_session(spark, cluster)
    return PreparedProfile(
        flow=dataflow,
        name=flow if isinstance(flow, str) else dataflow.name,
        options=options,
        costs=costs,
        cluster=cluster,
        spark=spark,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedProfile:
    """A dataflow and options that were checked. It can be profiled on several platforms."""

    flow: Dataflow
    name: str  # FILE[:name], or the name of the dataflow
    options: ProfileOptions
    costs: Behaviour | None  # None: trials on Spark
    cluster: str | Path | None = None
    spark: Any = None

    @property
    def engine(self) -> ProfiledEngine:
        return "spark" if self.costs is None else self.options.engine or "row-by-row"

    def directory(self, at: str | Path | None) -> Path:
        return Path("studies") / f"{self.flow.name}-profile" if at is None else local_directory(at)

    def platform(self, slots: int | None, executors: int | None) -> Platform:
        for name, value in (("slots", slots), ("executors", executors)):
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; at least 1 {name.removesuffix('s')} is required.")
        if slots is not None and executors is not None:
            raise OptionError("The executors determine the slots; give either slots or executors.")
        if self.costs is None:
            return spark_platform(slots, executors, self.cluster, self.spark)
        if slots is None and executors is None:
            raise OptionError("A simulation requires the number of slots or executors.")
        per_executor = self.costs.cluster.slots_per_executor
        if executors is not None:
            return SimulatedPlatform(slots=executors * per_executor, executors=executors)
        assert slots is not None
        return SimulatedPlatform(slots=slots, executors=math.ceil(slots / per_executor))

    def run(
        self,
        platform: Platform,
        directory: Path,
        on_progress: Callable[[ProfileProgress], None] | None = None,
        known_features: tuple[ProfiledOperator, ...] = (),
    ) -> Profile:
        """Make the trials that the directory lacks, and write the best plan."""
        from penstock.store import Store
        from penstock.study.mst.fingerprint import fingerprint
        from penstock.study.stepwise.feature_trial import measure_features, measure_features_in_batches
        from penstock.study.stepwise.study import StepwiseStudy

        settings = self._settings(platform.slots)
        with _interrupted_by_sigterm(), Store(directory) as store:
            _check_kind(store, self.flow, directory)
            trials = self.trials(platform, directory, store)
            study = StepwiseStudy(
                flow=self.flow,
                fresh=trials.fresh,
                store=store,
                settings=settings,
                time=trials.time,
                program=fingerprint(self.flow),
                conditions=self._conditions(platform, settings),
                executors=platform.executors,
                measure_features=measure_features_in_batches if self.costs is None else measure_features,
                row_bytes=trials.row_bytes,
                known_features=known_features,
            )
            study.check_earlier_trials()
            with _recorded(store, self.flow, self.name), contextlib.closing(trials):
                result = study.run(on_progress)
        (directory / PLAN_FILE).write_text(result.plan.to_json())
        result.write(directory)
        return result

    def trials(self, platform: Platform, directory: Path, store: Store) -> ProfileTrials:
        if isinstance(platform, SparkPlatform):
            return SparkTrials(self.flow, platform, directory)
        assert self.costs is not None
        return SimulatedTrials(self.flow, self.costs, self.engine, self.options.seed, store)

    def _settings(self, slots: int) -> StepwiseSettings:
        from penstock.study.stepwise.sequential_test import TrialLimits
        from penstock.study.stepwise.study import StepwiseSettings

        options = self.options
        settings = StepwiseSettings(
            slots=slots,
            latency_target_s=options.latency_s,
            slice_=options.slice,
            k=options.k,
            alpha=options.alpha,
            stages_take_turns=self.engine != "row-by-row",
            types=_declared_types(self.flow, options.types),
            rounds_to_slots=_ROUNDS_TO_SLOTS,
        )
        if self.costs is not None:
            return settings
        return replace(
            settings,
            window_s=max(_MIN_WINDOW_S, options.latency_s),
            limits=TrialLimits(
                min_windows=_MIN_WINDOWS,
                max_windows=_MAX_WINDOWS,
                max_warm_up=_MAX_WARM_UP,
                tolerance=_SPARK_TOLERANCE,
            ),
            tie=_SPARK_TIE,
            headroom=_SPARK_HEADROOM,
        )

    def _conditions(self, platform: Platform, settings: StepwiseSettings) -> dict[str, str]:
        """Return everything that makes two trials comparable. The behaviour is too long: its hash represents it."""
        types = {name: declared.value for name, declared in settings.types.items()}
        conditions = {
            "engine": self.engine,
            "slots": str(settings.slots),
            "latency_s": f"{settings.latency_target_s:g}",
            "slice": f"{settings.slice_:g}",
            "k": f"{settings.k:g}",
            "alpha": f"{settings.alpha:g}",
            "types": ", ".join(f"{name}: {declared}" for name, declared in sorted(types.items())) or "measured",
        }
        if isinstance(platform, SparkPlatform):
            return conditions | {"platform": platform.name, "executors": str(platform.executors)}
        assert self.costs is not None
        behaviour = hashlib.sha256(self.costs.to_json().encode()).hexdigest()[:16]
        return conditions | {"seed": str(self.options.seed), "behaviour": behaviour}


def _declared_types(flow: Dataflow, types: Mapping[str, str]) -> dict[str, OperatorType]:
    from penstock.study.stepwise.operator_types import OperatorType

    names = [operator.name for operator in flow.operators]
    for name, declared in types.items():
        if name not in names:
            raise OptionError(f"'{name}' is not an operator of '{flow.name}'; its operators are {', '.join(names)}.")
        if declared not in OPERATOR_TYPES:
            raise OptionError(f"'{declared}' is not an operator type; the types are {', '.join(OPERATOR_TYPES)}.")
    return {name: OperatorType(declared) for name, declared in types.items()}


def _check_kind(store: Store, flow: Dataflow, directory: Path) -> None:
    run = store.last_run()
    if run is not None and (run.dataflow != flow.name or run.kind != "study"):
        raise PenstockError(
            f"'{directory}' contains {run.kind_text} of '{run.dataflow}', not a study of '{flow.name}'; use "
            "another directory."
        )


@contextlib.contextmanager
def _recorded(store: Store, flow: Dataflow, name: str) -> Iterator[None]:
    """Record the beginning and the end of the study."""
    from penstock.store import RunStart

    store.begin_run(
        RunStart(dataflow=flow.name, kind="study", flow_file=name, pid=os.getpid(), master="-", started_s=time.time())
    )
    try:
        yield
    except BaseException:
        store.end_run(at_s=time.time(), reason="interrupted")
        raise
    store.end_run(at_s=time.time(), reason="all trials are complete")


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that Spark and the store are closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
