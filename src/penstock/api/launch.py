"""The parts of a run before it starts: the Spark session or master, the store, the engine and the controller."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.api.policy_options import OptionError, PolicyOptions, controller_settings, create_policy
from penstock.dataflow import Dataflow
from penstock.dataflow.load import place_of
from penstock.dataflow.local_paths import local_directory
from penstock.engines.spark import early_jvm
from penstock.plan import Plan
from penstock.plan.counts import slots_text

if TYPE_CHECKING:
    from penstock.brokers.cluster import KafkaCluster
    from penstock.control.controller import Controller
    from penstock.control.loop import OnWindow
    from penstock.control.requests import SetPolicy
    from penstock.engines.ports import RunnableEngine
    from penstock.engines.spark.settings import EngineSettings
    from penstock.planning.plan_prediction import PlanPrediction
    from penstock.store import Store

DEFAULT_MASTER = "local[2]"
# When the process of a command began; a command sets it, so that the record of the start includes its imports.
COMMAND_BEGAN_S: ContextVar[float | None] = ContextVar("COMMAND_BEGAN_S", default=None)
Channel = Literal["embedded", "kafka"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTarget:
    """The Spark session or master of a run."""

    master: str
    spark: Any = None
    confs: dict[str, str] = field(default_factory=dict)
    cluster_directory: str | None = None
    cluster_slots: int | None = None  # slots of a worker of a Penstock cluster
    cluster_workers: int = 0

    @staticmethod
    def of(spark: Any, master: str | None, cluster: str | Path | None, confs: Mapping[str, str] | None) -> RunTarget:
        own = dict(confs or {})
        if spark is not None and (master is not None or cluster is not None or own):
            raise OptionError(
                "A Spark session has its own master and properties; give either spark, or master, cluster and confs."
            )
        if master is not None and cluster is not None:
            raise OptionError("The cluster determines the master; give either cluster or master.")
        if cluster is not None:
            from penstock.engines.spark.cluster import running

            up = running(local_directory(cluster))
            return RunTarget(
                master=up.master,
                confs=up.confs | own,
                cluster_directory=str(cluster),
                cluster_slots=up.record.size.slots,
                cluster_workers=up.record.size.workers,
            )
        if spark is None and master is None and not own:
            from penstock.api.spark_session import active_session

            spark = active_session()
        if spark is not None:
            return RunTarget(master=str(spark.sparkContext.master), spark=spark)
        return RunTarget(master=master or DEFAULT_MASTER, confs=own)

    def start_jvm(self, flow: Dataflow | str) -> None:
        """Start the JVM of the session to create, unless the file of the dataflow creates its own session."""
        if self.spark is None and not (isinstance(flow, str) and early_jvm.creates_session(place_of(flow))):
            early_jvm.start(self.master, self.confs)

    def with_session_of(self, flow: Dataflow | str, *, is_master_given: bool) -> RunTarget:
        """Return the target after the file of the dataflow was loaded, which may have created a Spark session."""
        from penstock.api.spark_session import active_session

        session = active_session() if self.spark is None and isinstance(flow, str) else None
        if session is None:
            return self
        early_jvm.discard()
        master = str(session.sparkContext.master)
        if self.confs or self.cluster_directory is not None or (is_master_given and self.master != master):
            raise OptionError(
                f"'{flow}' creates a Spark session with master '{master}', which has its own properties; omit the "
                "master, cluster and properties of the run, or remove the session from the file: Penstock creates one."
            )
        return RunTarget(master=master, spark=session)

    def fit(self, options: PolicyOptions) -> tuple[PolicyOptions, list[str]]:
        """Return the options adapted to the cluster, and remarks about that and about the session."""
        remarks = []
        if self.cluster_slots is not None and options.executor_cores is None:
            options = replace(options, executor_cores=self.cluster_slots)
        options.check()
        if self.cluster_slots is not None and options.executors is not None and options.executor_cores is not None:
            room = self.cluster_workers * max(1, self.cluster_slots // options.executor_cores)
            if options.executors[1] > room:
                remarks.append(
                    f"Up to {options.executors[1]} executors were requested, but the cluster in "
                    f"'{self.cluster_directory}' has room for {room}; at most {room} are used."
                )
                options = options.limited_to(room)
        if options.executors is not None and (self.master == "local" or self.master.startswith("local[")):
            raise OptionError(
                f"The number of executors of '{self.master}' cannot be changed, because the driver runs all tasks; "
                "omit the number of executors, or run on a cluster such as one of 'penstock cluster start'."
            )
        if options.executors is not None and options.executor_cores is None:
            raise OptionError(f"A number of executors on {self.master} requires the number of cores per executor.")
        warnings = [options.warning(self.master)]
        if self.spark is not None:
            from penstock.api.spark_session import missing_settings

            warnings.append(missing_settings(self.spark))
        return options, remarks + [warning for warning in warnings if warning is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything that a run needs, checked before anything starts."""

    flow: Dataflow
    flow_file: str
    directory: Path
    target: RunTarget
    plan: Plan | None
    options: PolicyOptions
    window_s: float
    engine_settings: EngineSettings
    until_idle: bool
    on_window: OnWindow | None
    launched_s: float
    price_per_slot_hour: float | None = None
    prediction: PlanPrediction | None = None  # for the plan

    def open_store(self) -> tuple[Store, bool]:
        """Open the store and record the start; also return whether the directory contains an earlier start."""
        from penstock.store import RunStart, Store

        store = Store(self.directory)
        try:
            is_resumed = store.last_run() is not None
            store.begin_run(
                RunStart(
                    dataflow=self.flow.name,
                    flow_file=self.flow_file,
                    pid=os.getpid(),
                    master=self.target.master,
                    cluster=self.target.cluster_directory,
                    slots_per_executor=self.options.executor_cores,
                    price_per_slot_hour=self.price_per_slot_hour,
                    started_s=time.time(),
                    latency_target=self.options.latency_target,
                    prediction=self.prediction,
                )
            )
        except BaseException:
            store.close()
            raise
        return store, is_resumed

    def engine(self, start_cancelled: threading.Event) -> RunnableEngine:
        """Return the engine, whose start ends at its next step when the event is set."""
        from penstock.engines.spark.engine import SparkEngine

        where: dict[str, Any] = {"master": self.target.master, "confs": self.target.confs}
        if self.target.spark is not None:
            from penstock.api.spark_session import prepared_session

            where = {"spark": prepared_session(self.target.spark)}
        return SparkEngine(
            self.flow,
            self.directory,
            plan=self.plan,
            settings=self.engine_settings,
            start_cancelled=start_cancelled,
            **where,
        )

    def controller(self, engine: RunnableEngine, store: Store) -> Controller | None:
        if self.options.policy is None:
            return None
        from penstock.control.controller import Controller

        settings = controller_settings(self.options, window_s=self.window_s, micro_batch=True)
        return Controller(create_policy(self.options), settings, engine, store)


