"""A Spark that does not start is told in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.dataflow import PenstockError
from penstock.engines.spark.session import session


def test_a_master_that_is_none_is_told_with_what_a_master_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def exited(builder: Any) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", exited)
    with pytest.raises(PenstockError, match=r"with master 'nonsense': .*JAVA_GATEWAY_EXITED.*; a master is local\[N\]"):
        session("nonsense")
