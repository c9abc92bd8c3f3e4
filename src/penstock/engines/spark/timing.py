"""Timing of Python code where it runs: the time that a function itself takes, apart from waiting for its input.

Spark's own metrics of Python workers count waiting too, and overlap where one Python operator feeds the next; a clock
around the user's function does not. While an operator's function builds its DataFrame, Spark's entry points for Python
functions are wrapped, so that whatever it hands over is timed; the user's function runs unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin

from penstock.measure.estimators import ServiceSample


class Pull(NamedTuple):
    """What the workers added between two pulls."""

    busy_s: float  # of all replicas, every row counted
    sample: ServiceSample


class Timing:
    """Sums that the workers add to and the driver pulls: the two layers of DRS's sampling.

    In the workers one row in `every` (their N_m) is timed by itself; the driver pulls the sums once a window (their
    T_m is the window's length). A Spark task hands over its sums when it ends, so a pull costs no message.
    """

    def __init__(self, context: Any, every: int) -> None:
        self.every = every
        self.seconds = context.accumulator(0.0)
        self.sampled = context.accumulator(0)
        self.sampled_s = context.accumulator(0.0)
        self.sampled_s2 = context.accumulator(0.0)
        self._pulled = Pull(0.0, ServiceSample(0, 0.0, 0.0))

    def pull(self) -> Pull:
        """What came since the last pull."""
        before = self._pulled
        rows, total_s, total_s2 = self.sampled.value, self.sampled_s.value, self.sampled_s2.value
        self._pulled = Pull(float(self.seconds.value), ServiceSample(rows, total_s, total_s2))
        return Pull(self._pulled.busy_s - before.busy_s, self._pulled.sample - before.sample)


@contextlib.contextmanager
def python_functions_timed(timing: Timing) -> Iterator[None]:
    """Within it, every Python function that is handed to Spark through a DataFrame is timed."""
    patched = [
        (DataFrame, "mapInPandas", functools.partial(_over_batches, timing)),
        (DataFrame, "mapInArrow", functools.partial(_over_batches, timing)),
        (PandasGroupedOpsMixin, "applyInPandasWithState", functools.partial(_over_generator, timing)),
        (PandasGroupedOpsMixin, "transformWithStateInPandas", functools.partial(_over_processor, timing)),
        (PandasGroupedOpsMixin, "transformWithState", functools.partial(_over_processor, timing)),
    ]
    classes = {DataFrame, *_subclasses(DataFrame), PandasGroupedOpsMixin, *_subclasses(PandasGroupedOpsMixin)}
    originals = [
        (owner, name, owner.__dict__[name], wrap)
        for base, name, wrap in patched
        for owner in classes
        if issubclass(owner, base) and name in owner.__dict__
    ]
    for owner, name, original, wrap in originals:
        setattr(owner, name, _handing_over(original, wrap))
    try:
        yield
    finally:
        for owner, name, original, _ in originals:
            setattr(owner, name, original)


def _handing_over(original: Any, wrap: Callable[[Any], Any]) -> Any:
    @functools.wraps(original)
    def method(self: Any, func: Any = None, *args: Any, **kwargs: Any) -> Any:
        for keyword in ("func", "statefulProcessor"):
            if func is None and keyword in kwargs:
                func = kwargs.pop(keyword)
        return original(self, wrap(func), *args, **kwargs)

    return method


def _subclasses(owner: type) -> set[type]:
    return {sub for one in owner.__subclasses__() for sub in (one, *_subclasses(one))}


class _Pulled:
    """An iterator that knows how long its consumer has waited for it."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self.waited = 0.0

    def __iter__(self) -> _Pulled:
        return self

    def __next__(self) -> Any:
        began = time.perf_counter()
        try:
            return next(self._items)
        finally:
            self.waited += time.perf_counter() - began


def _own_time(timing: Timing, made: Iterator[Any], pulled: _Pulled) -> Iterator[Any]:
    """Passes on what a generator makes, adding up its own time and not that of its input or its consumer."""
    while True:
        waited, began = pulled.waited, time.perf_counter()
        try:
            item = next(made)
        except StopIteration:
            return
        finally:
            timing.seconds.add(time.perf_counter() - began - (pulled.waited - waited))
        yield item


def _over_batches(timing: Timing, fn: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterator[Any]]:
    def timed(batches: Iterable[Any]) -> Iterator[Any]:
        pulled = _Pulled(batches)
        return _own_time(timing, iter(fn(pulled)), pulled)

    return timed


def _over_generator(timing: Timing, fn: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
    def timed(key: Any, batches: Iterable[Any], state: Any) -> Iterator[Any]:
        pulled = _Pulled(batches)
        return _own_time(timing, iter(fn(key, pulled, state)), pulled)

    return timed


def _over_processor(timing: Timing, processor: Any) -> Any:
    original = processor.handleInputRows

    def timed(key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:
        pulled = _Pulled(rows)
        return _own_time(timing, iter(original(key, pulled, timer_values)), pulled)

    processor.handleInputRows = timed
    return processor


class ReadingTime:
    """Busy time of readers, which have no accumulators: each worker process keeps its sum in a small file."""

    _sums: ClassVar[dict[str, float]] = {}  # of this process, by folder

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def over(self, batches: Iterator[Any]) -> Iterator[Any]:
        key = str(self._folder)
        while True:
            began = time.perf_counter()
            item = next(batches, None)
            self._sums[key] = self._sums.get(key, 0.0) + time.perf_counter() - began
            if item is None:
                break
            yield item
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / str(os.getpid())).write_text(f"{self._sums[key]:.6f}\n")

    def read(self) -> float:
        """Seconds, of all processes; a file that is being written counts a moment later."""
        total = 0.0
        for path in self._folder.glob("*") if self._folder.exists() else ():
            text = path.read_text()
            total += float(text) if text.endswith("\n") else 0.0
        return total
