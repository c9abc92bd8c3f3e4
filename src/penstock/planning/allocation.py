"""Threads, CPU and memory for each operator, and the slots they add up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.dataflow.errors import PenstockError
from penstock.models.curve import Curve
from penstock.models.flow import Flow, gains

SLOT = 100.0  # percent of CPU, and of memory, that one slot has
SLACK = 1e-9  # percent: sums of percentages that should be whole are off by rounding, and must not cost a slot
MAX_THREADS = 1_000_000  # above this somebody mixed up units


class AllocationError(PenstockError):
    """The demand cannot be turned into threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Threads of one operator that share one slot: the rate meant for them, the CPU% and memory% they are given."""

    threads: int
    rows_per_s: float
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAllocation:
    """`bundles` equal bundles and at most one `rest`. `exclusive`: each bundle wants a slot for itself."""

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
    """What a dataflow needs at a rate, by one method; operators in breadth-first order."""

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
        """ceil(max(sum of CPU, sum of memory)), in slots.

        An operator whose bundles are exclusive has at least a slot for each of them and one for its rest. That only
        ever matters for a curve that says 0% CPU and 0% memory, which would else be given no slot.
        """
        used = math.ceil((max(self.cpu, self.memory) - SLACK) / SLOT)
        apart = max((one.bundles + (one.rest is not None) for one in self.operators if one.exclusive), default=1)
        return max(used, apart, 1)


_NONE = Bundle(threads=1, rows_per_s=0.0, cpu=0.0, memory=0.0)


def allocate(
    flow: Flow,
    rows_per_s: float,
    curves: Mapping[str, Curve],
    method: str,
    of: Callable[[float, Curve], tuple[int, Bundle, Bundle | None]],
    exclusive: bool,
) -> Allocation:
    """Gives every operator of the flow, at its input rate, what `of(rate, curve)` says: (bundles, bundle, rest)."""
    if not (math.isfinite(rows_per_s) and rows_per_s > 0):
        raise AllocationError(f"a rate of {rows_per_s} rows/s was given; it must be a finite number above 0")
    operators, threads = [], 0
    for name, gain in gains(flow).items():
        curve = curve_of(name, curves)
        rate = rows_per_s * gain
        bundles, bundle, rest = of(rate, curve)
        if bundles == 0 and rest is None:
            rest = _NONE  # no rows reach it, but the dataflow does not run without it
        operator = OperatorAllocation(
            operator=name, input_rows_per_s=rate, bundle=bundle, bundles=bundles, rest=rest, exclusive=exclusive
        )
        operators.append(operator)
        threads += operator.threads
        if threads > MAX_THREADS:
            raise AllocationError(
                f"operator '{name}' gets {rate:g} rows/s and one thread does {curve.single.rows_per_s:g}: that takes "
                f"more than {MAX_THREADS:,} threads; check the rate, the selectivities and the units of the curve"
            )
    return Allocation(method=method, rows_per_s=rows_per_s, operators=tuple(operators))


def curve_of(operator: str, curves: Mapping[str, Curve]) -> Curve:
    try:
        return curves[operator]
    except KeyError:
        known = ", ".join(sorted(curves)) or "none"
        raise AllocationError(
            f"operator '{operator}' has no curve; curves are given for: {known}; add its curve"
        ) from None


def whole_units(rate: float, unit: float) -> tuple[int, float]:
    """How often `unit` goes into `rate`, and what is left; a remainder that is only rounding counts as none.

    >>> whole_units(100.0, 30.0), whole_units(0.3, 0.1)
    ((3, 10.0), (3, 0.0))
    """
    if not rate / unit < 1e15:  # beyond whole numbers of a float, or infinite; no one has so many threads
        return 10**15, 0.0
    rounding = 1e-12 * max(rate, unit)
    whole, left = divmod(rate, unit)
    if unit - left <= rounding:
        return int(whole) + 1, 0.0
    return int(whole), (left if left > rounding else 0.0)


def scaled(curve: Curve, rows_per_s: float) -> Bundle:
    """One thread below its peak rate: CPU and memory in proportion to the rate."""
    part = rows_per_s / curve.single.rows_per_s
    return Bundle(threads=1, rows_per_s=rows_per_s, cpu=curve.single.cpu * part, memory=curve.single.memory * part)
