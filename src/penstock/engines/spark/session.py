"""The Spark session: the settings that Penstock builds on, and why."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.error_text import first_line
from penstock.engines.spark.executors.spark_negotiator import PASSIVE_ALLOCATION
from penstock.engines.spark.jvm import JavaError, JvmError, silence_logger
from penstock.engines.spark.local_machine import HOST, worker_python

_STREAMING = "org.apache.spark.sql.execution.streaming"

CONFS = {
    # Replicas are exact: nobody merges partitions behind the plan's back.
    "spark.sql.adaptive.enabled": "false",
    # The only state store whose partitions can be changed, and its checkpoint format with the least files.
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.join.stateFormatVersion": "3",
    # A query may be given another source later without losing its state.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    # One slow query does not starve the others.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.numRecentProgressUpdates": "1024",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "400",
    "spark.ui.retainedStages": "800",
    "spark.sql.ui.retainedExecutions": "50",
    # Spark walks the plans of long dataflows recursively, and so does its search for an interruption in a stopped
    # query's error, letter by letter.
    "spark.driver.extraJavaOptions": "-Xss16m",
}
# Executors of this machine reach the driver without a network; those of others could not reach it so.
LOOPBACK = {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
# On a local disk a rename is atomic, and the checkpoint files cost half as much; elsewhere Spark's own default stays.
LOCAL_DISK = {
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
}

# Says "aborted" on the console when a query is stopped in the middle of a batch, which it does again.
_LOUD_ENDS = ("org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",)


def session(master: str, name: str = "penstock", confs: dict[str, str] | None = None) -> SparkSession:
    """A session with Penstock's settings; yours, given in `confs`, win."""
    here = master.startswith(("local", f"spark://{HOST}:"))
    environment = worker_python() | {"SPARK_LOCAL_IP": HOST} if here else {"PYSPARK_PYTHON": sys.executable}
    for key, value in (environment | {"PYSPARK_DRIVER_PYTHON": sys.executable}).items():
        os.environ.setdefault(key, value)
    builder = SparkSession.builder.master(master).appName(name)
    elastic = {} if master.startswith("local") else PASSIVE_ALLOCATION
    for key, value in (CONFS | LOCAL_DISK | (LOOPBACK if here else {}) | elastic | (confs or {})).items():
        builder = builder.config(key, value)
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        spark = builder.getOrCreate()
    except (PySparkRuntimeError, JavaError) as error:
        raise PenstockError(
            f"Spark does not start with master '{master}': {first_line(error)}; a master is local[N], "
            "spark://HOST:PORT, yarn or k8s://URL, and Spark needs a Java, which JAVA_HOME may name"
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # PySpark's handler, which cancels the jobs below running queries, goes; one for Ctrl-C stays.
            signal.signal(signal.SIGINT, on_ctrl_c if callable(on_ctrl_c) else signal.default_int_handler)
    for logger in _LOUD_ENDS:
        silence_logger(spark, logger)
    return spark


def end(spark: SparkSession) -> None:
    """Its JVM may have ended already: who sends SIGTERM to a whole group, as 'timeout' does, sends it there as well."""
    with contextlib.suppress(JvmError, OSError):
        spark.stop()
