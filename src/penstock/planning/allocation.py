"""The allocation of threads, CPU and memory to each operator, and the number of slots that they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.dataflow.errors import PenstockError
from penstock.models.curve import Curve
from penstock.models.flow import Flow, gains

SLOT = 100.0  # CPU and memory of one slot, in percent
SLACK = 1e-9  # percent; rounding errors of sums of percentages must not cost a slot
MAX_THREADS = 1_000_000  # more threads indicate a wrong unit


class AllocationError(PenstockError):
    """The demand cannot be allocated to threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Threads of one operator that share one slot: their planned rate, CPU% and memory%."""

    threads: int
    rows_per_s: float
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAllocation:
    """The threads of one operator: `bundles` equal bundles and at most one smaller `rest`.

    `exclusive`: each full bundle needs a slot of its own.
    """

    operator: str
    input_rows_per_s: float
    bundle: Bundle
    bundles: int
    rest: Bundle | None
    exclusive: bool

    @property
    def threads(self) -> int:
        return self.bundles * self.bundle.threads + (self.rest.threads if self.rest else 0)

    @property
    def cpu(self) -> float:
        return self.bundles * self.bundle.cpu + (self.rest.cpu if self.rest else 0.0)

    @property
    def memory(self) -> float:
        return self.bundles * self.bundle.memory + (self.rest.memory if self.rest else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The resources that a dataflow needs at a rate, by one method; operators in breadth-first order."""

    method: str
    rows_per_s: float
    operators: tuple[OperatorAllocation, ...]

    @property
    def threads(self) -> int:
        return sum(operator.threads for operator in self.operators)

    @property
    def cpu(self) -> float:
        return math.fsum(operator.cpu for operator in self.operators)

    @property
    def memory(self) -> float:
        return math.fsum(operator.memory for operator in self.operators)

    @property
    def slots(self) -> int:
        """Return ceil(max(total CPU, total memory) / 100%).

        An operator with exclusive bundles gets at least one slot per bundle and one for its rest. This matters only
        for curves with 0% CPU and 0% memory.
        """
        used = math.ceil((max(self.cpu, self.memory) - SLACK) / SLOT)
        exclusive = max(
            (operator.bundles + (operator.rest is not None) for operator in self.operators if operator.exclusive),
            default=1,
        )
        return max(used, exclusive, 1)


_IDLE_THREAD = Bundle(threads=1, rows_per_s=0.0, cpu=0.0, memory=0.0)


def allocate(
    flow: Flow,
    rows_per_s: float,
    curves: Mapping[str, Curve],
    method: str,
    allocate_operator: Callable[[float, Curve], tuple[int, Bundle, Bundle | None]],
    exclusive: bool,
) -> Allocation:
    """Allocate threads to every operator of the flow.

    `allocate_operator(rate, curve)` returns (number of full bundles, full bundle, rest) for one operator.
    """
    if not (math.isfinite(rows_per_s) and rows_per_s > 0):
        raise AllocationError(f"The rate is {rows_per_s} rows/s. It must be a finite number above 0.")
    operators, threads = [], 0
    for name, gain in gains(flow).items():
        curve = curve_of(name, curves)
        rate = rows_per_s * gain
        bundles, bundle, rest = allocate_operator(rate, curve)
        if bundles == 0 and rest is None:
            rest = _IDLE_THREAD  # no rows reach the operator, but it must run
        operator = OperatorAllocation(
            operator=name, input_rows_per_s=rate, bundle=bundle, bundles=bundles, rest=rest, exclusive=exclusive
        )
        operators.append(operator)
        threads += operator.threads
        if threads > MAX_THREADS:
            raise AllocationError(
                f"Operator '{name}' receives {rate:g} rows/s and one thread processes {curve.single.rows_per_s:g}, "
                f"so more than {MAX_THREADS:,} threads are needed. Check the rate, the selectivities and the units of "
                "the curve."
            )
    return Allocation(method=method, rows_per_s=rows_per_s, operators=tuple(operators))


def curve_of(operator: str, curves: Mapping[str, Curve]) -> Curve:
    """Return the curve of an operator; raise an AllocationError if there is none."""
    try:
        return curves[operator]
    except KeyError:
        known = ", ".join(sorted(curves)) or "none"
        raise AllocationError(
            f"Operator '{operator}' has no curve. Curves are given for: {known}. Add its curve."
        ) from None


def whole_units(rate: float, unit: float) -> tuple[int, float]:
    """Return how many whole units fit into `rate`, and the remainder. A remainder due to rounding is 0.

    >>> whole_units(100.0, 30.0), whole_units(0.3, 0.1)
    ((3, 10.0), (3, 0.0))
    """
    if not rate / unit < 1e15:  # infinite, or too large for an exact whole number in a float
        return 10**15, 0.0
    rounding = 1e-12 * max(rate, unit)
    whole, remainder = divmod(rate, unit)
    if unit - remainder <= rounding:
        return int(whole) + 1, 0.0
    return int(whole), (remainder if remainder > rounding else 0.0)


def single_thread(curve: Curve, rows_per_s: float) -> Bundle:
    """Return one thread at or below its peak rate, with CPU and memory in proportion to the rate."""
    load = rows_per_s / curve.single.rows_per_s
    return Bundle(threads=1, rows_per_s=rows_per_s, cpu=curve.single.cpu * load, memory=curve.single.memory * load)
