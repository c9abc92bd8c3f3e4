"""A local Kafka broker on loopback, in KRaft mode and in a folder of its own, for trials and tests."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import psutil

from penstock.brokers import supervisor
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.maven_jars import broker_jars
from penstock.dataflow.errors import PenstockError

_FILE = "broker.json"
_META = Path("data", "meta.properties")
_SAME_START_S = 2.0  # the kernel rounds the boot time, and changes it when the clock is set
_START_TIMEOUT_S = 300.0  # a start takes seconds, but more on a busy machine
_STOP_TIMEOUT_S = 60.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a running broker and the process that supervises it, as stored in its folder."""

    bootstrap_servers: str
    pid: int
    created_s: float

    def is_alive(self) -> bool:
        """Return whether the supervising process still runs."""
        try:
            process = psutil.Process(self.pid)
            dead = process.status() == psutil.STATUS_ZOMBIE
            return not dead and abs(process.create_time() - self.created_s) < _SAME_START_S
        except psutil.NoSuchProcess:
            return False


class Broker:
    """A broker that runs until `stop` is called or this process ends, or independently of this process after `detach`.

    Topics are kept in the folder. A broker that is started there again has the same topics and the same address.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""
        self._log_offset = 0  # earlier output is from previous starts

    def start(self) -> Broker:
        """Start the broker, wait until it answers, and return it.

        Raises:
            PenstockError: A broker already runs in the folder, the folder cannot be used, or the broker does not start.
        """
        if not str(self.folder).isascii() or set(str(self.folder)) & {",", "\\"}:
            raise PenstockError(
                f"Kafka cannot use the folder '{self.folder}'; give a path of ASCII characters without commas and "
                "backslashes."
            )
        with _locked(self.folder, create=True):
            running = status(self.folder)
            if running is not None:
                raise PenstockError(
                    f"A broker already runs in '{self.folder}', at {running.bootstrap_servers}; use it, or stop it "
                    f"with 'penstock broker stop --at {self.folder}'."
                )
            self._start()
        return self

    def _start(self) -> None:
        jars, java = broker_jars(), _java()
        properties = self.folder / "server.properties"
        classpath = [java, "-cp", f"{jars}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        if not properties.exists():
            port, controller = _free_ports(2)
            properties.write_text(_PROPERTIES.format(port=port, controller=controller, data=self.folder / "data"))
        if not (self.folder / _META).exists():
            _format(classpath, properties)
        self.bootstrap_servers = _properties(properties)["advertised.listeners"].removeprefix("PLAINTEXT://")
        cluster = KafkaCluster(bootstrap_servers=self.bootstrap_servers)
        command = [*classpath, "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "kafka.Kafka", str(properties)]
        with (self.folder / "broker.log").open("ab") as log:
            self._log_offset = log.tell()
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", supervisor.__name__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        created_s = psutil.Process(self._supervisor.pid).create_time()
        try:
            self._await_ready(cluster)
        except BaseException:
            self.stop()
            raise
        running = BrokerRecord(bootstrap_servers=self.bootstrap_servers, pid=self._supervisor.pid, created_s=created_s)
        (self.folder / _FILE).write_bytes(msgspec.json.encode(running))

    def detach(self) -> None:
        """Let the broker run on when this process ends."""
        if self._supervisor is not None and self._supervisor.stdin is not None:
            self._supervisor.stdin.write(supervisor.DETACH)
            self._supervisor.stdin.flush()

    def stop(self) -> None:
        """Stop the broker. Its topics remain in the folder."""
        if self._supervisor is not None:
            if self._supervisor.stdin is not None:
                self._supervisor.stdin.close()  # the supervisor sees the end of its pipe
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(_STOP_TIMEOUT_S)
            if self._supervisor.poll() is None:
                self._supervisor.kill()
                self._supervisor.wait()
            self._supervisor = None
        (self.folder / _FILE).unlink(missing_ok=True)

    def __enter__(self) -> Broker:
        return self if self._supervisor is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _await_ready(self, cluster: KafkaCluster) -> None:
        cluster_id = _properties(self.folder / _META)["cluster.id"]
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            ready = cluster.id(timeout_s=1.0) == cluster_id  # another broker may use the port
            ended = self._supervisor is None or self._supervisor.poll() is not None
            if ready and not ended:
                return
            if ended or time.monotonic() > deadline:
                log = (self.folder / "broker.log").read_bytes()[self._log_offset :].decode(errors="replace")
                raise PenstockError(
                    f"The broker {'ended' if ended else 'did not answer'} while it was started. The log "
                    f"'{self.folder / 'broker.log'}' contains: {_cause(log)}"
                )
            time.sleep(0.1)


def status(folder: Path) -> BrokerRecord | None:
    """Return the broker that runs in a folder, or None."""
    try:
        running = msgspec.json.decode((folder / _FILE).read_bytes(), type=BrokerRecord)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    return running if running.is_alive() else None


def stop(folder: Path, *, delete_topics: bool = False) -> BrokerRecord | None:
    """Stop the broker that runs in a folder, whichever process started it, and return what was stopped."""
    if not folder.is_dir():
        return None
    with _locked(folder):
        running = status(folder)
        if running is not None:
            process = psutil.Process(running.pid)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_TIMEOUT_S)
            except psutil.TimeoutExpired:
                process.kill()  # the JVM ends with it
        (folder / _FILE).unlink(missing_ok=True)
        if delete_topics and (folder / _META).exists():  # other data in the folder is not a broker's
            shutil.rmtree(folder / "data", ignore_errors=True)
            (folder / "server.properties").unlink(missing_ok=True)
    return running


@contextlib.contextmanager
def _locked(folder: Path, *, create: bool = False) -> Iterator[None]:
    """Hold the lock for starting and stopping the broker of a folder. The kernel releases it if the process dies."""
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise PenstockError(
            f"The folder '{folder}' cannot be used for a broker ({error.strerror}); give another directory."
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        problem = (
            f"JAVA_HOME is '{home}', which has no 'bin/java'; correct it."
            if home
            else "there is no 'java' command; install Java."
        )
        raise PenstockError(f"Kafka needs Java 17 or newer, but {problem}")
    return java


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]


def _format(classpath: list[str], properties: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    # One argument, because one id of 64 begins with a dash and would be taken for an option.
    command = [*classpath, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", f"--config={properties}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_START_TIMEOUT_S)
    if done.returncode != 0:
        raise PenstockError(f"Kafka cannot format the folder of the broker: {done.stderr.strip().splitlines()[-1:]}")


def _cause(log: str) -> str:
    """Return the line of a log that explains why the broker ended: the first exception, else the last line.

    >>> _cause("main ERROR it fails\\njava.io.IOException: no room\\n\\tat x\\nCaused by: y.ZError: \\n")
    'java.io.IOException: no room'
    >>> _cause("WARN one\\nWARN two\\n"), _cause("")
    ('WARN two', 'nothing')
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next(
        (line for line in lines if re.search(r"\w(Exception|Error): ", line)), lines[-1] if lines else "nothing"
    )


def _properties(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
