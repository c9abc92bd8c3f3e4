"""The properties of a Spark session and the environment of its JVM, with the reason for each of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from penstock.engines.spark.local_machine import HOST, worker_python

_STREAMING = "org.apache.spark.sql.execution.streaming"
_NEVER = "1000d"
# Properties that do not affect the speed of a query, or that differ in each session.
_INCIDENTAL = re.compile(
    r"spark\.(app|driver\.(host|port|bindAddress)|executor\.id|local\.dir|log|master|repl|submit|ui)\b|"
    r"spark\.sql\.(ui|warehouse\.dir)\b|.*\.ui\."
)

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
# Dynamic allocation that never changes the number of executors by itself.
PASSIVE_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": _NEVER,
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": _NEVER,
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": _NEVER,
    "spark.dynamicAllocation.schedulerBacklogTimeout": _NEVER,
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": _NEVER,
    # A released executor migrates its blocks first. It checks every half second whether the migration is complete.
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.rddBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "500ms",
}


def session_properties(master: str, name: str, confs: dict[str, str] | None) -> dict[str, str]:
    """Return all properties of a session; `confs` take precedence over those of Penstock."""
    elastic = {} if master.startswith("local") else PASSIVE_ALLOCATION
    loopback = LOOPBACK if _is_here(master) else {}
    return CONFS | LOCAL_DISK | loopback | elastic | (confs or {}) | {"spark.master": master, "spark.app.name": name}


def measured_settings(properties: Mapping[str, str]) -> str:
    """Return the version of Spark and the properties of a session that affect measurements, in a fixed order.

    >>> measured_settings({"spark.app.id": "local-1", "spark.io.compression.codec": "lz4"}).split()[1:]
    ['spark.io.compression.codec=lz4']
    """
    relevant = [f"{name}={value}" for name, value in sorted(properties.items()) if not _INCIDENTAL.match(name)]
    return " ".join([version("pyspark"), *relevant])


def default_properties() -> dict[str, str]:
    """Return the properties that Spark reads from its configuration directory."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (Path(home) / "conf" if home else None)
    file = None if folder is None else Path(folder) / "spark-defaults.conf"
    if file is None or not file.is_file():
        return {}
    lines = (line.strip() for line in file.read_text(errors="replace").splitlines())
    pairs = (re.split(r"[\s=:]+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def jvm_environment(master: str) -> dict[str, str]:
    """Return the environment variables that the JVM of a session needs, unless the user has set them."""
    workers = worker_python() | {"SPARK_LOCAL_IP": HOST} if _is_here(master) else {"PYSPARK_PYTHON": sys.executable}
    return workers | {"PYSPARK_DRIVER_PYTHON": sys.executable}


def _is_here(master: str) -> bool:
    return master.startswith(("local", f"spark://{HOST}:"))
