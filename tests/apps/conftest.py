from __future__ import annotations

import os
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def spark() -> Any:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    base = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session = base.newSession()  # its settings are its own; the context is shared, and so not stopped here
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.join.stateFormatVersion", "3")  # one state store a partition instead of four
    session.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    session.conf.set(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    )
    # Not the zone of the machine, nor the one in which the generators write: results must not depend on it.
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    return session
