"""Timing of user-defined Python functions on the workers, without the time that they wait for input.

Spark's own metrics of Python workers include waiting, and overlap if one Python operator feeds the next. While the
function of an operator builds its DataFrame, the methods by which PySpark accepts Python functions are wrapped, so that
every function passed to them is timed. The user's function itself is not changed.
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

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from penstock.dataflow.function_errors import UserFunctionError, user_function_error
from penstock.engines.spark.calls.call_sums import CallSums
from penstock.engines.spark.storage.serialisation import check_serialisable
from penstock.measure.estimators import ServiceSample


class Pull(NamedTuple):
    """The sums that workers added between two pulls."""

    busy_s: float  # busy time of all replicas for all rows
    sample: ServiceSample
    calls: CallSums


class _CallSumsParam(AccumulatorParam[CallSums]):
    def zero(self, value: CallSums) -> CallSums:
        return CallSums()

    def addInPlace(self, value1: CallSums, value2: CallSums) -> CallSums:  # noqa: N802 (the name is Spark's)
        return value1 + value2


class Timing:
    """Sums to which workers add and which the driver pulls: the two layers of sampling in DRS.

    On the workers one row in `every` (N_m in the paper) is timed by itself. The driver pulls the sums once per window
    (T_m in the paper is the length of a window). A Spark task sends its sums when it ends, so a pull sends no message.
    """

    def __init__(self, context: Any, every: int, operator: str = "") -> None:
        self.every = every
        self.operator = operator  # named in the errors of its functions
        self.seconds = context.accumulator(0.0)
        self.sampled = context.accumulator(0)
        self.sampled_s = context.accumulator(0.0)
        self.sampled_s2 = context.accumulator(0.0)
        self.calls = context.accumulator(CallSums(), _CallSumsParam())
        self._pulled = Pull(0.0, ServiceSample(0, 0.0, 0.0), CallSums())

    def add_calls(self, busy_s: float, sums: CallSums) -> None:
        """Add the busy time of a task and its concurrent calls."""
        self.seconds.add(busy_s)
        self.calls.add(sums)

    def pull(self) -> Pull:
        """Return what was added since the last pull."""
        before = self._pulled
        rows, total_s, total_s2 = self.sampled.value, self.sampled_s.value, self.sampled_s2.value
        self._pulled = Pull(float(self.seconds.value), ServiceSample(rows, total_s, total_s2), self.calls.value)
        after = self._pulled
        return Pull(after.busy_s - before.busy_s, after.sample - before.sample, after.calls - before.calls)


def rows_until_drawn(every: int) -> int:
    """Return how many rows to skip if each row is drawn with probability 1 / every.

    The number has a geometric distribution, so one random number per sample is enough.
    """
    if every == 1:
        return 0
    return int(math.log(1.0 - random.random()) / math.log1p(-1.0 / every))


@contextlib.contextmanager
def python_functions_timed(timing: Timing) -> Iterator[None]:
    """Time every Python function that is passed to a DataFrame or a column within this context."""
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
        setattr(owner, name, _wrapping(original, timing.operator, wrap))
    called = UserDefinedFunction.__call__
    timed_call = lambda udf, *args, **kwargs: called(_timed_udf(udf, timing), *args, **kwargs)  # noqa: E731
    setattr(UserDefinedFunction, "__call__", timed_call)  # noqa: B010
    try:
        yield
    finally:
        setattr(UserDefinedFunction, "__call__", called)  # noqa: B010
        for owner, name, original, _ in originals:
            setattr(owner, name, original)


def _wrapping(original: Any, operator: str, wrap: Callable[[Any], Any]) -> Any:
    @functools.wraps(original)
    def method(self: Any, func: Any = None, *args: Any, **kwargs: Any) -> Any:
        for keyword in ("func", "statefulProcessor"):
            if func is None and keyword in kwargs:
                func = kwargs.pop(keyword)
        check_serialisable(f"operator '{operator}'", func)
        return original(self, wrap(func), *args, **kwargs)

    return method


def _subclasses(owner: type) -> set[type]:
    children: list[type] = owner.__subclasses__()
    return {*children, *(grandchild for child in children for grandchild in _subclasses(child))}


class _TimedInput:
    """An iterator that measures how long its consumer waits for it."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self.waited_s = 0.0
        self.failed = False

    def __iter__(self) -> _TimedInput:
        return self

    def __next__(self) -> Any:
        began = time.perf_counter()
        try:
            return next(self._items)
        except StopIteration:
            raise
        except BaseException:
            self.failed = True
            raise
        finally:
            self.waited_s += time.perf_counter() - began


