"""The process of Spark's JVM while it starts. This module imports nothing that takes time."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.engines.spark.class_archive import archive_options

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_POLL_S = 0.02
_END_TIMEOUT_S = 5.0  # how long a JVM may take to delete its temporary files


class JvmEndedError(Exception):
    """The JVM ended before it could be used."""


class Connection(NamedTuple):
    """The port on which the JVM accepts the connections of PySpark, and their secret."""

    port: int
    secret: str


def is_given_a_jvm() -> bool:
    """Return whether spark-submit has started this process, together with a JVM that PySpark connects to."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class JvmProcess:
    """A JVM that starts while this process continues.

    `log` receives all output of the JVM and of its Python workers. The JVM has its own process group, so that a signal
    to the group of this process does not end it before the run has stopped. The JVM ends with this process, because it
    reads the end of its input then.
    """

    def __init__(
        self, properties: Mapping[str, str], environment: Mapping[str, str], log: Path, *, is_for_run: bool = False
    ) -> None:
        """`is_for_run`: the JVM will run queries, so it may write an archive of its classes when it ends."""
        from pyspark.find_spark_home import _find_spark_home

        self.log = log
        spark_home = Path(_find_spark_home())
        command = [str(spark_home / "bin" / "spark-submit")]
        given = properties.get(_JAVA_OPTIONS, "")
        if options := archive_options(given, spark_home, may_write=is_for_run):
            properties = {**properties, _JAVA_OPTIONS: f"{given} {options}".strip()}
        for name, value in properties.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-jvm-"))
        self._answer = self._folder / "connection"
        spark = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer)}
        try:
            with log.open("ab") as output:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env={**environment, **os.environ, **spark},
                    process_group=0,
                )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise JvmEndedError(str(error)) from error

    def connection(self) -> Connection:
        """Wait until the JVM accepts connections; raise JvmEndedError if it ends before."""
        try:
            while not self._answer.is_file():  # Spark renames it when it is complete
                if self.process.poll() is not None:
                    raise JvmEndedError(f"The JVM ended with exit code {self.process.returncode}.")
                time.sleep(_POLL_S)
            content = self._answer.read_bytes()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        port, length = struct.unpack(">ii", content[:8])
        return Connection(port, content[8 : 8 + length].decode())

    def end(self) -> None:
        """End the JVM, wherever it is in its start. It is not awaited."""
        end_process(self.process)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a JVM without waiting for it; it gets some time to delete its temporary files."""

    def end() -> None:
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        threading.Thread(target=end, name="penstock-jvm-end", daemon=True).start()
