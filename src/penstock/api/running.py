"""`penstock.run`: start a dataflow in this process, with the control loop in a background thread."""

from __future__ import annotations

import atexit
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.api.input_files import dataflow_from, plan_from, prediction_for
from penstock.api.launch import COMMAND_BEGAN_S, Channel, Launch, PolicySettings, RunTarget, kafka_cluster
from penstock.api.policy_options import (
    Mode,
    OptionError,
    PolicyOptions,
    Queue,
    create_policy,
    default_window_s,
    profile_remarks,
)
from penstock.api.record import RunRecord
from penstock.api.spark_session import SessionOnDemand
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.dataflow import Dataflow
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory
from penstock.dataflow.sources import never_ends
from penstock.engines.spark import early_jvm
from penstock.plan import Plan, Routing, validated

if TYPE_CHECKING:
    from penstock.control.loop import OnWindow, Stopped
    from penstock.control.requests import Answer
    from penstock.engines.ports import RunnableEngine

_NO_FILE = "-"  # recorded for a dataflow that was not loaded from a file
_EXIT_TIMEOUT_S = 60.0  # how long Ctrl-C during the start and the end of the program wait for a clean stop
_CANCEL_AGAIN_S = 0.5
_CANCELLED = "interrupted during the start"


class RunFailedError(PenstockError):
    """The run ended because of an error."""


