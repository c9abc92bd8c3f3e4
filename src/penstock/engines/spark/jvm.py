"""All use of Spark's private JVM API.

PySpark is a thin layer over objects in Spark's JVM, which it reaches through py4j (attributes such as `_jvm`, `_jsc`,
`_jsq` and `_jdf`). Penstock needs some objects that PySpark does not expose. Each function here wraps one such call,
says why no public API serves, and returns plain Python values. The rest of the engine does not know Spark's internals.

Verified with Spark 4.3.0. Check every function of this module when the supported version changes; the tests that are
marked `spark` call all of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import utils as pyspark_errors
from pyspark.java_gateway import launch_gateway
from pyspark.resource import ResourceProfile
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engines.spark.jvm_process import JvmProcess, end_process

# Raised by every call into the JVM: an exception was thrown in Java, or the JVM has ended.
JvmError = Py4JError
# The special case of an exception thrown in Java.
JavaError = Py4JJavaError


# ---- errors, process and logging


def is_jvm_started() -> bool:
    """Return whether this process has a JVM. PySpark starts it for the first session and keeps it."""
    return SparkContext._gateway is not None


_connecting: JvmProcess | None = None  # the JVM that starts, until PySpark is connected to it


def connect_jvm(jvm: JvmProcess) -> None:
    """Make PySpark use this JVM as soon as it has started. PySpark otherwise starts one for the first session.

    PySpark gives its own JVM its own output and its own process group; see `JvmProcess`. Raises JvmEndedError if the
    JVM does not start.
    """
    global _connecting
    _connecting = jvm
    try:
        connection = jvm.connection()
        # PySpark connects to a JVM that is running if these variables are set.
        variables = {"PYSPARK_GATEWAY_PORT": str(connection.port), "PYSPARK_GATEWAY_SECRET": connection.secret}
        os.environ.update(variables)
        try:
            launch: Any = launch_gateway
            gateway = launch()
        finally:
            for name in variables:
                del os.environ[name]
        gateway.proc = jvm.process
        context: Any = SparkContext
        context._ensure_initialized(gateway=gateway)
    finally:
        _connecting = None


def end_jvm() -> None:
    """End the JVM of this process, and let the next session start another one.

    Every call into the JVM fails afterwards. PySpark cannot replace a JVM that has ended.
    """
    if _connecting is not None:
        _connecting.end()
    context: Any = SparkContext
    process = getattr(context._gateway, "proc", None)
    if process is None:
        return
    end_process(process)
    context._gateway = context._jvm = context._active_spark_context = None
    sessions: Any = SparkSession
    sessions._instantiatedSession = None


def running_master() -> str | None:
    """Return the master of the Spark application of this process, or None if it has none."""
    context = SparkContext._active_spark_context
    return None if context is None else str(context.master)


def java_message(error: BaseException) -> str | None:
    """Return the message of the Java exception behind an error, or None for an error of Python.

    `str(error)` of such an error also contains the Java stack trace.
    """
    return str(error.java_exception.getMessage() or "") if isinstance(error, Py4JJavaError) else None


def is_connection_lost(error: BaseException) -> bool:
    """Return whether a call into the JVM failed because the JVM has ended."""
    return isinstance(error, ConnectionError | Py4JNetworkError)


def stack_trace(error: BaseException) -> str:
    """Return the text of an error with the stack traces of Python and Java. PySpark hides the second one."""
    return f"{error}\n{getattr(error, '_stackTrace', None) or ''}"


def is_stopped(spark: SparkSession) -> bool:
    """Return whether the Spark context has ended, either through PySpark or on the side of the JVM.

    PySpark does not report a context that Java code has stopped.
    """
    context: Any = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def jvm_pid(spark: SparkSession) -> int | None:
    """Return the process id of the JVM that PySpark started, or None if it connected to an existing one.

    PySpark keeps the process in its py4j gateway only.
    """
    gateway: Any = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def silence_logger(spark: SparkSession, logger: str) -> None:
    """Switch off one Java logger. PySpark can only set the level of all loggers together."""
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


def skip_data_source_lookup(spark: SparkSession) -> None:
    """Tell Spark that no Python data sources are installed.

    The first use of any Python data source otherwise starts a Python process that looks for modules named `pyspark_*`.
    No public property switches this off.
    """
    jvm: Any = spark._jvm
    manager = jvm.java.lang.Class.forName("org.apache.spark.sql.execution.datasources.DataSourceManager$")
    manager = manager.getField("MODULE$").get(None)
    if manager.dataSourceBuilders().isEmpty():
        empty = jvm.scala.collection.immutable.HashMap()
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(empty))


@contextlib.contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread for a while.

    PySpark then keeps the line of the user's code with each expression, and an error of the expression contains it. It
    makes a session active only in the thread that creates it, and remembers the first answer to whether there is one.
    """
    jvm: Any = spark._jvm
    sessions: Any = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    debugging: Any = pyspark_errors
    is_enabled, debugging._enable_debugging_cache = debugging._enable_debugging_cache, None
    try:
        yield
    finally:
        debugging._enable_debugging_cache = is_enabled  # lines cost calls into the JVM, which batches need not make
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def silence_lost_jvm() -> None:
    """Do not print stack traces when the JVM ends first. Py4J logs them, and then raises an error in the caller."""
    logging.getLogger().addFilter(_is_not_of_py4j)  # adding it twice has no effect


