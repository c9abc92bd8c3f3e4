"""Starts, inspects and stops a cluster, which is identified by its directory."""

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

from penstock.engines.spark.cluster.health import master_state
from penstock.engines.spark.cluster.record import (
    ClusterError,
    ClusterRecord,
    ClusterSize,
    ClusterStatus,
    SupervisorSettings,
)
from penstock.store.lock import Owner, owner

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster. A `with` block stops it at its end."""

    at: Path
    record: ClusterRecord

    @property
    def master(self) -> str:
        return self.record.master

    @property
    def confs(self) -> dict[str, str]:
        """The Spark configuration of a session on this cluster: each executor occupies one whole worker."""
        size = self.record.size
        return {"spark.executor.cores": str(size.slots), "spark.executor.memory": f"{size.memory_mb}m"}

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        stop(self.at)


def start(at: Path, size: ClusterSize, *, ends_with_process: bool = False, patience_s: float = 120.0) -> SparkCluster:
    """Start a cluster in directory `at` and wait until all workers have registered.

    The cluster outlives this process unless `ends_with_process` is set. Raises ClusterError if it does not start.
    """
    size.check()
    at = at.resolve()
    if owner(at) is not None:
        raise ClusterError(
            f"A cluster is already running in '{at}'. Stop it with 'penstock cluster stop --at {at}', or use another "
            "directory."
        )
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterError(
            f"The cluster directory '{at}' cannot be created ({error.strerror}). Use another directory."
        ) from None
    kill_leftovers(at)
    me = Owner(pid=psutil.Process().pid, create_time_s=psutil.Process().create_time())
    settings = SupervisorSettings(size=size, starter=me, outlives_starter=not ends_with_process)
    arguments = [str(at), msgspec.json.encode(settings).decode()]
    command = [sys.executable, "-m", "penstock.engines.spark.cluster.supervisor", *arguments]
    with (at / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        return SparkCluster(at, _await_ready(at, process, patience_s))
    except BaseException:  # including Ctrl-C: do not leave a supervisor that continues to start processes
        if process.poll() is None:
            process.terminate()
            process.wait()
        raise


def _await_ready(at: Path, process: subprocess.Popen[bytes], patience_s: float) -> ClusterRecord:
    """Wait until all processes of a supervisor are running; return its record."""
    deadline = time.monotonic() + patience_s
    while True:
        record = ClusterRecord.load(at) if process.poll() is None else None
        if record is not None and record.supervisor.pid == process.pid and record.ready and not record.problems:
            return record
        problems = "; ".join(record.problems) if record is not None else ""
        if process.poll() is not None or problems or time.monotonic() > deadline:
            reason = problems or f"not all of its processes were running within {patience_s:g} s"
            if process.poll() is not None:
                reason = "its supervisor ended"
            raise ClusterError(
                f"The cluster did not start ({reason}). See '{at / 'supervisor.log'}' and '{at / 'logs'}'."
            )
        time.sleep(_POLL_S)


def running(at: Path) -> SparkCluster:
    """Return the running cluster of a directory; raise ClusterError if there is none."""
    record = ClusterRecord.load(at)
    if record is None or owner(at) is None:
        raise ClusterError(f"No cluster is running in '{at}'. Start it with 'penstock cluster start --at {at}'.")
    return SparkCluster(at.resolve(), record)


def status(at: Path) -> ClusterStatus:
    """Return the status of the running cluster of a directory; raise ClusterError if there is none."""
    record = running(at).record
    state = master_state(record.web_port)
    daemons = {daemon.name: daemon for daemon in record.daemons if daemon.process.alive()}
    names = ("master", *(f"worker-{number}" for number in range(record.size.workers)))
    return ClusterStatus(
        master=record.master,
        size=record.size,
        daemons={
            name: f"running (process {daemons[name].process.pid}, start {daemons[name].starts})"
            if name in daemons
            else "not running"
            for name in names
        },
        workers_alive=None if state is None else state.workers_alive,
        slots_used=None if state is None else state.slots_used,
        runs=() if state is None else tuple(application.name for application in state.applications),
        problems=record.problems,
    )


def stop(at: Path, *, patience_s: float = 30.0) -> None:
    """Stop the processes that were started in a directory; it is no error if there are none."""
    record = ClusterRecord.load(at)
    if record is not None and owner(at) is not None:
        process = psutil.Process(record.supervisor.pid)
        process.terminate()
        try:
            process.wait(timeout=patience_s)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
    kill_leftovers(at)


def kill_leftovers(at: Path) -> None:
    """Kill the processes that a supervisor has left behind when it ended.

    These are its daemons on systems other than Linux, where the kernel does not end them, and executors, which notice
    the end of their worker with a delay.
    """
    record = ClusterRecord.load(at)
    if record is not None and record.supervisor.alive():  # the directory is a copy of that of a running cluster
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
    with contextlib.suppress(psutil.TimeoutExpired):  # a zombie whose parent does not wait for it
        process.wait(timeout=5)
