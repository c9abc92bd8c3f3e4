"""The supervisor of a cluster: a process that starts the master and the workers, restarts them, and stops them.

It is started as `python -m penstock.engines.spark.cluster.supervisor DIRECTORY SETTINGS`, with the settings in JSON. It
ends on SIGTERM. It also ends with the process that started it, unless it is to outlive that process once the cluster is
ready. The processes that it started end with it, even after `kill -9` (see `daemons`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import psutil

from penstock.engines.spark.cluster import daemons
from penstock.engines.spark.cluster.health import workers_alive
from penstock.engines.spark.cluster.record import FILE, ClusterRecord, Daemon, SupervisorSettings
from penstock.engines.spark.local_machine import HOST
from penstock.store.lock import Owner, RunLock

_CHECK_INTERVAL_S = 0.5
_GRACE_S = 10.0
_MAX_EXITS, _WITHIN_S = 5, 60.0  # a process that exits so often is not restarted any more


@dataclass(slots=True)
class _SupervisedProcess:
    """A process that is restarted when it exits."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    process: subprocess.Popen[bytes]
    starts: int = 1
    exits_s: list[float] = field(default_factory=list)

    @property
    def is_given_up(self) -> bool:
        return len(self.exits_s) >= _MAX_EXITS and self.exits_s[-1] - self.exits_s[-_MAX_EXITS] < _WITHIN_S


class Supervisor:
    def __init__(self, at: Path, settings: SupervisorSettings) -> None:
        self._at = at
        self._settings = settings
        self._processes: list[_SupervisedProcess] = []
        self._ending = threading.Event()
        self._was_ready = False
        self._saved: ClusterRecord | None = None
        port, self._web_port = daemons.free_ports(2)
        self._port, self._master = port, f"spark://{HOST}:{port}"

    def run(self) -> None:
        for received in (signal.SIGTERM, signal.SIGINT):
            signal.signal(received, lambda *_: self._ending.set())
        for folder in ("recovery", "local", "work"):  # left by an earlier cluster
            shutil.rmtree(self._at / folder, ignore_errors=True)
        try:
            self._start("master", lambda: daemons.start_master(self._at, port=self._port, web_port=self._web_port))
            # Wait for the master: workers that do not find it retry at increasing intervals.
            while not self._ending.is_set() and workers_alive(self._web_port) is None:
                self._check()
            for number in range(self._settings.size.workers):
                name = f"worker-{number}"
                self._start(
                    name, partial(daemons.start_worker, self._at, name, self._settings.size, master=self._master)
                )
            while not self._ending.is_set():
                self._check()
        finally:
            self._stop()

    def _start(self, name: str, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        if not self._ending.is_set():
            self._processes.append(_SupervisedProcess(name, start, start()))
            self._save()

    def _check(self) -> None:
        """Restart processes that have exited; begin to stop if the process that started the cluster has ended."""
        self._ending.wait(_CHECK_INTERVAL_S)
        is_independent = self._settings.outlives_starter and self._was_ready
        if self._ending.is_set() or not (is_independent or self._settings.starter.alive()):
            self._ending.set()
            return
        for supervised in self._processes:
            if supervised.process.poll() is not None and not supervised.is_given_up:
                supervised.exits_s.append(time.monotonic())
                if not supervised.is_given_up:
                    supervised.process = supervised.start()
                    supervised.starts += 1
        self._save()

    def _record(self) -> ClusterRecord:
        alive = [supervised for supervised in self._processes if supervised.process.poll() is None]
        problems = tuple(
            f"{supervised.name} exited {_MAX_EXITS} times within {_WITHIN_S:g} s and is not restarted any more; see "
            f"logs/{supervised.name}.log"
            for supervised in self._processes
            if supervised.is_given_up
        )
        return ClusterRecord(
            size=self._settings.size,
            master=self._master,
            web_port=self._web_port,
            supervisor=_owner(os.getpid()),
            daemons=tuple(
                Daemon(name=supervised.name, process=_owner(supervised.process.pid), starts=supervised.starts)
                for supervised in alive
            ),
            ready=self._is_ready(),
            problems=problems,
        )

    def _is_ready(self) -> bool:
        """Return whether all workers have registered once; afterwards the master is not asked again."""
        workers = self._settings.size.workers
        if not self._was_ready and len(self._processes) == workers + 1:
            self._was_ready = (workers_alive(self._web_port) or 0) >= workers
        return self._was_ready

    def _save(self) -> None:
        record = self._record()
        if record != self._saved:
            record.save(self._at)
            self._saved = record

    def _stop(self) -> None:
        """Stop the workers first, so that they stop their executors; kill processes that do not end in time."""
        for supervised in reversed(self._processes):
            supervised.process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for supervised in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervised.process.wait(timeout=max(0.1, deadline - time.monotonic()))
            if supervised.process.poll() is None:
                supervised.process.kill()
                supervised.process.wait()
        (self._at / FILE).unlink(missing_ok=True)


def _owner(pid: int) -> Owner:
    return Owner(pid=pid, create_time_s=psutil.Process(pid).create_time())


def main(at: str, settings: str) -> None:
    with RunLock(Path(at)):
        Supervisor(Path(at), msgspec.json.decode(settings, type=SupervisorSettings)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
