"""A session of the user is not modified, and a remark lists the settings that it lacks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.api.spark_session import prepared_session
from penstock.engines.spark.properties import CONFS, LOCAL_DISK
from tests.support.double_flow import double_flow
from tests.support.memory_engine import MemoryEngine


@pytest.fixture(autouse=True)
def no_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sessions here have no JVM, so that there are no loggers to silence."""
    monkeypatch.setattr("penstock.engines.spark.session.silence_loggers", lambda spark: None)


class Conf:
    """SQL properties of a session. Properties of the application (not spark.sql) cannot be modified, as in Spark."""

    def __init__(self, values: dict[str, str]) -> None:
        self.getAll = dict(values)

    def isModifiable(self, name: str) -> bool:  # noqa: N802
        return name.startswith("spark.sql.")

    def set(self, name: str, value: str) -> None:
        assert self.isModifiable(name)
        self.getAll[name] = value


class Session:
    """A session without Spark: a new session has the properties of the application, not those set later."""

    def __init__(self, application: dict[str, str]) -> None:
        self.application = application
        self.conf = Conf(application)
        conf = SimpleNamespace(getAll=lambda: list(application.items()))
        self.sparkContext = SimpleNamespace(master="local[2]", getConf=lambda: conf)

    def newSession(self) -> Session:  # noqa: N802
        return Session(self.application)


def test_the_engine_gets_a_session_of_its_own_with_the_properties_of_the_user() -> None:
    user = Session({**CONFS})  # it has all that Penstock requires
    user.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    before = dict(user.conf.getAll)
    prepared = prepared_session(user)
    assert prepared.conf.getAll["spark.sql.session.timeZone"] == "Asia/Tokyo"
    prepared.conf.set("spark.sql.shuffle.partitions", "7")
    assert user.conf.getAll == before


def test_the_session_of_the_engine_has_the_required_properties() -> None:
    user = Session({"spark.sql.adaptive.enabled": "true"})
    assert prepared_session(user).conf.getAll["spark.sql.adaptive.enabled"] == "false"
    assert user.conf.getAll == {"spark.sql.adaptive.enabled": "true"}


@pytest.mark.parametrize(
    ("application", "lacking"),
    [
        ({}, ["spark.scheduler.mode=FAIR", "spark.driver.extraJavaOptions=-Xss16m", "checkpointFileManagerClass="]),
        ({"spark.scheduler.mode": "FAIR", "spark.driver.extraJavaOptions": "-ea -Xss8m"}, ["checkpointFileManager"]),
        ({**CONFS, **LOCAL_DISK}, []),
    ],
)
def test_a_remark_lists_the_settings_that_a_session_lacks(
    engines: list[MemoryEngine], tmp_path: Path, application: dict[str, str], lacking: list[str]
) -> None:
    messages: list[str] = []
    spark: Any = Session(application)
    penstock.run(double_flow(None), at=tmp_path, spark=spark, window_s=0.05, on_message=messages.append).stop()
    remarks = [message for message in messages if message.startswith("The Spark session lacks")]
    assert len(remarks) == (1 if lacking else 0)
    assert all(name in remarks[0] for name in lacking)
    assert ("FAIR" in "".join(remarks)) == ("spark.scheduler.mode=FAIR" in lacking)
