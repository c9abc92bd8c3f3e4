"""A master or a worker as a process that cannot outlive whoever started it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pyspark

from penstock import child_process
from penstock.engines.spark.cluster.record import Asked
from penstock.engines.spark.session import HOST
from penstock.engines.spark.worker_interpreter import worker_python

_DEPLOY = "org.apache.spark.deploy"
# They do little: a small heap and a quick compiler leave the machine to the executors.
_SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def master(at: Path, *, port: int, web_port: int) -> subprocess.Popen[bytes]:
    # A master that is started again knows its workers and applications from these files.
    where = _word(f"-Dspark.deploy.recoveryDirectory={at / 'recovery'}")
    recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM {where}"
    arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
    return _start(at, "master", [f"{_DEPLOY}.master.Master", *arguments], {"SPARK_MASTER_OPTS": recovery})


def worker(at: Path, name: str, asked: Asked, *, of: str) -> subprocess.Popen[bytes]:
    arguments = ["--host", HOST, "--cores", str(asked.slots), "--memory", f"{asked.memory_mb}m", "--webui-port", "0"]
    arguments += ["--work-dir", str(at / "work" / name), of]
    return _start(at, name, [f"{_DEPLOY}.worker.Worker", *arguments], {"SPARK_LOCAL_DIRS": str(at / "local" / name)})


def _word(option: str) -> str:
    """As Spark's launcher takes it for one, also where a directory's name has a blank in it."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _start(at: Path, name: str, arguments: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    ours = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,  # what the web pages listen on
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _SMALL,
    } | worker_python()
    (at / "logs").mkdir(parents=True, exist_ok=True)
    with (at / "logs" / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env=inherited | ours | dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is not for it
            preexec_fn=child_process.end_with_parent(),
        )