def _own_time(timing: Timing, fn: Callable[..., Any], source: _TimedInput, *args: Any) -> Iterator[Any]:
    """Pass on the items that a function makes and add its own time, without that of its input and its consumer."""
    made: Iterator[Any] | None = None
    while True:
        waited_s, began = source.waited_s, time.perf_counter()
        try:
            if made is None:
                made = iter(fn(*args))
            item = next(made)
        except StopIteration:
            return
        except Exception as error:
            if source.failed:  # the input of the function, which may be another function of the user
                raise
            raise _explained(timing, fn, error) from error
        finally:
            timing.seconds.add(time.perf_counter() - began - (source.waited_s - waited_s))
        yield item


def _explained(timing: Timing, fn: Callable[..., Any], error: Exception, row: object = None) -> UserFunctionError:
    return user_function_error(f"operator '{timing.operator}'", fn, error, row=row)


def _over_batches(timing: Timing, fn: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterator[Any]]:
    def timed(batches: Iterable[Any]) -> Iterator[Any]:
        source = _TimedInput(batches)
        return _own_time(timing, fn, source, source)

    return timed


def _timed_udf(udf: UserDefinedFunction, timing: Timing) -> UserDefinedFunction:
    """Return a copy of a UDF with its function timed. Kinds of UDF that streams cannot use are returned unchanged."""
    wrap = _UDFS.get(udf.evalType)
    if wrap is None or udf.transpiled:  # it does not run in Python
        return udf
    check_serialisable(f"operator '{timing.operator}'", udf.func)
    timed = functools.wraps(udf.func)(wrap(timing, udf.func))
    return UserDefinedFunction(
        timed,
        name=udf._name,  # the name of its column
        returnType=udf.returnType,
        evalType=udf.evalType,
        deterministic=udf.deterministic,
    )


def _over_row(timing: Timing, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Time the rows that are drawn; each stands for `every` rows, because timing each row would cost too much."""
    left: int | None = None  # drawn on the worker, because a number drawn here would be the same in all tasks

    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left is None:
            left = rows_until_drawn(timing.every)
        try:
            if left > 0:
                left -= 1
                return fn(*args, **kwargs)
            left = None
            began = time.perf_counter()
            result = fn(*args, **kwargs)
            row_s = time.perf_counter() - began
        except Exception as error:
            raise _explained(timing, fn, error, row=args or kwargs) from error
        timing.seconds.add(row_s * timing.every)
        timing.sampled.add(1)
        timing.sampled_s.add(row_s)
        timing.sampled_s2.add(row_s * row_s)
        return result

    return timed


def _over_columns(timing: Timing, fn: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            raise _explained(timing, fn, error) from error
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
        source = _TimedInput(batches)
        return _own_time(timing, fn, source, key, source, state)

    return timed


def _over_processor(timing: Timing, processor: Any) -> Any:
    # A copy, because the same processor is passed again at every change of plan, and would be wrapped again.
    clocked = copy.copy(processor)
    original = clocked.handleInputRows

    def timed(key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:
        source = _TimedInput(rows)
        return _own_time(timing, original, source, key, source, timer_values)

    clocked.handleInputRows = timed
    return clocked