# ---- executors


_MAX_TASKS = 10_000
DEFAULT_PROFILE = 0  # the id of Spark's default resource profile


class ExecutorInfo(NamedTuple):
    """One executor in Spark's status store."""

    id: str
    cores: int
    completed_tasks: int


def list_executors(spark: SparkSession) -> list[ExecutorInfo]:
    """Return the executors that Spark considers alive, without the driver.

    The public alternatives are the REST API, which needs the web UI, and `getExecutorMemoryStatus`, which lacks cores.
    """
    context: Any = spark.sparkContext._jsc
    infos = context.sc().statusStore().executorList(True).iterator()
    executors = []
    while infos.hasNext():
        info = infos.next()
        if info.id() != "driver":
            executors.append(ExecutorInfo(str(info.id()), int(info.totalCores()), int(info.completedTasks())))
    return executors


def executors_of_tasks(spark: SparkSession, stages: set[int]) -> dict[int, str]:
    """Return the executor of each task (by its attempt id) of completed stages.

    A task in Python does not know its executor, and PySpark's `StatusTracker` does not know tasks.
    """
    context: Any = spark.sparkContext._jsc
    store = context.sc().statusStore()
    executors = {}
    for stage in stages:
        tasks = store.taskList(stage, 0, _MAX_TASKS).iterator()
        while tasks.hasNext():
            task = tasks.next()
            executors[int(task.taskId())] = str(task.executorId())
    return executors


