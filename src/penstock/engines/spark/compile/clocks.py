"""Timing of Python code where it runs: the time that a function itself takes, apart from waiting for its input.

Spark's own metrics of Python workers count waiting too, and overlap where one Python operator feeds the next; a clock
around the user's function does not. While an operator's function builds its DataFrame, Spark's entry points for Python
functions are wrapped, so that whatever it hands over is timed; the user's function runs unchanged.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

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


def rows_until_drawn(every: int) -> int:
    """How many rows to let go by where each is drawn with probability 1 / every: geometric, so one draw a sample."""
    if every == 1:
        return 0
    return int(math.log(1.0 - random.random()) / math.log1p(-1.0 / every))


@contextlib.contextmanager
def python_functions_timed(timing: Timing) -> Iterator[None]:
    """Within it, every Python function that is handed to Spark through a DataFrame or a column is timed."""
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
    called = UserDefinedFunction.__call__
    UserDefinedFunction.__call__ = lambda udf, *args, **kwargs: called(_timed_udf(udf, timing), *args, **kwargs)
    try:
        yield
    finally:
        UserDefinedFunction.__call__ = called
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


def _timed_udf(udf: UserDefinedFunction, timing: Timing) -> UserDefinedFunction:
    """A UDF as it is, but for its function; Spark's own kinds that a stream has no use for are left alone."""
    wrap = _UDFS.get(udf.evalType)
    if wrap is None or udf.transpiled:  # which is none of Python's any more
        return udf
    timed = functools.wraps(udf.func)(wrap(timing, udf.func))
    how = {"returnType": udf.returnType, "evalType": udf.evalType, "deterministic": udf.deterministic}
    return UserDefinedFunction(timed, name=udf._name, **how)  # by which its column is called


def _over_row(timing: Timing, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Of the rows that are drawn each stands for `every`: two looks at the clock for each row would cost too much."""
    left: int | None = None  # drawn where it runs: what is drawn here would be the same in all tasks

    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left is None:
            left = rows_until_drawn(timing.every)
        if left > 0:
            left -= 1
            return fn(*args, **kwargs)
        left = None
        began = time.perf_counter()
        result = fn(*args, **kwargs)
        took = time.perf_counter() - began
        timing.seconds.add(took * timing.every)
        timing.sampled.add(1)
        timing.sampled_s.add(took)
        timing.sampled_s2.add(took * took)
        return result

    return timed


def _over_columns(timing: Timing, fn: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return fn(*args, **kwargs)
        finally:
            timing.seconds.add(time.perf_counter() - began)

    return timed


_UDFS = {
    PythonEvalType.SQL_BATCHED_UDF: _over_row,
    PythonEvalType.SQL_ARROW_BATCHED_UDF: _over_row,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF: _over_columns,
    PythonEvalType.SQL_SCALAR_ARROW_UDF: _over_columns,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF: _over_batches,
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF: _over_batches,
}


def _over_generator(timing: Timing, fn: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
    def timed(key: Any, batches: Iterable[Any], state: Any) -> Iterator[Any]:
        pulled = _Pulled(batches)
        return _own_time(timing, iter(fn(key, pulled, state)), pulled)

    return timed


def _over_processor(timing: Timing, processor: Any) -> Any:
    # A copy: the user's own may be handed over again with every change of plan, each time under one clock more.
    clocked = copy.copy(processor)
    original = clocked.handleInputRows

    def timed(key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:
        pulled = _Pulled(rows)
        return _own_time(timing, iter(original(key, pulled, timer_values)), pulled)

    clocked.handleInputRows = timed
    return clocked
