"""One real broker on loopback, for people who have none and for tests: Kafka in KRaft mode, in a folder of its own."""

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

from penstock.brokers import keeper
from penstock.brokers.artifacts import resolved
from penstock.brokers.cluster import KafkaCluster
from penstock.dataflow.errors import PenstockError

_FILE = "broker.json"
_META = Path("data", "meta.properties")
_SAME_START_S = 2.0  # the kernel rounds the boot time, and shifts it when the clock is set
_START_S = 300.0  # it takes seconds, unless the machine is busy
_STOP_S = 60.0

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


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down of a broker: how to reach it, and which process keeps it."""

    bootstrap_servers: str
    pid: int
    created_s: float

    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            dead = process.status() == psutil.STATUS_ZOMBIE
            return not dead and abs(process.create_time() - self.created_s) < _SAME_START_S
        except psutil.NoSuchProcess:
            return False


class Broker:
    """A broker that lives as long as this process, or until `stop`; after `let_go` until somebody stops it.

    Topics stay in the folder; started again there, it has the same topics and the same address.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._keeper: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""
        self._log_from = 0  # what is before was said by earlier ones

    def start(self) -> Broker:
        if not str(self.folder).isascii() or set(str(self.folder)) & {",", "\\"}:
            raise PenstockError(
                f"Kafka reads no path such as '{self.folder}' in its settings; give one of plain letters without commas"
            )
        with _alone(self.folder, make=True):
            running = status(self.folder)
            if running is not None:
                raise PenstockError(
                    f"a broker runs in '{self.folder}' already, at {running.bootstrap_servers}; use it, or stop it "
                    f"with 'penstock broker stop --at {self.folder}'"
                )
            self._start()
        return self

    def _start(self) -> None:
        jars, java = resolved(), _java()
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
            self._log_from = log.tell()
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", keeper.__name__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        created_s = psutil.Process(self._keeper.pid).create_time()
        try:
            self._await_ready(cluster)
        except BaseException:
            self.stop()
            raise
        running = Running(bootstrap_servers=self.bootstrap_servers, pid=self._keeper.pid, created_s=created_s)
        (self.folder / _FILE).write_bytes(msgspec.json.encode(running))

    def let_go(self) -> None:
        """From now on it does not end with this process."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.write(keeper.LET_GO)
            self._keeper.stdin.flush()

    def stop(self) -> None:
        if self._keeper is not None:
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()  # the keeper sees the end of its pipe
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(_STOP_S)
            if self._keeper.poll() is None:
                self._keeper.kill()
                self._keeper.wait()
            self._keeper = None
        (self.folder / _FILE).unlink(missing_ok=True)

    def __enter__(self) -> Broker:
        return self if self._keeper is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _await_ready(self, cluster: KafkaCluster) -> None:
        ours = _properties(self.folder / _META)["cluster.id"]
        deadline = time.monotonic() + _START_S
        while True:
            ready = cluster.id(timeout_s=1.0) == ours  # another's may have the port
            ended = self._keeper is None or self._keeper.poll() is not None
            if ready and not ended:
                return
            if ended or time.monotonic() > deadline:
                log = (self.folder / "broker.log").read_bytes()[self._log_from :].decode(errors="replace")
                raise PenstockError(
                    f"the broker {'ended' if ended else 'does not answer'} while it was started; "
                    f"'{self.folder / 'broker.log'}' says: {_told(log)}"
                )
            time.sleep(0.1)


def status(folder: Path) -> Running | None:
    """The broker that runs in a folder, if one does."""
    try:
        running = msgspec.json.decode((folder / _FILE).read_bytes(), type=Running)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    return running if running.alive() else None


def stop(folder: Path, *, forget: bool = False) -> Running | None:
    """Stops the broker that runs in a folder, whoever started it; `forget` deletes its topics as well."""
    if not folder.is_dir():
        return None
    with _alone(folder):
        running = status(folder)
        if running is not None:
            process = psutil.Process(running.pid)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except psutil.TimeoutExpired:
                process.kill()  # and the JVM with it
        (folder / _FILE).unlink(missing_ok=True)
        if forget and (folder / _META).exists():  # else that is somebody else's data
            shutil.rmtree(folder / "data", ignore_errors=True)
            (folder / "server.properties").unlink(missing_ok=True)
    return running


@contextlib.contextmanager
def _alone(folder: Path, *, make: bool = False) -> Iterator[None]:
    """One starts or stops the broker of a folder at a time; the kernel lets go of the lock of whoever is killed."""
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise PenstockError(
            f"'{folder}' is no place for a broker ({error.strerror}); give another directory with --at"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        where = (
            f"JAVA_HOME is '{home}', which has no 'bin/java'; mend it" if home else "there is no 'java'; install one"
        )
        raise PenstockError(f"Kafka needs Java 17 or newer, and {where}")
    return java


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _format(classpath: list[str], properties: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    # In one word: one of 64 begins with a dash, which would be taken for an option.
    command = [*classpath, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", f"--config={properties}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_START_S)
    if done.returncode != 0:
        raise PenstockError(f"the broker's folder cannot be made ready: {done.stderr.strip().splitlines()[-1:]}")


def _told(log: str) -> str:
    """What it died of: the first exception, from which others followed, or else the last that it said.

    >>> _told("main ERROR it fails\\njava.io.IOException: no room\\n\\tat x\\nCaused by: y.ZError: \\n")
    'java.io.IOException: no room'
    >>> _told("WARN one\\nWARN two\\n"), _told("")
    ('WARN two', 'nothing')
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next(
        (line for line in lines if re.search(r"\w(Exception|Error): ", line)), lines[-1] if lines else "nothing"
    )


def _properties(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