class ExecutorAllocation:
    """The calls by which Spark's dynamic allocation requests and removes executors.

    They exist for developers in Scala (`ExecutorAllocationClient`); PySpark offers none of them. Dynamic
    allocation itself cannot be used, because it reacts to queued tasks instead of the load of a stream.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        java_context: Any = spark.sparkContext._jsc
        self._context: Any = java_context.sc()
        self._backend: Any = self._context.schedulerBackend()

    def request_total(self, count: int, by_profile: Mapping[int, int] | None = None) -> None:
        """Request total numbers of executors from the cluster manager; they arrive later, or never.

        count: executors of the default resource profile.
        by_profile: executors of other profiles by their ids. A profile must be named again in each later request.
        """
        # `SparkContext.requestTotalExecutors` serves the default profile only, and forgets all others.
        totals = self._jvm.java.util.HashMap()
        for profile, number in {DEFAULT_PROFILE: count, **(by_profile or {})}.items():
            totals.put(profile, number)
        to_scala = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap
        nothing = self._jvm.scala.collection.immutable.HashMap()
        # The result is False if the master does not answer now. The caller observes which executors register.
        self._backend.requestTotalExecutors(to_scala(totals), nothing, nothing)

    def add_profile(self, profile: ResourceProfile) -> int:
        """Make a resource profile known before a query uses it, so that executors can be requested; return its id."""
        java_profile: Any = profile._java_resource_profile
        self._context.resourceProfileManager().addResourceProfile(java_profile)
        return int(java_profile.id())

    def profile_of(self, executor: str) -> int:
        """Return the id of the resource profile of an executor; -1 if it has been removed meanwhile."""
        return int(self._backend.getExecutorResourceProfileId(executor))

    def registered_ids(self) -> list[str]:
        """Return the ids of all registered executors, including those that are being decommissioned."""
        joined = str(self._backend.getExecutorIds().mkString(","))
        return sorted(joined.split(",")) if joined else []

    def is_active(self, executor: str) -> bool:
        """Return whether an executor accepts tasks, which one that is being decommissioned does not."""
        return bool(self._backend.isExecutorActive(executor))

    def decommission(self, executor: str, reason: str) -> None:
        """Let an executor finish its tasks, migrate its blocks and exit, without changing the requested total."""
        info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(reason, self._jvm.scala.Option.empty())
        adjust_target, triggered_by_executor = False, False
        self._backend.decommissionExecutor(executor, info, adjust_target, triggered_by_executor)


# ---- jobs and stages


class Job(msgspec.Struct, frozen=True, rename="camel"):
    """A job in Spark's status store. Spark writes the run id and the batch id of a query into group and description."""

    job_id: int
    status: str
    stage_ids: tuple[int, ...]
    description: str | None = None
    job_group: str | None = None


class Stage(msgspec.Struct, frozen=True, rename="camel"):
    """The last attempt of a stage in Spark's status store."""

    stage_id: int
    attempt_id: int
    status: str
    num_tasks: int
    executor_run_time: int  # milliseconds, summed over its tasks
    submission_time: int | None = None  # milliseconds since the epoch
    completion_time: int | None = None

    @property
    def wall_s(self) -> float | None:
        """Return the time from the submission to the end of the stage; it includes the wait for slots."""
        if self.submission_time is None or self.completion_time is None:
            return None
        return max(0, self.completion_time - self.submission_time) / 1000