@checked_types(OptionError)
def run(
    flow: Dataflow | str,
    *,
    at: str | Path | None = None,
    spark: Any = None,
    master: str | None = None,
    cluster: str | Path | None = None,
    confs: Mapping[str, str] | None = None,
    plan: Plan | str | Path | None = None,
    routing: Routing | None = None,
    policy: str | None = None,
    mode: Mode = "recommend",
    latency_s: float | None = None,
    release_below_s: float | None = None,
    quantile: float | None = None,
    max_slots: int | None = None,
    executors: tuple[int, int] | None = None,
    executor_cores: int | None = None,
    cooldown_s: float = 60.0,
    quiet_hours: str | None = None,
    windows: int = 5,
    alpha: float | None = None,
    queue: Queue | None = None,
    warm_up_s: float = 15.0,
    catch_up_s: float = 120.0,
    mst_study: str | Path | None = None,
    adaptation: AdaptationParameters | None = None,
    thread_s: float = 0.0,
    replica_s: float = 0.0,
    profile: str | Path | None = None,
    drift_s: float = 60.0,
    price_per_slot_hour: float | None = None,
    curves: str | Path | None = None,
    window_s: float | None = None,
    batch_s: float = 2.0,
    sample_every: int = 16,
    channel: Channel = "embedded",
    bootstrap_servers: str | None = None,
    kafka_options: Mapping[str, str] | None = None,
    until_idle: bool = False,
    on_window: OnWindow | None = None,
    on_message: Callable[[str], None] | None = None,
) -> Run:
    """Start a dataflow in the directory `at`, or resume it there, and return once it runs.

    Use the result as a context manager, or call its `stop` method. Errors of the start are raised here; later errors
    are raised by `Run.wait` and at the end of the `with` block.

    Args:
        flow: The dataflow, or "FILE[:name]" or "MODULE[:name]".
        at: Directory of the run; default `runs/<name of the dataflow>`.
        spark: An existing Spark session, which stays open after the run. The default is the active session, also one
            that the file of the dataflow creates, or a new one.
        master: Spark master of the session to create; default "local[2]".
        cluster: Directory of a Penstock cluster, which determines the master; see `start_cluster`.
        confs: Spark properties of the session to create.
        plan: The plan to start with, as a value or as a JSON file. The default is the last plan of the run, or the
            default plan. The run records the prediction that `allocate` has written beside the file.
        routing: Rows of replicas with different numbers of threads or rates: "capacity" gives each replica rows in
            proportion to them, "even" gives all replicas the same. The default is the routing of the plan.
        policy: The name of a scaling policy in `penstock.control.policies.catalogue.POLICIES`. The default is "auto" if
            a latency target or a limit is given; otherwise the plan is fixed.
        mode: "recommend" records decisions, "active" also applies them, "off" makes none.
        latency_s: Latency target (policies auto and drs).
        release_below_s: Latency below which slots are released (policy drs); default: half of the target.
        quantile: Apply the target to this quantile (0.5, 0.95 or 0.99) of the latency instead of the mean.
        max_slots: Largest number of slots that the policy may use. Without `latency_s`, policies auto and drs minimise
            the latency. Policy auto accepts both, policy drs only one of them.
        executors: Smallest and largest number of executors.
        executor_cores: Slots of an executor.
        cooldown_s: Smallest time between two plan changes, and between the start and the first one.
        quiet_hours: Hours of each day without a plan change, such as "22:00-06:00", in local time.
        windows: Number of windows to average.
        alpha: Smooth exponentially instead: the smoothed value is alpha times the previous one plus 1 - alpha times
            that of the window. Decisions begin after `windows` windows.
        queue: Queueing model of policy drs: "mmk" or "gigk", which uses the measured variability of arrivals and costs.
            The default is the model of micro-batches.
        warm_up_s: Time after the start and after a plan change whose windows are not used.
        catch_up_s: Time in which a backlog must be processed (policy mst).
        mst_study: Directory of a throughput study (policy mst).
        adaptation: Thresholds and variant (policy organic); default: the values of the paper, with extensions.
        thread_s: Time to pass a row to another pipeline (policy fission-model).
        replica_s: Additional time per row if there are 2 replicas; twice as much for 4 (policy fission-model).
        profile: Directory of a study by `penstock.profile` (policy stepwise).
        drift_s: Time for which the backlog or the latency must be above its threshold, although the profile sustained
            the rate, before the plan is recalibrated (policy stepwise).
        price_per_slot_hour: Price of a slot for one hour, in any currency. The status and the report contain the cost.
        curves: Directory of a study by `penstock.measure_curves`, or a JSON file with curves (policy curves).
        window_s: Length of a measurement window; default: 1 s with policy organic, which has periods of its own, else
            2 s.
        batch_s: Duration that micro-batches aim at while rows are waiting.
        sample_every: One row in this many is timed individually in row functions.
        channel: Where new cuts store their rows: in the directory of the run ("embedded") or in Kafka topics ("kafka").
        bootstrap_servers: Addresses of brokers for the channel "kafka".
        kafka_options: Options of the Kafka client for the channel "kafka".
        until_idle: Stop the run when all input is processed.
        on_window: Called in the background thread with each window and the plan in force.
        on_message: Called with one sentence for each remark about the start, and when a failed query is restarted.

    Returns:
        The run. It has started, and all its queries are running.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PlanError: The plan does not fit the dataflow.
        DataflowError: The dataflow is incomplete.
    """
    launched_s = COMMAND_BEGAN_S.get() or time.time()
    from penstock.engines.spark.settings import EngineSettings

    options = PolicyOptions(
        policy=policy,
        mode=mode,
        latency_s=latency_s,
        release_below_s=release_below_s,
        quantile=quantile,
        max_slots=max_slots,
        executors=executors,
        executor_cores=executor_cores,
        cooldown_s=cooldown_s,
        quiet_hours=quiet_hours,
        windows=windows,
        alpha=alpha,
        queue=queue,
        warm_up_s=warm_up_s,
        catch_up_s=catch_up_s,
        mst_study=None if mst_study is None else Path(mst_study),
        adaptation=adaptation,
        thread_s=thread_s,
        replica_s=replica_s,
        profile=None if profile is None else Path(profile),
        drift_s=drift_s,
        curves=None if curves is None else Path(curves),
    ).with_default_policy()
    if window_s is None:
        window_s = default_window_s(options.policy)
    if price_per_slot_hour is not None and not 0 <= price_per_slot_hour < float("inf"):
        raise OptionError(f"price_per_slot_hour is {price_per_slot_hour}; it must be a finite number, 0 or more.")
    if not 0 < window_s < float("inf"):
        raise OptionError(f"window_s is {window_s}; it must be a finite number above 0.")
    target = RunTarget.of(spark, master, cluster, confs)
    target.fit(options)  # refuse options that do not fit before anything is loaded
    kafka = kafka_cluster(channel, bootstrap_servers, kafka_options)
    directory = None if at is None else local_directory(at)
    on_demand = SessionOnDemand(target.master, target.confs)
    try:
        target.start_jvm(flow)
        dataflow = dataflow_from(flow, on_demand)
        if on_demand.session is None:
            target = target.with_session_of(flow, is_master_given=master is not None)
        options, remarks = target.fit(options)
        options = options.for_flow(dataflow)
        remarks += profile_remarks(options)
        if until_idle:
            check_ends(dataflow)
        first_plan = None if plan is None else validated(dataflow, plan_from(plan))
        if first_plan is not None and routing is not None:
            first_plan = first_plan.replace(routing=routing)
        launch = Launch(
            flow=dataflow,
            flow_file=flow if isinstance(flow, str) else _NO_FILE,
            directory=Path("runs") / dataflow.name if directory is None else directory,
            target=target,
            plan=first_plan,
            options=options,
            window_s=window_s,
            engine_settings=EngineSettings(batch_s=batch_s, sample_every=sample_every, kafka=kafka, routing=routing),
            until_idle=until_idle,
            on_window=on_window,
            launched_s=launched_s,
            price_per_slot_hour=price_per_slot_hour,
            prediction=prediction_for(plan),
        )
        return Run(launch, on_message=on_message, remarks=remarks)  # it uses the session, and stops it at the end
    except BaseException:
        early_jvm.discard()
        on_demand.stop()
        raise


