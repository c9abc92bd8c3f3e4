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
    """Return a session with the SQL properties that Penstock requires.

    The given session is returned if it has them. Otherwise a new session of the same application is returned, so that
    the properties of the user's session stay unchanged. Temporary views of the user's session are not visible there.
    """
    from penstock.engines.spark.session import CONFS

    required = {name: value for name, value in CONFS.items() if name.startswith("spark.sql.")}
    missing = {
        name: value
        for name, value in required.items()
        if spark.conf.get(name, None) != value and spark.conf.isModifiable(name)
    }
    if not missing:
        return spark
    session = spark.newSession()
    for name, value in required.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session
