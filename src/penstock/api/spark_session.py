"""Spark sessions that the user created."""

from __future__ import annotations

import sys
from typing import Any


def active_session() -> Any:
    """Return the active Spark session of this thread, or None; pyspark is not imported for this."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def prepared_session(spark: Any) -> Any:
    """Return a new session of the same application, with the user's SQL properties and those that Penstock requires.

    The engine changes properties of its session, so it never gets the user's own session. Temporary views of the
    user's session are not visible in the new one.
    """
    from penstock.engines.spark.session import CONFS

    required = {name: value for name, value in CONFS.items() if name.startswith("spark.sql.")}
    session = spark.newSession()
    for name, value in (spark.conf.getAll | required).items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def missing_settings(spark: Any) -> str | None:
    """Return a sentence about useful settings that must be given before a session starts; None if it has them all."""
    from penstock.engines.spark.session import CONFS, LOCAL_DISK

    options = "spark.driver.extraJavaOptions"
    useful = {
        "spark.scheduler.mode": (CONFS["spark.scheduler.mode"], "a slow query does not delay the others"),
        options: (CONFS[options], "long dataflows do not exhaust the stack"),
        **{name: (value, "checkpoints on a local disk cost half the time") for name, value in LOCAL_DISK.items()},
    }
    given = dict(spark.sparkContext.getConf().getAll()) | spark.conf.getAll
    has_stack_size = "-Xss" in given.get(options, "")
    missing = [
        f"{name}={value} ({benefit})"
        for name, (value, benefit) in useful.items()
        if given.get(name) != value and not (name == options and has_stack_size)
    ]
    if not missing:
        return None
    return (
        f"The Spark session lacks {', '.join(missing)}; set this with SparkSession.builder.config before the session "
        "starts, or let Penstock create the session."
    )
