"""Errors of Spark in one sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.dataflow import PenstockError
from penstock.engines.spark.error_text import first_line
from penstock.engines.spark.session import session


def test_an_invalid_master_is_reported_with_valid_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    def exited(builder: Any) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", exited)
    with pytest.raises(PenstockError, match=r"with master 'nonsense': .*JAVA_GATEWAY_EXITED.*; a master is local\[N\]"):
        session("nonsense")


def test_errors_of_java_are_reported_without_the_failed_call() -> None:
    java = SimpleNamespace(_target_id="o8", getMessage=lambda: "No stateful operator was found.\nEnsure that ...")
    assert first_line(Py4JJavaError("An error occurred while calling o811.repartition.", java)) == (
        "No stateful operator was found"
    )
    assert first_line(ValueError()) == "ValueError"
