"""The supervisor of a cluster: a process that starts master and workers, replaces what dies, and ends them all.

`python -m penstock.engines.spark.cluster.supervisor DIR JSON`. It ends on SIGTERM, or when the process that started it
is gone, unless it is to live on once all is up; what it started ends with it, also after `kill -9` (see `daemons`).
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
from pathlib import Path

import msgspec
import psutil

from penstock.engines.spark.cluster import daemons
from penstock.engines.spark.cluster.health import workers_alive
from penstock.engines.spark.cluster.record import FILE, Daemon, Orders, Record
from penstock.store.lock import Owner, RunLock

_LOOK_S = 0.5
_GRACE_S = 10.0
_MOST_DEATHS, _WITHIN_S = 5, 60.0  # a process that dies so often is left dead


@dataclass(slots=True)
class _Kept:
    """A process that is started again when it dies."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    process: subprocess.Popen[bytes]
    starts: int = 1
    deaths_s: list[float] = field(default_factory=list)

    @property
    def hopeless(self) -> bool:
        return len(self.deaths_s) >= _MOST_DEATHS and self.deaths_s[-1] - self.deaths_s[-_MOST_DEATHS] < _WITHIN_S


class Supervisor:
    def __init__(self, at: Path, orders: Orders) -> None:
        self._at = at
        self._orders = orders
        self._kept: list[_Kept] = []
        self._ending = threading.Event()
        self._was_ready = False
        self._saved: Record | None = None
        port, self._web_port = daemons.free_ports(2)
        self._port, self._master = port, f"spark://{daemons.HOST}:{port}"

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ending.set())
        for folder in ("recovery", "local", "work"):  # of an earlier cluster
            shutil.rmtree(self._at / folder, ignore_errors=True)
        try:
            self._keep("master", lambda: daemons.master(self._at, port=self._port, web_port=self._web_port))
            while not self._ending.is_set() and workers_alive(self._web_port) is None:
                self._look()  # workers that find no master wait longer and longer before they look again
            for number in range(self._orders.asked.workers):
                name = f"worker-{number}"
                self._keep(name, lambda name=name: daemons.worker(self._at, name, self._orders.asked, of=self._master))
            while not self._ending.is_set():
                self._look()
        finally:
            self._end()

    def _keep(self, name: str, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        if not self._ending.is_set():
            self._kept.append(_Kept(name, start, start()))
            self._save()

    def _look(self) -> None:
        """Replaces what has died; ends everything if nobody needs it any more."""
        self._ending.wait(_LOOK_S)
        alone = self._orders.lives_on and self._was_ready
        if self._ending.is_set() or not (alone or self._orders.starter.alive()):
            self._ending.set()
            return
        for one in self._kept:
            if one.process.poll() is not None and not one.hopeless:
                one.deaths_s.append(time.monotonic())
                if not one.hopeless:
                    one.process = one.start()
                    one.starts += 1
        self._save()

    def _record(self) -> Record:
        alive = [one for one in self._kept if one.process.poll() is None]
        hopeless = tuple(
            f"{one.name} died {_MOST_DEATHS} times within {_WITHIN_S:g} s and is left dead; see logs/{one.name}.log"
            for one in self._kept
            if one.hopeless
        )
        return Record(
            asked=self._orders.asked,
            master=self._master,
            web_port=self._web_port,
            supervisor=_owner(os.getpid()),
            daemons=tuple(Daemon(name=one.name, process=_owner(one.process.pid), starts=one.starts) for one in alive),
            ready=self._ready(),
            trouble=hopeless,
        )

    def _ready(self) -> bool:
        """Once it is, the master is not asked any more."""
        wanted = self._orders.asked.workers
        if not self._was_ready and len(self._kept) == wanted + 1:
            self._was_ready = (workers_alive(self._web_port) or 0) >= wanted
        return self._was_ready

    def _save(self) -> None:
        record = self._record()
        if record != self._saved:
            record.save(self._at)
            self._saved = record

    def _end(self) -> None:
        """Workers first, so that they end their executors themselves; what does not end is killed."""
        for one in reversed(self._kept):
            one.process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for one in self._kept:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(timeout=max(0.1, deadline - time.monotonic()))
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        (self._at / FILE).unlink(missing_ok=True)


def _owner(pid: int) -> Owner:
    return Owner(pid=pid, create_time_s=psutil.Process(pid).create_time())


def main(at: str, orders: str) -> None:
    with RunLock(Path(at)):
        Supervisor(Path(at), msgspec.json.decode(orders, type=Orders)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
