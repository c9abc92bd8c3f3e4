"""Busy time of stream readers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, TypeVar

Item = TypeVar("Item")


class ReaderBusyTime:
    """Measures how long readers work. They have no accumulators, so each process keeps its sum in a small file."""

    _sums_s: ClassVar[dict[str, float]] = {}  # sums of this process by folder

    def __init__(self, run: Path, source: str) -> None:
        self._folder = run / "timings" / source

    def measure(self, items: Iterator[Item]) -> Iterator[Item]:
        """Pass on the items and add the time that it takes to produce them."""
        key = str(self._folder)
        while True:
            began = time.perf_counter()
            item = next(items, None)
            self._sums_s[key] = self._sums_s.get(key, 0.0) + time.perf_counter() - began
            if item is None:
                break
            yield item
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / str(os.getpid())).write_text(f"{self._sums_s[key]:.6f}\n")

    def total_s(self) -> float:
        """Return the seconds of all processes. A file that is being written is counted at the next call."""
        total_s = 0.0
        for path in self._folder.glob("*") if self._folder.exists() else ():
            text = path.read_text()
            total_s += float(text) if text.endswith("\n") else 0.0
        return total_s
