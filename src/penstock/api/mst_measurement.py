"""`penstock.measure_mst` and `penstock.predict_mst`: the maximum sustainable throughput (MST) by executor count."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.api.input_files import dataflow_from
from penstock.api.mst_models import check_choose
from penstock.api.policy_options import OptionError
from penstock.control.policies.catalogue import POLICIES
from penstock.dataflow import Dataflow
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.engines.ports import RunnableEngine
    from penstock.engines.spark.cluster import ClusterSize, SparkCluster
    from penstock.models.mst.curve_families import CurveFamily
    from penstock.models.mst.curve_selection import Choose
    from penstock.report.mst_results import MstMeasurement
    from penstock.store import Store, Trial
    from penstock.study.mst.design import PlannedTrial
    from penstock.study.mst.replica_search import ReplicaPolicy

BY_RULE = "rule"
REPLICA_METHODS = (BY_RULE, *(name for name, entry in POLICIES.items() if entry.distributes_replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """The state of a study after a trial; `trial` is None at the start."""

    done: int
    total: int
    trial: Trial | None = None


@checked_types(OptionError)
def measure_mst(
    flow: Dataflow | str,
    *,
    executors: Sequence[int] = (),
    training: str | Path | None = None,
    repeats: int = 1,
    budget: int | None = None,
    validate: int | None = None,
    paced: bool = False,
    replicas: str = BY_RULE,
    predict: Sequence[int] = (),
    models: Sequence[str] = (),
    choose: Choose = "mean",
    at: str | Path | None = None,
    cluster: str | Path | None = None,
    executor_cores: int = 2,
    executor_memory_mb: int = 1024,
    window_s: float = 5.0,
    level: float = 0.9,
    on_progress: Callable[[StudyProgress], None] | None = None,
) -> MstMeasurement:
    """Measure the rate that a dataflow sustains on each number of executors, fit a model, and predict other numbers.

    Sources are accelerated until there is always a backlog; sinks compute everything and write nothing. Each trial is
    stored when it ends, so the same call continues an interrupted study.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]".
        executors: Numbers of executors to measure.
        training: Directory of `choose_training_counts`, whose numbers of executors are measured instead.
        repeats: Number of trials for each of them.
        budget: Make this many trials instead, each at the number of executors that reduces the uncertainty most.
        validate: Also measure the numbers of executors up to this one at which the models begin to differ (Algorithm 1
            of the paper). They select the model. There may be none.
        paced: Also search for the highest sustained rate of paced sources.
        replicas: Set replicas by the rule of the paper ("rule") or by a policy; one of `REPLICA_METHODS`.
        predict: Numbers of executors to predict.
        models: Names of the candidate models. The default is all but the competitors "linear" and "mean".
        choose: Criterion that selects the model if nothing was measured for validation; see `fit_mst`.
        at: Directory of the study; default `studies/<name of the dataflow>`.
        cluster: Directory of a running cluster. Without it, one is started with `executor_cores`
            and `executor_memory_mb`.
        executor_cores: Slots of an executor.
        executor_memory_mb: Memory of an executor.
        window_s: Length of a measurement window.
        level: Probability of the prediction intervals.
        on_progress: Called at the start and after each trial.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        SamplesError: There is no such model.
        PenstockError: The sources cannot be measured, or the directory contains trials of another program.
    """
    from penstock.models.mst.curve_families import families_named

    if paced and budget is not None:
        raise OptionError("A paced measurement requires repeats and cannot have a budget; omit the budget.")
    if replicas not in REPLICA_METHODS:
        raise OptionError(f"Replicas cannot be set by '{replicas}'; the methods are {', '.join(REPLICA_METHODS)}.")
    families = families_named(models)
    check_choose(choose)
    if bool(executors) == (training is not None):
        raise OptionError("Give either the numbers of executors to measure or a study that chose them.")
    if training is not None:
        from penstock.api.mst_phases import chosen_counts

        executors = chosen_counts(training)
    if validate is not None and validate <= max(executors):
        raise OptionError(
            f"Validation measures numbers of executors above {max(executors)}, which are not trained on, but at most "
            f"{validate} are allowed; give a larger number, or omit it."
        )
    from penstock.engines.spark import cluster as clusters

    dataflow = dataflow_from(flow).without_output()
    _check_sources(dataflow, paced=paced)
    asked = clusters.ClusterSize(
        workers=max(*executors, validate or 1), slots=executor_cores, memory_mb=executor_memory_mb
    )
    if cluster is not None:
        asked = clusters.running(local_directory(cluster)).record.size
    study = _Study(
        flow=dataflow,
        name=flow if isinstance(flow, str) else flow.name,
        directory=local_directory(at) if at is not None else Path("studies") / dataflow.name,
        executors=tuple(executors),
        repeats=repeats,
        budget=budget,
        validate=validate,
        paced=paced,
        replicas=replicas,
        largest_prediction=max((*predict, *executors)),
        cluster=None if cluster is None else local_directory(cluster),
        asked=asked,
        window_s=window_s,
        on_progress=on_progress or (lambda progress: None),
    )
    study.run()
    return _result(study.directory, tuple(sorted({*executors, *predict})), level, choose, families)


def predict_mst(
    study: str | Path,
    *,
    executors: Sequence[int],
    level: float = 0.9,
    models: Sequence[str] = (),
    choose: Choose = "mean",
) -> MstMeasurement:
    """Predict the throughput of other executor counts from the trials in the directory `study`.

    Args:
        study: Directory of the study.
        executors: Numbers of executors to predict.
        level: Probability of the prediction intervals.
        models: Names of the candidate models. The default is all but the competitors "linear" and "mean".
        choose: Criterion that selects the model if nothing was measured for validation; see `fit_mst`.

    Raises:
        OptionError: There is no such way to choose a model.
        SamplesError: There is no such model.
        PenstockError: Fewer than two executor counts were measured.
    """
    from penstock.models.mst.curve_families import families_named

    families = families_named(models)
    check_choose(choose)
    result = _result(local_directory(study), tuple(executors), level, choose, families)
    if result.fit is None:
        raise PenstockError(
            f"'{study}' has trials on {result.measured[0]} executors only; measure another count to fit a curve."
        )
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Study:
    flow: Dataflow
    name: str  # FILE[:name], or the name of the dataflow
    directory: Path
    executors: tuple[int, ...]
    repeats: int
    budget: int | None
    validate: int | None
    paced: bool
    replicas: str
    largest_prediction: int
    cluster: Path | None
    asked: ClusterSize
    window_s: float
    on_progress: Callable[[StudyProgress], None]

    def run(self) -> None:
        """Make the missing trials."""
        from penstock.store import RunStart, Store
        from penstock.study.mst.fingerprint import fingerprint

        program = fingerprint(self.flow)
        with contextlib.ExitStack() as stack:
            if threading.current_thread() is threading.main_thread():
                # Treat SIGTERM like Ctrl-C, so that the cluster and the store are closed.
                previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
                stack.callback(signal.signal, signal.SIGTERM, previous)
            store = stack.enter_context(Store(self.directory))
            self._check_earlier_trials(store, program)
            store.begin_run(
                RunStart(
                    dataflow=self.flow.name,
                    kind="study",
                    flow_file=self.name,
                    pid=os.getpid(),
                    master="-",
                    started_s=time.time(),
                )
            )

            def end(kind: type[BaseException] | None, *_: object) -> None:
                reason = "all trials are complete" if kind is None else "interrupted"
                store.end_run(at_s=time.time(), reason=reason)

            stack.push(end)
            done, total = self._counts(store)
            self.on_progress(StudyProgress(done=done, total=total))
            if done < total:
                self._measure(stack, store, program)

    def _counts(self, store: Store) -> tuple[int, int]:
        """Return the number of trials that have a result, and the number of trials to make in total."""
        from penstock.study.mst.design import grid, trials_with_result, validation_grid

        trials = store.trials()
        made = {trial.key for trial in trials if trial.rows_per_s is not None}
        if self.budget is not None:
            done, total = trials_with_result(trials), self.budget
        else:
            planned = {planned.key for planned in grid(self.executors, self.repeats, paced=self.paced)}
            done, total = len(planned & made), len(planned)
        if self.validate is None or done < total:
            return done, total
        counts = validation_grid(self.flow.name, trials, up_to=self.validate, repeats=self.repeats)
        return done + len({trial.key for trial in counts} & made), total + len(counts)

    def _measure(self, stack: contextlib.ExitStack, store: Store, program: str) -> None:
        from penstock.engines.spark.sources.factory import row_bytes
        from penstock.study.mst.paced import Bisection
        from penstock.study.mst.samples import Saturation
        from penstock.study.mst.study import MstStudy

        cluster = self._cluster(stack)
        study = MstStudy(
            app=self.flow.name,
            fresh=self._engines(stack, cluster),
            store=store,
            clock=time,
            saturation=Saturation(window_s=self.window_s),
            bisection=Bisection(window_s=self.window_s),
            slots_per_executor=self.asked.slots,
            bytes_per_row=row_bytes(self.flow, self.directory / "trials" / "sources"),
            by=_replica_policy(self.replicas, self.window_s, max(*self.executors, self.validate or 1)),
            program=program,
            memory_mb=self.asked.memory_mb,
        )

        def on_trial(trial: Trial, done: int, total: int) -> None:
            self.on_progress(StudyProgress(done=done, total=total, trial=trial))

        if self.budget is not None:
            study.spend(self.budget, self.executors, predict=self.largest_prediction, on=on_trial)
        else:
            study.run(self.executors, repeats=self.repeats, paced=self.paced, on=on_trial)
        if self.validate is not None:
            study.validate(self.validate, repeats=self.repeats, on=on_trial)

    def _cluster(self, stack: contextlib.ExitStack) -> SparkCluster:
        from penstock.engines.spark import cluster as clusters

        if self.cluster is None:
            return stack.enter_context(clusters.start(self.directory / "cluster", self.asked, ends_with_process=True))
        workers, needed = self.asked.workers, max(*self.executors, self.validate or 1)
        if workers < needed:
            raise clusters.ClusterError(
                f"The study needs {needed} executors, but the cluster in '{self.cluster}' has {workers} workers; "
                "measure fewer executors, or let the study start its own cluster."
            )
        return clusters.running(self.cluster)

    def _engines(
        self, stack: contextlib.ExitStack, cluster: SparkCluster
    ) -> Callable[[PlannedTrial, int], RunnableEngine]:
        """Return a function that creates the engine of a trial in a directory of its own."""
        import shutil

        from penstock.engines.spark.engine import SparkEngine
        from penstock.engines.spark.reading.batch_sizer import copy_learned_sizes
        from penstock.engines.spark.session import end, session
        from penstock.study.mst.design import plan_for

        spark = session(cluster.master, "penstock mst", cluster.confs, run=self.directory)
        stack.callback(end, spark)
        directory = self.directory / "trials"
        shutil.rmtree(directory, ignore_errors=True)  # left by an interrupted study
        previous: list[Path] = []

        def create(planned: PlannedTrial, run: int) -> RunnableEngine:
            folder = directory / f"{planned.study.replace(' ', '-')}-{planned.executors}-{planned.repeat}-{run}"
            for last in previous[-1:]:
                copy_learned_sizes(last, folder)  # Reuse the batch size of the previous trial.
            previous.append(folder)
            plan = planned.plan or plan_for(self.flow, planned.executors, self.asked.slots)
            return SparkEngine(self.flow, folder, spark=spark, plan=plan)

        return create

    def _check_earlier_trials(self, store: Store, program: str) -> None:
        """Raise PenstockError if the directory contains trials of another dataflow, program or executor size."""
        at, run = self.directory, store.last_run()
        if run is not None and run.dataflow != self.flow.name:
            raise PenstockError(
                f"'{at}' contains a study of '{run.dataflow}', not of '{self.flow.name}'; use another directory."
            )
        for trial in store.trials():
            if trial.replicas_by != self.replicas:
                raise PenstockError(
                    f"'{at}' has trials with replicas by {trial.replicas_by}, not by {self.replicas}; use another "
                    f"directory, or replicas by {trial.replicas_by}."
                )
            if trial.rows_per_s is None:
                continue
            if trial.plan.slots != trial.executors * self.asked.slots:
                raise PenstockError(
                    f"'{at}' has trials with {trial.plan.slots // trial.executors} cores per executor, not "
                    f"{self.asked.slots}; use another directory, or the same number of cores."
                )
            if trial.memory_mb not in (None, self.asked.memory_mb):
                raise PenstockError(
                    f"'{at}' has trials with {trial.memory_mb} MB per executor, not {self.asked.memory_mb}; use "
                    "another directory, or the same memory."
                )
            if trial.program not in (None, program):
                raise PenstockError(
                    f"'{at}' has trials of an earlier version of {self.name}: its code or that of an imported module "
                    "has changed. Use another directory to measure the new version."
                )


def _check_sources(flow: Dataflow, *, paced: bool) -> None:
    """Raise PenstockError for sources that cannot be measured, before hours of trials."""
    from penstock.dataflow.sources import Generate, Replay, SparkSource

    for operator in flow.operators:
        source = operator.source
        if isinstance(source, SparkSource):
            raise PenstockError(
                f"Source '{operator.name}' is a DataFrame, whose backlog is unknown, so the study cannot tell whether "
                "the source limits the rate; measure with penstock.kafka, replay, generate or backlog instead."
            )
        has_rate = isinstance(source, Generate | Replay) and source.rows_per_s is not None
        if paced and source is not None and not has_rate:
            raise PenstockError(
                f"A paced measurement sets the rate of source '{operator.name}', which has none; measure without "
                "pacing, or declare it with penstock.generate or penstock.replay and rows_per_s."
            )


def _replica_policy(replicas: str, window_s: float, workers: int) -> ReplicaPolicy | None:
    """Return the policy without guards: a trial loses nothing by a change."""
    from penstock.control.controller import Settings
    from penstock.control.policies.catalogue import PolicyParameters, build_policy
    from penstock.measure.smoothing import MovingAverage
    from penstock.study.mst.replica_search import ReplicaPolicy

    if replicas == BY_RULE:
        return None
    settings = Settings(mode="active", smoothing=MovingAverage(2), micro_batch=True, warm_up_s=2 * window_s)
    return ReplicaPolicy(policy=build_policy(replicas, PolicyParameters(workers=workers)), settings=settings)


def _result(
    study: Path, executors: tuple[int, ...], level: float, choose: Choose, families: Sequence[CurveFamily]
) -> MstMeasurement:
    from penstock.report.mst_results import MstMeasurement, TrialResult, mst_fit
    from penstock.store import StoreReader
    from penstock.study.mst.model import model_of, samples_in

    samples = samples_in(study)
    with StoreReader(study) as store:
        trials = [trial for trial in store.trials() if trial.rows_per_s is not None]
    fit = None
    if len(samples.vms) > 1:
        model = model_of(samples, trials, max(executors, default=1), choose=choose, families=families)
        fit = mst_fit(model, samples, predict=executors, level=level)
    return MstMeasurement(
        app=samples.app,
        directory=str(study),
        measured=tuple(samples.vms),
        fit=fit,
        trials=tuple(
            TrialResult(
                study=trial.study,
                executors=trial.executors,
                repeat=trial.repeat,
                rows_per_s=trial.rows_per_s or 0.0,
                bytes_per_s=trial.bytes_per_s,
                converged=trial.converged,
                reason=trial.reason,
                replicas_by=trial.replicas_by,
            )
            for trial in trials
        ),
    )
