"""Starts a master or a worker as a process that cannot outlive the process that started it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pyspark

from penstock import child_process
from penstock.engines.spark.cluster.record import ClusterSize
from penstock.engines.spark.local_machine import HOST, worker_python

_DEPLOY = "org.apache.spark.deploy"
# A master and a worker do little work: a small heap and a fast compiler leave the machine to the executors.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def start_master(at: Path, *, port: int, web_port: int) -> subprocess.Popen[bytes]:
    # A restarted master reads its workers and applications from these files.
    directory = _quote(f"-Dspark.deploy.recoveryDirectory={at / 'recovery'}")
    recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM {directory}"
    arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
    return _start(at, "master", [f"{_DEPLOY}.master.Master", *arguments], {"SPARK_MASTER_OPTS": recovery})


def start_worker(at: Path, name: str, size: ClusterSize, *, master: str) -> subprocess.Popen[bytes]:
    arguments = ["--host", HOST, "--cores", str(size.slots), "--memory", f"{size.memory_mb}m", "--webui-port", "0"]
    arguments += ["--work-dir", str(at / "work" / name), master]
    return _start(at, name, [f"{_DEPLOY}.worker.Worker", *arguments], {"SPARK_LOCAL_DIRS": str(at / "local" / name)})


def _quote(option: str) -> str:
    """Quote an option, so that Spark's launcher does not split it at a blank in a directory name."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface on which no process listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for unused in sockets:
            unused.bind((HOST, 0))
        return [int(unused.getsockname()[1]) for unused in sockets]
    finally:
        for unused in sockets:
            unused.close()


def _start(at: Path, name: str, arguments: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    ours = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,  # the web pages listen on it
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS,
    } | worker_python()
    (at / "logs").mkdir(parents=True, exist_ok=True)
    with (at / "logs" / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env=inherited | ours | dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal must not end it
            preexec_fn=child_process.end_with_parent(),
        )