class PolicySettings:
    """The settings of the policy of a run, which requests may change while it runs."""

    def __init__(self, options: PolicyOptions, controller: Controller, store: Store) -> None:
        self._options, self._controller, self._store = options, controller, store

    def change(self, request: SetPolicy) -> str | None:
        """Change the settings that the request contains, or raise OptionError and change none.

        Returns:
            A remark if fewer slots exist than the policy may use now.
        """
        given: dict[str, Any] = {**request.given()}
        options = replace(self._options, **given)
        options.check()
        policy = create_policy(options)
        self._options = options
        self._controller.use(policy, given)
        self._store.set_latency_target(options.latency_target)
        return self._remark(request)

    def _remark(self, request: SetPolicy) -> str | None:
        available = self._controller.available_slots
        if request.max_slots is None or request.max_slots <= available:
            return None
        executors = self._options.executors
        owner = "the run has" if executors is None else f"its {executors[1]} executors, the most it may use, have"
        return f"No more than {available} are used: {owner} {slots_text(available)}."


def kafka_cluster(
    channel: Channel, bootstrap_servers: str | None, options: Mapping[str, str] | None
) -> KafkaCluster | None:
    if channel != "kafka":
        if bootstrap_servers is not None or options:
            raise OptionError("Bootstrap servers and Kafka options require the channel 'kafka'.")
        return None
    if bootstrap_servers is None:
        raise OptionError("The channel 'kafka' requires bootstrap servers, such as localhost:9092.")
    from penstock.brokers.cluster import KafkaCluster

    return KafkaCluster.of(bootstrap_servers, options)
