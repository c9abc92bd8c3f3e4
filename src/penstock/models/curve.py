"""Performance curve of an operator on one slot: peak rate, CPU and memory as functions of its threads.

Source: Shukla and Simmhan, "Model-driven scheduling for distributed stream processing systems", JPDC 2018, the
performance model of a task. Between two measured thread counts all three quantities are interpolated linearly, as in
the paper. Beyond the last one they are constant; `measured_threads` tells the caller where that begins.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.json_document import refuse_repeated_keys
from penstock.models.queueing.errors import distinguishable

Percent = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 100})]
PositiveRate = Annotated[float, msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0})]


class CurveError(PenstockError):
    """A performance curve is invalid, or one slot cannot reach the requested rate."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peak rate of a number of threads on one slot, and the CPU% and memory% of the slot at that rate."""

    rows_per_s: PositiveRate
    cpu: Percent
    memory: Percent


# CURVES.json: operator -> threads -> point. Thread counts are strings, because they are JSON keys.
CurvesFormat = dict[str, dict[Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[1-9][0-9]*$"})], CurvePoint]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A map from threads on one slot to peak rate, CPU% and memory%.

    >>> curve = Curve(
    ...     threads=(1, 2, 10),
    ...     points=(
    ...         CurvePoint(rows_per_s=3, cpu=1.0, memory=1.0),
    ...         CurvePoint(rows_per_s=5, cpu=2.0, memory=1.0),
    ...         CurvePoint(rows_per_s=10, cpu=10.0, memory=5.0),
    ...     ),
    ... )
    >>> curve.at(3).rows_per_s, curve.threads_for(5.7), curve.best_threads
    (5.625, 4, 10)
    """

    threads: tuple[int, ...]
    points: tuple[CurvePoint, ...]

    def __post_init__(self) -> None:
        if not self.threads:
            raise CurveError("The curve is empty. Give at least the point of 1 thread.")
        if len(self.threads) != len(self.points):
            raise CurveError(
                f"The curve has {len(self.threads)} thread counts but {len(self.points)} points. Give one per count."
            )
        if self.threads[0] != 1:
            raise CurveError(f"The curve starts at {self.threads[0]} threads. It must start at 1 thread.")
        for before, after in zip(self.threads, self.threads[1:], strict=False):
            if after <= before:
                raise CurveError(f"Thread count {after} follows {before}. Thread counts must be unique and ascending.")
        for threads, point in zip(self.threads, self.points, strict=True):
            _check_point(threads, point)

    @property
    def measured_threads(self) -> int:
        """Return the largest measured thread count; beyond it the curve is constant."""
        return self.threads[-1]

    @property
    def best_threads(self) -> int:
        """Return the fewest threads with the highest peak rate of one slot (a full bundle)."""
        rates = [point.rows_per_s for point in self.points]
        return self.threads[rates.index(max(rates))]

    @property
    def best(self) -> CurvePoint:
        """Return the point with the highest peak rate."""
        return self.points[self.threads.index(self.best_threads)]

    @property
    def single(self) -> CurvePoint:
        """Return the point of 1 thread."""
        return self.points[0]

    def at(self, threads: int) -> CurvePoint:
        """Return the point of any thread count >= 1, interpolated between its measured neighbours."""
        if threads < 1:
            raise CurveError(f"A point for {threads} threads was requested. A curve begins at 1 thread.")
        right = bisect_left(self.threads, threads)
        if right == len(self.threads):
            return self.points[-1]
        if self.threads[right] == threads:
            return self.points[right]
        low, high = self.points[right - 1], self.points[right]
        part = (threads - self.threads[right - 1]) / (self.threads[right] - self.threads[right - 1])
        return CurvePoint(
            rows_per_s=low.rows_per_s + part * (high.rows_per_s - low.rows_per_s),
            cpu=low.cpu + part * (high.cpu - low.cpu),
            memory=low.memory + part * (high.memory - low.memory),
        )

    def threads_for(self, rows_per_s: float) -> int:
        """Return the fewest threads on one slot whose peak rate is at least `rows_per_s`; the inverse of `at`.

        The curve first crosses the rate in the segment that ends at the first measured point with at least that rate,
        because a line between two points below the rate stays below it.
        """
        if not rows_per_s >= 0:
            raise CurveError(f"The requested rate is {rows_per_s} rows/s. It must be 0 or more.")
        right = next((index for index, point in enumerate(self.points) if point.rows_per_s >= rows_per_s), None)
        if right is None:
            sustained, requested = distinguishable(self.best.rows_per_s, rows_per_s)
            raise CurveError(
                f"One slot sustains at most {sustained} rows/s (with {self.best_threads} threads), but {requested} was "
                "requested. Use more slots for the operator."
            )
        if right == 0:
            return 1
        low, high = self.points[right - 1].rows_per_s, self.points[right].rows_per_s
        start, end = self.threads[right - 1], self.threads[right]
        threads = min(end, start + math.ceil((rows_per_s - low) / (high - low) * (end - start)))
        # The division may round in either direction. `at` defines the result.
        while threads < end and self.at(threads).rows_per_s < rows_per_s:
            threads += 1
        while threads > start + 1 and self.at(threads - 1).rows_per_s >= rows_per_s:
            threads -= 1
        return threads


def _check_point(threads: int, point: CurvePoint) -> None:
    for name in ("rows_per_s", "cpu", "memory"):
        value = getattr(point, name)
        if not math.isfinite(value):
            raise CurveError(f"{name} at {threads} threads is {value}. It must be a finite number. Measure it again.")
    if point.rows_per_s <= 0:
        raise CurveError(f"rows_per_s at {threads} threads is {point.rows_per_s:g}. A peak rate must be above 0.")
    for name in ("cpu", "memory"):
        value = getattr(point, name)
        if not 0 <= value <= 100:
            raise CurveError(f"{name} at {threads} threads is {value:g}. It must be 0 to 100 percent of one slot.")


def curve_from_points(points: Mapping[int, CurvePoint]) -> Curve:
    """Return a curve from points in any order."""
    ascending = sorted(points)
    return Curve(threads=tuple(ascending), points=tuple(points[threads] for threads in ascending))


def curves_from_json(text: str | bytes) -> dict[str, Curve]:
    """Parse and check CURVES.json; raise a CurveError if it is invalid.

    >>> curves = curves_from_json('{"parse": {"1": {"rows_per_s": 310, "cpu": 84.69, "memory": 35.63}}}')
    >>> curves["parse"].single.cpu
    84.69
    """
    try:
        # json accepts NaN, unlike msgspec, so that the check can report it clearly.
        document = json.loads(text, object_pairs_hook=refuse_repeated_keys)
    # ValueError also covers bytes that are not UTF-8, RecursionError deeply nested brackets.
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise CurveError(f"The curves are invalid: the JSON is malformed: {error}. {_EXAMPLE}") from None
    if not isinstance(document, dict) or not document:
        raise CurveError(f"The curves are invalid: expected an object with an entry per operator. {_EXAMPLE}")
    return {operator: _curve(operator, points) for operator, points in document.items()}


_EXAMPLE = 'Example: {"parse": {"1": {"rows_per_s": 310, "cpu": 84.69, "memory": 35.63}}}'


def _curve(operator: str, points: Any) -> Curve:
    if not isinstance(points, dict):
        raise CurveError(f"Curve of '{operator}': expected an object from thread count to point. {_EXAMPLE}")
    parsed: dict[int, CurvePoint] = {}
    for key, point in points.items():
        if not (key.isascii() and key.isdigit() and key[0] != "0" and len(key) < 10):
            raise CurveError(
                f"Curve of '{operator}': '{key[:40]}' is not a thread count. It must be a whole number, 1 or more."
            )
        try:
            parsed[int(key)] = msgspec.convert(point, CurvePoint)
        except msgspec.ValidationError as error:
            raise CurveError(f"Curve of '{operator}' at {key} threads: {error}. {_EXAMPLE}") from None
    try:
        return curve_from_points(parsed)
    except CurveError as error:
        raise CurveError(f"Curve of '{operator}': {error}") from None
