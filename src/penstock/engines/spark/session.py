"""The Spark session with the settings that Penstock requires."""

from __future__ import annotations

import contextlib
import logging
import os
import pkgutil
import signal
import threading
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.dataflow.errors import PenstockError, SparkUnavailableError
from penstock.engines.spark import early_jvm
from penstock.engines.spark.error_text import first_line
from penstock.engines.spark.jvm import (
    JavaError,
    JvmError,
    connect_jvm,
    end_jvm,
    is_jvm_started,
    running_master,
    silence_logger,
    silence_lost_jvm,
    skip_data_source_lookup,
)
from penstock.engines.spark.jvm_process import JvmEndedError, JvmProcess, is_given_a_jvm
from penstock.engines.spark.log_files import first_error, new_jvm_log
from penstock.engines.spark.master_probe import check_reachable
from penstock.engines.spark.properties import jvm_environment, session_properties

# Loggers that report an abort on the console when a query is stopped within a batch, which is then run again.
_SILENCED_LOGGERS = ("org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",)
# Loggers of PySpark that print each error of a query with the stack traces of Python and Java. The exception that
# follows has the same content.
_SILENCED_PYTHON_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def session(
    master: str, name: str = "penstock", confs: dict[str, str] | None = None, *, run: Path | None = None
) -> SparkSession:
    """Return a session with the settings of Penstock; `confs` take precedence over them.

    The output of Spark goes to a log file in the directory `run`, if it is known. Raises SparkUnavailableError if Spark
    does not start.
    """
    environment = jvm_environment(master)
    for key, value in environment.items():
        os.environ.setdefault(key, value)
    properties = session_properties(master, name, confs)
    _check_master(master, properties)
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    log = early_jvm.waiting_log()
    try:
        jvm = early_jvm.take(properties)
        if jvm is None and not is_given_a_jvm() and (log := new_jvm_log(run)) is not None:
            jvm = JvmProcess(properties, environment, log, is_for_run=run is not None)
        silence_lost_jvm()
        if jvm is not None:
            connect_jvm(jvm)
        builder = SparkSession.builder
        for key, value in properties.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    except (PySparkRuntimeError, JavaError, JvmEndedError) as error:
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
    silence_loggers(spark)
    if os.environ["PYSPARK_PYTHON"] == environment["PYSPARK_PYTHON"] and not _has_installed_sources():
        with contextlib.suppress(JvmError):  # another version of Spark
            skip_data_source_lookup(spark)
    return spark


def silence_loggers(spark: SparkSession) -> None:
    """Do not print the stack trace of a batch that a stop interrupts, or of an error that is reported in one line."""
    for logger in _SILENCED_LOGGERS:
        silence_logger(spark, logger)
    for name in _SILENCED_PYTHON_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _has_installed_sources() -> bool:
    """Return whether this Python, which the workers use as well, may have Python data sources that Spark would find."""
    return any(module.name.startswith("pyspark_") for module in pkgutil.iter_modules())


def _check_master(master: str, properties: dict[str, str]) -> None:
    """Raise PenstockError if this process has a session with another master, or if a standalone master is unreachable.

    PySpark would return the other session. Spark would look for a standalone master for a minute.
    """
    running = running_master()
    if running is not None and running != master:
        raise PenstockError(
            f"This process has a Spark session with master '{running}', so it cannot create one with master "
            f"'{master}'; stop that session first, or run with master '{running}'."
        )
    if running is None and master.startswith("spark://"):
        check_reachable(master, properties)


def abort_start() -> None:
    """End the JVM of this process, so that the thread that starts a session or a query in it fails at once."""
    early_jvm.discard()
    end_jvm()


def end(spark: SparkSession) -> None:
    """Stop a session whose JVM may have ended already, because 'timeout' and others signal the whole process group."""
    with contextlib.suppress(JvmError, OSError):
        spark.stop()
