"""Errors of Spark in one sentence."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.dataflow import PenstockError
from penstock.engines.spark.error_text import first_line
from penstock.engines.spark.session import session, silence_loggers


def outcome(program: str, **environment: str) -> str:
    """Return the last line of a program in a process of its own, which has no JVM yet."""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, **environment}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.stderr == "", result.stderr
    return result.stdout.strip()


START = """
from penstock.dataflow import PenstockError
from penstock.engines.spark.session import session, silence_loggers
try:
    session({master!r})
except PenstockError as error:
    print(error)
"""


def test_a_machine_without_java() -> None:
    text = outcome(START.format(master="local[1]"), JAVA_HOME="/nowhere")
    assert text.startswith("Spark does not start with master 'local[1]': ") and "/nowhere/bin/java" in text
    assert text.endswith("Spark needs Java; set JAVA_HOME if Java is not on the PATH") and "\n" not in text


def test_an_unreachable_master_is_one_sentence_and_needs_no_jvm() -> None:
    text = outcome(START.format(master="spark://127.0.0.1:1"), JAVA_HOME="/nowhere")
    assert text == (
        "The Spark master 'spark://127.0.0.1:1' cannot be reached (127.0.0.1:1: Connection refused); start it, or give "
        "the address of a running one."
    )


@pytest.mark.spark
def test_a_session_with_another_master_is_not_mistaken_for_the_one_that_is_asked_for(spark: SparkSession) -> None:
    with pytest.raises(PenstockError, match=r"has a Spark session with master 'local\[2\]', so .* master 'local\[3\]'"):
        session("local[3]")


@pytest.mark.spark
def test_an_unresolved_column_is_not_logged_with_stack_traces(spark: SparkSession) -> None:
    """PySpark logs such errors itself, beside the exception."""
    silence_loggers(spark)
    logger, printed = PySparkLogger.getLogger("DataFrameQueryContextLogger"), io.StringIO()
    logger.addHandler(handler := logging.StreamHandler(printed))
    try:
        with pytest.raises(AnalysisException, match="nope"):
            spark.range(1).select(F.col("nope"))
    finally:
        logger.removeHandler(handler)
    assert printed.getvalue() == ""


def test_errors_of_java_are_reported_without_the_failed_call() -> None:
    java = SimpleNamespace(_target_id="o8", getMessage=lambda: "No stateful operator was found.\nEnsure that ...")
    assert first_line(Py4JJavaError("An error occurred while calling o811.repartition.", java)) == (
        "No stateful operator was found"
    )
    assert first_line(ValueError()) == "ValueError"


LOST_JVM = """
import socket, threading
from py4j.java_gateway import GatewayClient
from penstock.engines.spark.jvm import silence_lost_jvm
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
if {is_silent}:
    silence_lost_jvm()
print(GatewayClient(address="127.0.0.1", port=server.getsockname()[1]).send_command("command", retry=False))
"""


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_lost_jvm_prints_no_stack_trace(is_silent: bool) -> None:
    """Py4J answers 'x', for an error."""
    command = [sys.executable, "-c", LOST_JVM.format(is_silent=is_silent)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout == "x\n" and ("Traceback" not in result.stderr) == is_silent, result.stderr