class StatusStore:
    """Spark's in-memory record of jobs and stages.

    PySpark's `StatusTracker` lacks run times and descriptions, and the REST API needs the web UI. Each entry is
    serialised in the JVM, because one call that returns JSON is cheaper than one call per field.
    """

    def __init__(self, spark: SparkSession) -> None:
        java_context: Any = spark.sparkContext._jsc
        self._store: Any = java_context.sc().statusStore()
        jvm: Any = spark._jvm
        self._mapper: Any = jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._mapper.registerModule(jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
        # The text of a stage would mostly consist of its SQL metrics, which are not needed here.
        self._stage_mapper: Any = self._mapper.copy()
        sequence = jvm.java.lang.Class.forName("scala.collection.immutable.Seq")
        self._stage_mapper.configOverride(sequence).setIsIgnoredType(True)
        gateway: Any = spark.sparkContext._gateway
        self._maximum: Any = gateway.new_array(gateway.jvm.double, 1)  # the quantile 1.0
        self._maximum[0] = 1.0
        self._no_quantiles: Any = gateway.new_array(gateway.jvm.double, 0)
        self._all_tasks: Any = jvm.java.util.ArrayList()

    def jobs_since(self, job_id: int) -> list[Job]:
        """Return the recorded jobs from this id on, the oldest first, with a single call that returns text."""
        jobs = self._store.jobsList(None)  # the latest first
        if not jobs.size():
            return []
        latest = jobs.take(max(0, int(jobs.head().jobId()) - job_id + 1))
        decoded = msgspec.json.decode(self._mapper.writeValueAsString(latest), type=list[Job])
        return sorted((job for job in decoded if job.job_id >= job_id), key=lambda job: job.job_id)

    def next_job(self) -> int:
        """Return the id of the next job of this application, as far as Spark has recorded jobs."""
        jobs = self._store.jobsList(None)  # the latest first
        return int(jobs.head().jobId()) + 1 if jobs.size() else 0

    def longest_task_s(self, stage: Stage) -> float | None:
        """Return the run time of the longest task of a stage, or None if Spark has discarded its tasks."""
        summary = self._store.taskSummary(stage.stage_id, stage.attempt_id, self._maximum)
        return float(summary.get().executorRunTime().head()) / 1000 if summary.isDefined() else None

    def stage(self, stage_id: int) -> Stage | None:
        """Return the last attempt of a stage, or None if Spark has not recorded it yet or has discarded it.

        Almost every stage has one attempt. Spark finds it by its key, but sorts all stages to find the last attempt.
        """
        try:
            first = self._store.stageAttempt(stage_id, 0, False, self._all_tasks, False, self._no_quantiles)._1()
            stage = self._decode_stage(first)
            return self._decode_stage(self._store.lastStageAttempt(stage_id)) if stage.status == "FAILED" else stage
        except JvmError:
            return None

    def _decode_stage(self, stage: Any) -> Stage:
        return msgspec.json.decode(self._stage_mapper.writeValueAsString(stage), type=Stage)


# ---- logical plans


class PlanNode:
    """A node of Spark's analysed logical plan. PySpark can print a plan, but cannot traverse it."""

    def __init__(self, node: Any) -> None:
        self._node = node

    @property
    def name(self) -> str:
        return str(self._node.nodeName())

    def text(self) -> str:
        """Return this node and all nodes below it as Spark prints them."""
        return str(self._node.toString())

    @property
    def is_streaming(self) -> bool:
        return bool(self._node.isStreaming())

    @property
    def children(self) -> list[PlanNode]:
        children = self._node.children()
        return [PlanNode(children.apply(index)) for index in range(children.size())]

    def has_same_result(self, other: PlanNode) -> bool:
        return bool(self._node.sameResult(other._node))

    def walk(self) -> Iterator[PlanNode]:
        """Yield this node and all nodes below it, parents first, in the order of the inputs."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            yield node
            nodes += reversed(node.children)

    def columns(self) -> dict[int, str]:
        """Return the output columns: Spark's id, which is unique in a plan, and the name."""
        return {int(column.exprId().id()): str(column.name()) for column in _items(self._node.output())}

    def state_keys(self) -> set[int] | None:
        """Return the ids of the columns by which this node partitions its state; None if it keeps none by key."""
        node, name = self._node, self.name
        if name == "Aggregate":
            return set().union(*map(_references, _items(node.groupingExpressions())))
        if name in ("Deduplicate", "DeduplicateWithinWatermark"):
            return set().union(*map(_references, _items(node.keys())))
        if name == "Join":
            # Without a condition, a filter behind the join may contain it.
            return _references(node.condition().get()) if node.condition().isDefined() else None
        if name == "TransformWithStateInPySpark":
            columns = _items(node.leftAttributes())[: int(node.groupingAttributesLen())]
            return set().union(*map(_references, columns))
        if name in ("FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState", "TransformWithState"):
            return set().union(*map(_references, _items(node.groupingAttributes())))
        return None

    def calls_python_aggregate(self) -> bool:
        """Return whether this node aggregates with a pandas or Arrow function of the user."""
        if self.name != "Aggregate":
            return False
        expressions = _items(self._node.aggregateExpressions())
        while expressions:
            expression = expressions.pop()
            if str(expression.nodeName()) == "PythonUDAF":
                return True
            expressions += _items(expression.children())
        return False

    def aggregates(self) -> list[str]:
        """Return the aggregate functions of this node with the columns that they read, in the order of its output.

        The text is the same for every start of a program. It contains no ids of columns and no constants.
        """
        if self.name != "Aggregate":
            return []
        aggregates, expressions = [], _items(self._node.aggregateExpressions())
        while expressions:
            expression = expressions.pop(0)
            if str(expression.nodeName()) == "AggregateExpression":
                columns = sorted(str(column.name()) for column in _items(expression.references().toSeq()))
                distinct = "distinct " if expression.isDistinct() else ""
                aggregates.append(f"{expression.aggregateFunction().prettyName()}({distinct}{', '.join(columns)})")
            else:
                expressions = _items(expression.children()) + expressions
        return aggregates

    def input_event_times(self) -> list[str]:
        """Return the names of the event-time columns that this node receives."""
        columns = [column for child in self.children for column in _items(child._node.output())]
        marked = [column for column in columns if column.metadata().contains("spark.watermarkDelayMs")]
        return [str(column.name()) for column in marked]

    def origins(self) -> dict[int, set[int]]:
        """Return for each column that this node computes the columns that it is computed from, as far as is known."""
        below = {column for child in self.children for column in child.columns()}
        output = list(self.columns())
        origins = {column: set(below) for column in output if column not in below}
        if self.name == "Expand":  # sliding windows
            rows = [_items(row) for row in _items(self._node.projections())]
            for position, column in enumerate(output):
                if column in origins:
                    origins[column] = set().union(*(_references(row[position]) for row in rows))
        for expression in _items(self._node.expressions()):
            if str(expression.nodeName()) == "Alias":
                origins[int(expression.exprId().id())] = _references(expression)
        return origins

    def watermark_id(self) -> WatermarkId:
        """Return the id by which the watermark tracker knows this node, which must be an EventTimeWatermark."""
        java_id = self._node.nodeId()
        return WatermarkId(str(java_id.toString()), java_id)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _references(expression: Any) -> set[int]:
    """Return the ids of the columns in an expression."""
    return {int(column.exprId().id()) for column in _items(expression.references().toSeq())}


def analyzed_plan(df: DataFrame) -> PlanNode:
    """Return the root of the analysed logical plan of a DataFrame."""
    frame: Any = df._jdf
    return PlanNode(frame.queryExecution().analyzed())


def check_for_streaming(spark: SparkSession, df: DataFrame, *, mode: str) -> None:
    """Raise AnalysisException if Spark would refuse to start this streaming query in an output mode.

    Spark itself checks only when a query starts. A plan change has to know before it stops the old queries.
    """
    jvm: Any = spark._jvm
    frame: Any = df._jdf
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    output_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame.queryExecution().analyzed(), output_mode)


