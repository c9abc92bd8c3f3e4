"""The start of the JVM beside other work, with a shell script in the place of spark-submit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.spark import early_jvm
from penstock.engines.spark.jvm_process import Connection, JvmEndedError, JvmProcess

# PythonGatewayServer writes its port and its secret in the format of DataOutputStream, and ends with its input.
ANSWERS = r"""
printf '\000\000\060\071\000\000\000\006secret' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.part"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
echo "$@"
cat
"""
WAITS = "cat"
FAILS = "echo 'JAVA_HOME is not set' >&2; exit 1"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "spark.log"


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr("penstock.engines.spark.log_files._has_jvm", lambda: False)
    yield script
    early_jvm.discard()


def write(script: Path, lines: str) -> None:
    script.write_text(f"#!/bin/sh\n{lines}\n")


def test_the_connection_is_known_when_the_jvm_has_written_it(spark_home: Path, log: Path) -> None:
    write(spark_home, ANSWERS)
    jvm = JvmProcess({"spark.master": "local[2]"}, {}, log)
    assert jvm.connection() == Connection(12345, "secret")
    assert jvm.process.stdin is not None
    jvm.process.stdin.close()  # as at the end of the driver
    assert jvm.process.wait() == 0
    assert log.read_text() == "--conf spark.master=local[2] pyspark-shell\n"


def test_a_jvm_that_fails_leaves_its_message_in_the_log(spark_home: Path, log: Path) -> None:
    write(spark_home, FAILS)
    with pytest.raises(JvmEndedError, match="exit code 1"):
        JvmProcess({}, {}, log).connection()
    assert log.read_text() == "JAVA_HOME is not set\n"


def test_a_start_that_is_given_up_ends(spark_home: Path, log: Path) -> None:
    write(spark_home, WAITS)
    jvm = JvmProcess({}, {}, log)
    jvm.end()
    with pytest.raises(JvmEndedError):
        jvm.connection()
    assert jvm.process.wait() == -signal.SIGTERM


def test_a_session_with_other_properties_does_not_use_the_jvm(spark_home: Path) -> None:
    write(spark_home, WAITS)
    early_jvm.start("local[2]", {"spark.driver.memory": "1g"})
    log = early_jvm.waiting_log()
    assert log is not None and log.exists()
    early_jvm.start("local[3]", {})  # one JVM waits at most
    assert early_jvm.waiting_log() == log
    assert early_jvm.take({"spark.master": "local[4]"}) is None
    assert early_jvm.waiting_log() is None and not log.exists()


@pytest.mark.parametrize(
    ("line", "creates"),
    [
        ("spark = SparkSession.builder.master('local[2]').getOrCreate()", True),
        ("context = SparkContext('local')", True),
        ("def count(df: DataFrame, spark: SparkSession) -> DataFrame:", False),
    ],
)
def test_a_file_with_its_own_session_starts_its_own_jvm(tmp_path: Path, line: str, creates: bool) -> None:
    file = tmp_path / "flow.py"
    file.write_text(line)
    assert early_jvm.creates_session(file) is creates
    assert not early_jvm.creates_session(tmp_path / "penstock.apps.nexmark")
