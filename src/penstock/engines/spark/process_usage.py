"""CPU and memory of a local Spark, or of executors on this machine, above the idle load."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import psutil

_MIB = 2**20


class ProcessUsage:
    """Measures between two calls. CPU is a percentage of one processor, memory one of the memory of the JVM.

    CPU may exceed 100 %, because a JVM and its Python workers use several processors. The load of idle processes is
    subtracted, once `set_idle` was called while nothing ran.
    """

    def __init__(self, spark: Any, executors: Callable[[], tuple[str, ...]] | None = None) -> None:
        """`executors` returns Spark's ids of the executors to measure; None: this process with its JVM and workers."""
        conf = spark.sparkContext.getConf()
        of_jvm = "spark.driver.memory" if executors is None else "spark.executor.memory"
        self._memory_bytes = _bytes(conf.get(of_jvm, "1g"))
        self._application, self._executors = str(spark.sparkContext.applicationId), executors
        self._idle = (0.0, 0.0)
        self._before_s, self._before_cpu_s = time.monotonic(), self._cpu_seconds()

    def set_idle(self) -> None:
        """Take the usage since the last call as the idle load."""
        self._idle = self._absolute()

    def __call__(self) -> tuple[float, float]:
        """Return CPU % and memory % since the last call, above the idle load."""
        cpu, memory = self._absolute()
        return max(0.0, cpu - self._idle[0]), min(100.0, max(0.0, memory - self._idle[1]))

    def _absolute(self) -> tuple[float, float]:
        now_s, cpu_s = time.monotonic(), self._cpu_seconds()
        span_s = max(1e-3, now_s - self._before_s)
        cpu = 100.0 * max(0.0, cpu_s - self._before_cpu_s) / span_s
        self._before_s, self._before_cpu_s = now_s, cpu_s
        resident = sum(_known(process, "memory") for process in self._processes())
        return cpu, 100.0 * resident / self._memory_bytes

    def _cpu_seconds(self) -> float:
        return sum(_known(process, "cpu") for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        if self._executors is None:
            return list(psutil.Process(os.getpid()).children(recursive=True))
        return executor_processes(self._application, self._executors())


def executor_processes(application: str, executors: tuple[str, ...]) -> list[psutil.Process]:
    """Return the processes of executors on this machine: each JVM and its Python workers."""
    processes: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            options = process.cmdline()
            if _option(options, "--app-id") == application and _option(options, "--executor-id") in executors:
                processes |= {part.pid: part for part in (process, *process.children(recursive=True))}
    return list(processes.values())


def _option(command: list[str], name: str) -> str | None:
    return command[command.index(name) + 1] if name in command[:-1] else None


def _known(process: psutil.Process, what: str) -> float:
    """Return the CPU seconds, with those of ended children, or the resident bytes; 0 for a process that has ended."""
    try:
        if what == "memory":
            return float(process.memory_info().rss)
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    except psutil.Error:
        return 0.0


def _bytes(text: str) -> float:
    """Return a size of Spark in bytes.

    >>> _bytes("2g"), _bytes("512m")
    (2147483648.0, 536870912.0)
    """
    units = {"k": 2**10, "m": _MIB, "g": 2**30, "t": 2**40}
    number, unit = text.lower().removesuffix("b"), 1
    if number[-1] in units:
        number, unit = number[:-1], units[number[-1]]
    return float(number) * unit
