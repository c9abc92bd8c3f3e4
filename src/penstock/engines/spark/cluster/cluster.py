"""A cluster from outside: started, looked at and stopped by whoever knows its directory."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
import psutil

from penstock.engines.spark.cluster.health import asked_master
from penstock.engines.spark.cluster.record import Asked, ClusterError, Orders, Record, Status
from penstock.store.lock import Owner, owner

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is up. As a context it is stopped at the end."""

    at: Path
    record: Record

    @property
    def master(self) -> str:
        return self.record.master

    @property
    def confs(self) -> dict[str, str]:
        """What a session on it is to be given: one executor takes one worker whole."""
        asked = self.record.asked
        return {"spark.executor.cores": str(asked.slots), "spark.executor.memory": f"{asked.memory_mb}m"}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        stop(self.at)


def start(at: Path, asked: Asked, *, dies_with_me: bool = False, patience_s: float = 120.0) -> Cluster:
    """Starts it and waits until all workers have registered. It lives on, unless it is to die with this process."""
    asked.check()
    at = at.resolve()
    if owner(at) is not None:
        raise ClusterError(
            f"something is running in '{at}' already; 'penstock cluster stop --at {at}', or give another --at"
        )
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterError(
            f"'{at}' is no place for a cluster ({error.strerror}); give another directory with --at"
        ) from None
    end_leftovers(at)
    me = Owner(pid=psutil.Process().pid, create_time_s=psutil.Process().create_time())
    orders = msgspec.json.encode(Orders(asked=asked, starter=me, lives_on=not dies_with_me)).decode()
    command = [sys.executable, "-m", "penstock.engines.spark.cluster.supervisor", str(at), orders]
    with (at / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        return Cluster(at, _ready(at, process, patience_s))
    except BaseException:  # Ctrl-C too: nobody is left behind who goes on to start what is not wanted any more
        if process.poll() is None:
            process.terminate()
            process.wait()
        raise


def _ready(at: Path, process: subprocess.Popen[bytes], patience_s: float) -> Record:
    """The record of a supervisor, when all that it keeps is up."""
    deadline = time.monotonic() + patience_s
    while True:
        record = Record.load(at) if process.poll() is None else None
        if record is not None and record.supervisor.pid == process.pid and record.ready and not record.trouble:
            return record
        trouble = "; ".join(record.trouble) if record is not None else ""
        if process.poll() is not None or trouble or time.monotonic() > deadline:
            why = trouble or f"not all of its processes were up within {patience_s:g} s"
            if process.poll() is not None:
                why = "its supervisor ended"
            raise ClusterError(f"the cluster did not start ({why}); see '{at / 'supervisor.log'}' and '{at / 'logs'}'")
        time.sleep(_POLL_S)


def running(at: Path) -> Cluster:
    """The cluster of this directory, which somebody has started."""
    record = Record.load(at)
    if record is None or owner(at) is None:
        raise ClusterError(f"no cluster is running in '{at}'; start it with 'penstock cluster start --at {at}'")
    return Cluster(at.resolve(), record)


def status(at: Path) -> Status:
    record = running(at).record
    said = asked_master(record.web_port)
    up = {one.name: one for one in record.daemons}
    names = ("master", *(f"worker-{number}" for number in range(record.asked.workers)))
    return Status(
        master=record.master,
        asked=record.asked,
        daemons={
            name: (f"running (process {up[name].process.pid}, start {up[name].starts})")
            if name in up and up[name].process.alive()
            else "not running"
            for name in names
        },
        workers_alive=None if said is None else int(said["aliveworkers"]),
        slots_used=None if said is None else int(said["coresused"]),
        runs=() if said is None else tuple(str(app["name"]) for app in said["activeapps"]),
        trouble=record.trouble,
    )


def stop(at: Path, *, patience_s: float = 30.0) -> None:
    """Ends what was started here, and nothing else; what is already gone is no error."""
    record = Record.load(at)
    if record is not None and owner(at) is not None:
        process = psutil.Process(record.supervisor.pid)
        process.terminate()
        try:
            process.wait(timeout=patience_s)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
    end_leftovers(at)


def end_leftovers(at: Path) -> None:
    """What a supervisor that is gone has left: its processes where the kernel did not end them (not Linux), and
    executors, which end with their worker only once they have found it.

    Where it is alive this is the copy of its directory.
    """
    record = Record.load(at)
    if record is not None and record.supervisor.alive():
        return
    for daemon in () if record is None else record.daemons:
        if daemon.process.alive():
            _kill(psutil.Process(daemon.process.pid))
    work = at.resolve() / "work"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(work):
                _kill(process)


def _kill(process: psutil.Process) -> None:
    process.kill()
    with contextlib.suppress(psutil.TimeoutExpired):  # of a child of somebody who does not look after it
        process.wait(timeout=5)
