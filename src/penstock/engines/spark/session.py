"""The Spark session with the settings that Penstock requires, and the reason for each setting."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.dataflow.errors import PenstockError, SparkUnavailableError
from penstock.engines.spark.error_text import first_line
from penstock.engines.spark.executors.spark_negotiator import PASSIVE_ALLOCATION
from penstock.engines.spark.jvm import (
    JavaError,
    JvmError,
    is_jvm_started,
    running_master,
    silence_logger,
    start_jvm,
)
from penstock.engines.spark.local_machine import HOST, worker_python
from penstock.engines.spark.log_files import first_error, new_jvm_log

_STREAMING = "org.apache.spark.sql.execution.streaming"

CONFS = {
    # Adaptive execution would merge partitions; the number of replicas must be that of the plan.
    "spark.sql.adaptive.enabled": "false",
    # RocksDB is the only state store that can be repartitioned. Format 2 writes the fewest checkpoint files.
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.join.stateFormatVersion": "3",
    # A query may read another source after a plan change without losing its state.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    # A slow query does not starve the others.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.numRecentProgressUpdates": "1024",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The log has the complete stack trace of a user's function, because the console has one line.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "400",
    "spark.ui.retainedStages": "800",
    "spark.sql.ui.retainedExecutions": "50",
    # Spark traverses the plans of long dataflows recursively. It also searches the error text of a stopped query
    # recursively, one level per character.
    "spark.driver.extraJavaOptions": "-Xss16m",
}
# Executors on this machine reach the driver on the loopback interface. Executors on other machines could not.
LOOPBACK = {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
# A rename on a local disk is atomic, so this cheaper manager of checkpoint files is safe. It halves their cost.
LOCAL_DISK = {
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
}

# Loggers that report an abort on the console when a query is stopped within a batch, which is then run again.
_SILENCED_LOGGERS = ("org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",)

_CONNECT_TIMEOUT_S = 5.0


def session(
    master: str, name: str = "penstock", confs: dict[str, str] | None = None, *, run: Path | None = None
) -> SparkSession:
    """Return a session with the settings of Penstock; `confs` take precedence over them.

    The output of Spark goes to a log file in the directory `run`, if it is known. Raises SparkUnavailableError if Spark
    does not start.
    """
    here = master.startswith(("local", f"spark://{HOST}:"))
    environment = worker_python() | {"SPARK_LOCAL_IP": HOST} if here else {"PYSPARK_PYTHON": sys.executable}
    for key, value in (environment | {"PYSPARK_DRIVER_PYTHON": sys.executable}).items():
        os.environ.setdefault(key, value)
    elastic = {} if master.startswith("local") else PASSIVE_ALLOCATION
    properties = CONFS | LOCAL_DISK | (LOOPBACK if here else {}) | elastic | (confs or {})
    properties |= {"spark.master": master, "spark.app.name": name}
    _check_master(master)
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    log = new_jvm_log(run)
    try:
        if log is not None:
            start_jvm(properties, log)
        builder = SparkSession.builder
        for key, value in properties.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    except (PySparkRuntimeError, JavaError) as error:
        if is_jvm_started() and master.startswith("spark://"):
            raise SparkUnavailableError(
                f"The Spark master '{master}' does not answer ({first_line(error)}); check that this is the address of "
                "a running master of the same version of Spark."
            ) from error
        reason = first_line(error) if is_jvm_started() else first_error(log)
        raise SparkUnavailableError(
            f"Spark does not start with master '{master}': {reason}; a master is local[N], spark://HOST:PORT, yarn or "
            "k8s://URL, and Spark needs Java; set JAVA_HOME if Java is not on the PATH"
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # PySpark installs a handler that cancels the jobs of running queries. Restore the previous one.
            signal.signal(signal.SIGINT, on_ctrl_c if callable(on_ctrl_c) else signal.default_int_handler)
    for logger in _SILENCED_LOGGERS:
        silence_logger(spark, logger)
    return spark


def _check_master(master: str) -> None:
    """Raise PenstockError if this process has a session with another master, or if a standalone master is unreachable.

    PySpark would return the other session. Spark would look for a standalone master for a minute.
    """
    running = running_master()
    if running is not None and running != master:
        raise PenstockError(
            f"This process has a Spark session with master '{running}', so it cannot create one with master "
            f"'{master}'; stop that session first, or run with master '{running}'."
        )
    if running is not None or not master.startswith("spark://"):
        return
    addresses = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
    reasons = []
    for host, _, port in addresses:
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
        except ValueError:
            reasons.append(f"'{host}:{port}' is not HOST:PORT")
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise SparkUnavailableError(
        f"The Spark master '{master}' cannot be reached ({', '.join(reasons)}); start it, or give the address of a "
        "running one."
    )


def end(spark: SparkSession) -> None:
    """Stop a session whose JVM may have ended already, because 'timeout' and others signal the whole process group."""
    with contextlib.suppress(JvmError, OSError):
        spark.stop()
