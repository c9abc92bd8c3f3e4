from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="module")
def plain_spark(spark: Any) -> Any:
    """A session for queries written by hand: their sources have no names, and the time zone is an odd one."""
    session = spark.newSession()
    for key in ("stateStore.providerClass", "checkpointFileManagerClass", "join.stateFormatVersion"):
        session.conf.set(f"spark.sql.streaming.{key}", spark.conf.get(f"spark.sql.streaming.{key}"))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false")
    # Not the zone of the machine, nor the one in which the generators write: results must not depend on it.
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    return session