# ---- streaming queries


def progress_newest_first(query: StreamingQuery) -> Iterator[str]:
    """Yield the JSON text of each progress report that Spark keeps of a query, starting with the latest one.

    The public `recentProgress` fetches and parses all of them (up to 1024) on every call.
    """
    java_query: Any = query._jsq
    reports = java_query.recentProgress()
    for index in range(len(reports) - 1, -1, -1):
        yield reports[index].json()


class Trigger(NamedTuple):
    """The trigger of a query. `interval_s` is 0 if batches follow each other immediately."""

    kind: str  # ProcessingTime, AvailableNow, OneTime, Continuous or RealTime
    interval_s: float


def trigger(query: StreamingQuery) -> Trigger:
    """Return the trigger that a query was started with. PySpark does not keep it."""
    java_query: Any = query._jsq
    java_trigger = java_query.streamingQuery().trigger()
    kind = str(java_trigger.getClass().getSimpleName()).removesuffix("$").removesuffix("Trigger")
    interval_s = float(java_trigger.intervalMs()) / 1000 if kind == "ProcessingTime" else 0.0
    return Trigger(kind, interval_s)


def reports_backlog(spark: SparkSession, query: StreamingQuery) -> bool:
    """Return whether the latest offsets in the progress of a query show rows that its batches have not read.

    A source without admission control reads everything in each batch. Spark then reports the end of the batch as the
    latest offset.
    """
    jvm: Any = spark._jvm
    java_query: Any = query._jsq
    sources = java_query.streamingQuery().sources()
    interface = "org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl"
    is_instance = jvm.py4j.reflection.TypeUtil.isInstanceOf
    return sources.size() > 0 and all(is_instance(interface, sources.apply(i)) for i in range(sources.size()))


