"""One Spark session for all tests, because the start takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The duration of an example depends on the load of the machine, and the number of rejected examples is random. CI does
# not search for new examples, so that a run is reproducible.
settings.register_profile(
    "penstock",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("penstock")


# Spark workers and child processes import `tests` modules by name.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "support" / "spark-conf")


# The files that take longest. They run first, because processes that share all files would wait for them at the end.
LONGEST = {
    f"test_{name}.py"
    for name in (
        "cli_on_spark",
        "curves_on_spark",
        "event_time_chain",
        "exactness",
        "kafka",
        "kill",
        "mst_on_spark",
        "nexmark_on_spark",
        "organic_on_spark",
        "ports",
        "profile_on_spark",
        "programs_on_spark",
        "topics",
    )
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from penstock.engines.spark.session import session

    spark = session("local[2]", "penstock tests")
    jvm = spark.sparkContext._gateway.proc
    yield spark
    spark.stop()
    jvm.stdin.close()  # asks it to end
    jvm.wait()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Kafka broker, which always ends with this process."""
    from penstock.brokers.broker import Broker
    from penstock.brokers.maven_jars import MavenError

    try:
        started = Broker(tmp_path_factory.mktemp("broker")).start()
    except MavenError as error:
        if os.environ.get("PENSTOCK_KAFKA") == "required":
            raise
        pytest.skip(f"no Kafka here, so nothing of Kafka is tested: {error}")
    with started:
        yield started


@pytest.fixture(scope="module")
def plain_spark(spark: Any) -> Any:
    """A session for hand-written queries: their sources have no names, and the time zone is unusual."""
    session = spark.newSession()
    for key in ("stateStore.providerClass", "checkpointFileManagerClass", "join.stateFormatVersion"):
        session.conf.set(f"spark.sql.streaming.{key}", spark.conf.get(f"spark.sql.streaming.{key}"))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false")
    # Neither the zone of the machine nor the zone of the generators, because results must not depend on it.
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    return session