def check_ends(flow: Dataflow) -> None:
    """Raise PenstockError if a source never ends."""
    endless = next((operator.name for operator in flow.operators if never_ends(operator.source)), None)
    if endless is not None:
        raise PenstockError(
            f"Source '{endless}' never ends, so the run never becomes idle; do not wait for that, and stop the run "
            "instead."
        )


class Run(RunRecord):
    """A run of this process. Its methods may be called from any thread.

    The background thread is a daemon. If the program ends without `stop`, the run is stopped at the exit.
    """

    def __init__(
        self, launch: Launch, *, on_message: Callable[[str], None] | None = None, remarks: list[str] | None = None
    ) -> None:
        super().__init__(launch.directory)
        self._launch, self._on_message = launch, on_message
        self._started, self._ended_event = threading.Event(), threading.Event()
        self._idle_changed = threading.Condition()  # guards the two counts
        self._idle_waiters = 0  # threads in `wait_until_idle`
        self._idle_observations = 0  # how often all input was processed
        self._stop_reason: str | None = None
        self._start_cancelled = threading.Event()
        self._ended: Stopped | None = None
        self._error: BaseException | None = None
        if launch.options.policy is not None:
            create_policy(launch.options)  # an invalid study is refused before anything starts
        self._store, self.is_resumed = launch.open_store()
        self._thread = threading.Thread(target=self._main, name=f"penstock {launch.flow.name}", daemon=True)
        try:
            if on_message is not None:
                verb = "Resuming" if self.is_resumed else "Starting"
                on_message(f"{verb} {launch.flow.name} in {launch.directory} on {launch.target.master} ...")
                for remark in remarks or []:
                    on_message(remark)
        except BaseException as error:
            self._abandon(error)
            raise
        try:
            self._thread.start()
            atexit.register(self._at_exit)
            self._started.wait()
        except RuntimeError as error:  # the system has no thread left
            self._abandon(error)
            raise
        except BaseException:  # Ctrl-C: the caller gets no handle, so the run must end here
            self._cancel_start()
            raise
        if self._error is not None:
            self._finish()
            raise self._error

    # ---- waiting and stopping

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run ends and return True, or return False after the timeout.

        Raises:
            RunFailedError: The run failed.
        """
        if not self._ended_event.wait(timeout_s):
            return False
        self._finish()
        self._raise_failure()
        return True

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until all input is processed and return True.

        Returns:
            False if the timeout expires first, or if the run stops for another reason.

        Raises:
            PenstockError: A source never ends.
            RunFailedError: The run failed.
        """
        check_ends(self._launch.flow)
        with self._idle_changed:
            before = self._idle_observations
            self._idle_waiters += 1
            try:
                self._idle_changed.wait_for(
                    lambda: self._idle_observations > before or self._ended_event.is_set(), timeout_s
                )
                is_idle = self._idle_observations > before
            finally:
                self._idle_waiters -= 1
        if not is_idle and self._ended_event.is_set():
            self.wait()
            # Such a run ends at the first observation, which may have been before this call.
            is_idle = self._launch.until_idle and self._idle_observations > 0
        return is_idle

    def stop(self, reason: str = "stopped from Python", *, timeout_s: float | None = None) -> Answer:
        """Stop the run so that it can be resumed, and wait until it has stopped. `reason` is recorded."""
        from penstock.control.requests import Answer, RequestError

        self.request_stop(reason)
        if not self._ended_event.wait(timeout_s):
            raise RequestError(f"The run in '{self.directory}' has not stopped within {timeout_s:g} s.")
        self._finish()
        return Answer(ok=True, text="stopped")

    def request_stop(self, reason: str) -> None:
        """Stop the run soon; return immediately."""
        if self._stop_reason is None:
            self._stop_reason = reason

    @property
    def failure(self) -> str | None:
        """Why the run failed; None if it runs or ended without an error."""
        if self._error is not None:
            return f"{type(self._error).__name__}: {self._error}"
        return self._ended.reason if self._ended is not None and self._ended.failed else None

    @property
    def stop_reason(self) -> str | None:
        """Why the run ended; None while it runs."""
        return self.failure if self._ended is None else self._ended.reason

    def resume_command(self) -> str | None:
        """Return the command that resumes the run; None if the dataflow was not loaded from a file."""
        launch, target = self._launch, self._launch.target
        if launch.flow_file == _NO_FILE:
            return None
        where = (
            ["--master", target.master]
            if target.cluster_directory is None
            else ["--cluster", str(target.cluster_directory)]
        )
        return shlex.join(["penstock", "run", launch.flow_file, "--at", str(self.directory), *where])

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended."""
        return not self._ended_event.is_set()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop("stopped from Python" if kind is None else f"stopped by {kind.__name__} in the program")
        if kind is None:
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise self._error
        if self._ended is not None and self._ended.failed:
            from penstock.engines.spark.log_files import error_log

            command, log = self.resume_command(), error_log(self.directory)
            resume = "run the Python program again" if command is None else f"resume with: {command}"
            trace = f" The stack trace is in {log}." if log.exists() else ""
            raise RunFailedError(f"The run failed: {self._ended.reason}.{trace} Correct the cause, then {resume}")

    def _cancel_start(self) -> None:
        """End the start. The JVM of a session that Penstock creates is ended, because no call into it can be cancelled.

        If the user passed a session, the start ends after the call in progress, and its queries are stopped. A start
        may end at any point, as after `kill -9`: a plan is committed completely or not at all.
        """
        self.request_stop(_CANCELLED)
        self._start_cancelled.set()
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._launch.target.spark is None:
                early_jvm.discard()
                # Without this module no JVM has been connected. Its import would delay the end.
                if "penstock.engines.spark.session" in sys.modules:
                    sys.modules["penstock.engines.spark.session"].abort_start()
            if self._ended_event.wait(_CANCEL_AGAIN_S):  # the thread may just have started another JVM
                break

    def _abandon(self, error: BaseException) -> None:
        """Close the store, which otherwise the background thread does."""
        with self._store as store:
            store.end_run(at_s=time.time(), reason=f"{type(error).__name__}: {error}")

    def _finish(self) -> None:
        self._thread.join()
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        self.request_stop("the program ended")
        self._thread.join(timeout=_EXIT_TIMEOUT_S)

    # ---- the background thread

    def _main(self) -> None:
        from penstock.control.loop import Loop
        from penstock.control.requests import Requests
        from penstock.control.run import RunSchedule
        from penstock.control.run import run as run_loop

        try:
            with self._store as store:
                engine = self._launch.engine(self._start_cancelled)
                if self._stop_reason == _CANCELLED:
                    store.end_run(at_s=time.time(), reason=_CANCELLED)
                    return
                controller = self._launch.controller(engine, store)
                settings = None if controller is None else PolicySettings(self._launch.options, controller, store)
                schedule = RunSchedule(
                    window_s=self._launch.window_s,
                    launched_s=self._launch.launched_s,
                    warm_up_s=self._launch.options.warm_up_s,
                    until=lambda: self._check_idle(engine),
                    stop_reason=lambda: self._stop_reason,
                )
                self._ended = run_loop(
                    engine,
                    Loop(
                        engine=engine,
                        store=store,
                        controller=controller,
                        on_window=self._launch.on_window,
                        on_message=self._on_message,
                    ),
                    Requests(self.directory),
                    schedule,
                    on_start=self._started.set,
                    change_settings=None if settings is None else settings.change,
                )
        except BaseException as error:  # raised again in the thread that waits
            self._error = self._explained(error)
        finally:
            self._ended_event.set()
            self._started.set()
            with self._idle_changed:
                self._idle_changed.notify_all()

    def _explained(self, error: BaseException) -> BaseException:
        """Return an error in one sentence if Spark's JVM has ended, as after a signal to the whole process group."""
        from penstock.engines.spark.jvm import is_connection_lost

        if not is_connection_lost(error):
            return error
        reason = f" after {self._stop_reason}" if self._stop_reason else ""
        resumed = self.resume_command() or "the same Python program"
        return RunFailedError(f"Spark's JVM has ended{reason}, so the run ended as well; resume it with: {resumed}")

    def _check_idle(self, engine: RunnableEngine) -> bool:
        """Return whether the run must end; checking for idleness takes time, so it is done on demand only."""
        if not (self._launch.until_idle or self._idle_waiters) or not engine.idle():
            return False
        with self._idle_changed:
            self._idle_observations += 1
            self._idle_changed.notify_all()
        return self._launch.until_idle