def row_limit(query: StreamingQuery) -> int | None:
    """Return the largest number of rows in a batch of a query with one source, if the source limits its rows.

    The option, such as `maxOffsetsPerTrigger`, is known to the source only.
    """
    java_query: Any = query._jsq
    sources = java_query.streamingQuery().sources()
    if sources.size() != 1:
        return None
    try:
        limit = sources.head().getDefaultReadLimit()
        return int(limit.maxRows()) if str(limit.getClass().getSimpleName()) == "ReadMaxRows" else None
    except Py4JError:  # the source does not limit its batches
        return None


class FileSource(NamedTuple):
    """The files of one file source of a query, at one moment."""

    seen: int  # files that are in a batch
    pending: int | None  # files that are not; None: too many to ask for each
    is_limited: bool  # whether a batch reads a limited number of files or bytes
    most_files: int | None = None  # the largest number of files in a batch; None: unlimited, or limited by bytes


_MAX_FILES = 2_000  # files to ask for; each costs a few calls to the JVM
_SEEN_IN_A_ROW = 20  # seen files in a row, from the newest, after which all older ones count as seen


def file_sources(query: StreamingQuery) -> list[FileSource]:
    """Return the state of each file source of a query.

    The progress report contains no latest offset for a file source. Its own listing and its own record of seen files
    answer for all options (glob, maxFileAge, fileNameOnly, recursive lookup).
    """
    java_query: Any = query._jsq
    sources = java_query.streamingQuery().sources()
    states = []
    for index in range(sources.size()):
        source = sources.apply(index)
        if source.getClass().getSimpleName() != "FileStreamSource":
            continue
        listing = source.getClass().getDeclaredMethod("fetchAllFiles", None)
        listing.setAccessible(True)
        files, seen = listing.invoke(source, None).toIndexedSeq(), source.seenFiles()
        pending = _count_pending(files, seen)
        limit = source.getDefaultReadLimit()
        kind = str(limit.getClass().getSimpleName())
        most_files = int(limit.maxFiles()) if kind == "ReadMaxFiles" else None
        states.append(FileSource(int(seen.size()), pending, kind != "ReadAllAvailable", most_files))
    return states


def _count_pending(files: Any, seen: Any) -> int | None:
    """Return the number of listed files that no batch contains; the listing ends with the file that is read last."""
    pending = seen_in_a_row = 0
    expected = files.size() - int(seen.size())
    for asked, index in enumerate(range(files.size() - 1, -1, -1)):
        if asked == _MAX_FILES:
            return None
        entry = files.apply(index)
        is_new = bool(seen.isNewFile(entry.path(), entry.timestamp()))
        pending += is_new
        seen_in_a_row = 0 if is_new else seen_in_a_row + 1
        if seen_in_a_row == _SEEN_IN_A_ROW and pending >= expected:
            break
    return pending


_STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful"


def output_watermark_ms(spark: SparkSession, query: StreamingQuery) -> int | None:
    """Return the watermark of the output of the current batch; None if there is none.

    Spark computes it for each operator with state, to run several of them in one query: an aggregate passes on its own
    watermark, and a join the time of the oldest row that may still match. No public API returns it.
    """
    execution = _execution(query)
    batch_ms = int(execution.offsetSeqMetadata().batchWatermarkMs())
    jvm: Any = spark._jvm
    is_instance = jvm.py4j.reflection.TypeUtil.isInstanceOf
    watermarks = [batch_ms]
    nodes = [execution.executedPlan()]
    while nodes:
        node = nodes.pop()
        if not is_instance(f"{_STATEFUL}.StateStoreWriter", node):
            children = node.children()
            nodes += [children.apply(index) for index in range(children.size())]
            continue
        output = node.produceOutputWatermark(_input_watermark_ms(spark, node, batch_ms))
        watermarks.append(int(output.get()) if output.isDefined() else 0)
    return min(watermarks) if min(watermarks) > 0 else None


