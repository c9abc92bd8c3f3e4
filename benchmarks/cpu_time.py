"""CPU time of this process, the JVM and the Python workers. Other work on the machine changes it little."""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator

import psutil

_INTERVAL_S = 0.5


def cpu_s() -> float:
    """Return the CPU time until now, including that of ended workers."""
    own, total_s = psutil.Process(), 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total_s += sum(process.cpu_times()[:4])
    return total_s


class CpuRecord:
    """Samples the CPU time, so that the time between two moments is known afterwards."""

    def __init__(self) -> None:
        self._at_s: list[float] = []
        self._cpu_s: list[float] = []

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        ended = threading.Event()

        def sample() -> None:
            while not ended.is_set():
                self._add()
                ended.wait(_INTERVAL_S)

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._add()

    def between(self, began_s: float, ended_s: float) -> float:
        """Return the CPU time between two times of the wall clock."""
        return self._until(ended_s) - self._until(began_s)

    def _add(self) -> None:
        self._at_s.append(time.time())
        self._cpu_s.append(cpu_s())

    def _until(self, at_s: float) -> float:
        after = min(max(1, bisect_right(self._at_s, at_s)), len(self._at_s) - 1)
        (began_s, ended_s), (low_s, high_s) = self._at_s[after - 1 : after + 1], self._cpu_s[after - 1 : after + 1]
        part = (min(max(at_s, began_s), ended_s) - began_s) / (ended_s - began_s)
        return low_s + part * (high_s - low_s)