def state_watermarks_ms(spark: SparkSession, query: StreamingQuery) -> dict[int, int]:
    """Return the watermark of each state in the last batch, by Spark's number of the state.

    It is empty if no batch has run since the query was started. The public progress report contains only the watermark
    of the query, from which Spark derives those of the single states.
    """
    execution = _execution(query)
    if execution is None or execution.executedPlan() is None:
        return {}
    batch_ms = int(execution.offsetSeqMetadata().batchWatermarkMs())
    jvm: Any = spark._jvm
    watermarks = {}
    nodes = [execution.executedPlan()]
    while nodes:
        node = nodes.pop()
        children = node.children()
        nodes += [children.apply(index) for index in range(children.size())]
        if jvm.py4j.reflection.TypeUtil.isInstanceOf(f"{_STATEFUL}.StateStoreWriter", node):
            watermarks[int(node.stateInfo().get().operatorId())] = _input_watermark_ms(spark, node, batch_ms)
    return watermarks


def _input_watermark_ms(spark: SparkSession, node: Any, batch_ms: int) -> int:
    """Return the watermark of the input of a node with state. A node without event time has that of the query."""
    jvm: Any = spark._jvm
    has_watermark = jvm.py4j.reflection.TypeUtil.isInstanceOf(f"{_STATEFUL}.WatermarkSupport", node)
    if has_watermark or str(node.nodeName()) == "StreamingSymmetricHashJoin":
        watermark = node.eventTimeWatermarkForEviction()
        return int(watermark.get()) if watermark.isDefined() else batch_ms
    return batch_ms


def observed_time_ms(query: StreamingQuery, observation: str) -> int | None:
    """Return the first value of an observation in the current batch, a timestamp; None if the batch had no rows.

    The public progress report of a batch comes only after the batch has ended.
    """
    row = _execution(query).observedMetrics().get(observation)
    return None if row.isEmpty() or row.get().isNullAt(0) else int(row.get().getTimestamp(0).getTime())


def _execution(query: StreamingQuery) -> Any:
    """Return Spark's IncrementalExecution of the batch that runs, or that ran last."""
    java_query: Any = query._jsq
    return java_query.streamingQuery().lastExecution()


class WatermarkId(NamedTuple):
    """The id of one `withWatermark` in a query, and the Java object that Spark's tracker has as its key."""

    text: str
    java_id: Any


class WatermarkTracker:
    """The watermark of each input of a running query.

    Spark's public progress report and its checkpoint contain only the minimum of all inputs.
    """

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._spark = spark
        java_query: Any = query._jsq
        self._query: Any = java_query.streamingQuery()
        self._tracker: Any = self._query.watermarkTracker()

    def __len__(self) -> int:
        return int(self._tracker.watermarkMap().size())

    def update(self) -> None:
        """Take the event times of the current batch into account, which Spark itself does when the batch has ended."""
        self._tracker.updateWatermark(self._query.lastExecution().executedPlan())

    def lowest_ms(self) -> int | None:
        """Return the lowest watermark after the current batch; None if an input has had no rows."""
        self.update()
        values = _items(self._tracker.watermarkMap().values().toSeq())
        return min(int(value.get()) for value in values) if all(value.isDefined() for value in values) else None

    def read(self, ids: list[WatermarkId]) -> list[int | None]:
        """Return watermarks in milliseconds; None for an input that has had no rows."""
        watermarks = self._tracker.watermarkMap()
        values = [watermarks.apply(watermark.java_id) for watermark in ids]
        return [int(value.get()) if value.isDefined() else None for value in values]

    def write(self, watermark: WatermarkId, milliseconds: int) -> None:
        """Set one watermark. Spark restores only the minimum after a restart, so its map is changed by reflection."""
        field = self._tracker.getClass().getDeclaredField("operatorToWatermarkMap")
        field.setAccessible(True)
        jvm: Any = self._spark._jvm
        # Convert from a string, because py4j would pass a small number as an Integer where Scala requires a Long.
        value = jvm.scala.collection.StringOps(str(milliseconds)).toLongOption()
        field.get(self._tracker).put(watermark.java_id, value)


# ---- checkpoints


def repartition_state(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Change the number of state partitions in the checkpoint of a stopped query whose last batch is committed.

    `checkpoint` is a location with a scheme.

    Spark 4.3 implements this for RocksDB state, but has not made `_streamingCheckpointManager` public yet.
    """
    manager: Any = spark._streamingCheckpointManager
    manager.repartition(checkpoint, partitions)
