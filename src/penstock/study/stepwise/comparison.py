"""Compare two dataflows: their results on the same input, their throughput, and the operator that makes a difference.

The paper calls them equivalent topologies (Liu et al. 2017, section 2): logically equal, with different performance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import msgspec
import numpy as np
from scipy import stats

from penstock.plan import Plan
from penstock.store import ProfiledOperator, ProfiledRegion
from penstock.study.stepwise.sequential_test import TrialLimits, Verdict, verdict_after, welch_test

Side = Literal["a", "b"]
_DIGITS = 12  # sums of floating-point numbers in another order differ in later digits
_BUSY = 0.9  # capacity from which a region limits the throughput


class RowDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose number differs between the results."""

    sink: str  # sink of the first dataflow
    row: dict[str, Any]
    count_a: int
    count_b: int


class ResultCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two results as multisets of rows."""

    sample_rows: int  # rows of each source, at most
    rows_a: int
    rows_b: int
    differing_rows: int  # number of distinct rows that differ
    differences: tuple[RowDifference, ...]  # the first of them

    @property
    def equal(self) -> bool:
        return self.differing_rows == 0


class ComparedDataflow(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of one of the two dataflows, in short."""

    program: str
    dataflow: str
    plan: Plan
    rows_per_s: float
    low_rows_per_s: float  # 95 % confidence interval of the mean
    high_rows_per_s: float
    latency_s: float
    meets_target: bool
    rounds: int
    seconds: float  # duration of all trials
    seconds_per_row: dict[str, float]  # operator -> seconds per external row


class ThroughputRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput of B relative to that of A, with a confidence interval."""

    ratio: float
    low: float
    high: float
    level: float
    p_value: float  # Welch's t-test of equal throughput
    verdict: Verdict  # B relative to A


class DifferenceCause(msgspec.Struct, frozen=True, kw_only=True):
    """The operator that costs the slower dataflow most of the difference."""

    operator: str
    side: Side  # the slower dataflow
    reason: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two dataflows. `a`, `b` and `ratio` are None if their results differ."""

    slots: int
    latency_target_s: float
    engine: str
    check: ResultCheck | None  # None if the results were not compared
    a: ComparedDataflow | None = None
    b: ComparedDataflow | None = None
    ratio: ThroughputRatio | None = None
    faster: Side | None = None  # None: no significant difference
    cause: DifferenceCause | None = None


def compared_results(
    a: Mapping[str, Iterable[Mapping[str, Any]]],
    b: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    sample_rows: int,
    shown: int = 10,
) -> ResultCheck:
    """Compare the rows of each sink as multisets. A single sink of each is compared whatever its name.

    >>> check = compared_results({"out": [{"n": 1}, {"n": 1}]}, {"out": [{"n": 1}]}, sample_rows=2)
    >>> check.equal, check.differences[0].count_a, check.differences[0].count_b
    (False, 2, 1)
    """
    only = len(a) == len(b) == 1
    pairs = [(next(iter(a)), next(iter(b)))] if only else [(sink, sink) for sink in dict.fromkeys([*a, *b])]
    differences, rows_a, rows_b = [], 0, 0
    for sink, other in pairs:
        counts_a, values = _counted(a.get(sink, ()))
        counts_b, values_b = _counted(b.get(other, ()))
        rows_a, rows_b = rows_a + counts_a.total(), rows_b + counts_b.total()
        values |= values_b
        differences += [
            RowDifference(sink=sink, row=values[key], count_a=counts_a[key], count_b=counts_b[key])
            for key in sorted(counts_a.keys() | counts_b.keys())
            if counts_a[key] != counts_b[key]
        ]
    return ResultCheck(
        sample_rows=sample_rows,
        rows_a=rows_a,
        rows_b=rows_b,
        differing_rows=len(differences),
        differences=tuple(differences[:shown]),
    )


def _counted(rows: Iterable[Mapping[str, Any]]) -> tuple[Counter[str], dict[str, dict[str, Any]]]:
    """Return how often each row occurs, and the row of each key. The order of the columns does not matter."""
    counts: Counter[str] = Counter()
    values: dict[str, dict[str, Any]] = {}
    for row in rows:
        plain = {name: _plain(row[name]) for name in sorted(row)}
        key = repr(plain)
        counts[key] += 1
        values.setdefault(key, plain)
    return counts, values


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent, with equal texts for equal values."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    return str(value.normalize()) if isinstance(value, Decimal) else repr(value)


def throughput_ratio(
    a_rows_per_s: Sequence[float], b_rows_per_s: Sequence[float], *, level: float = 0.95
) -> ThroughputRatio:
    """Return the throughput of B relative to A from the windows of one trial each.

    The interval is that of the difference of logarithms (delta method), with Welch's degrees of freedom. The verdict is
    that of a trial of fixed length: better or worse at significance 1 - `level`, otherwise no difference.

    >>> result = throughput_ratio([99.0, 101.0, 99.0, 101.0] * 4, [198.0, 202.0, 198.0, 202.0] * 4)
    >>> round(result.ratio, 2), round(result.low, 2), round(result.high, 2), result.verdict.value
    (2.0, 1.99, 2.01, 'better')
    """
    a, b = np.asarray(a_rows_per_s, float), np.asarray(b_rows_per_s, float)
    ratio = float(b.mean() / a.mean())
    limits = TrialLimits(min_windows=b.size, max_windows=b.size, significance=1.0 - level)
    verdict = verdict_after(a_rows_per_s, b_rows_per_s, limits) or Verdict.NO_DIFFERENCE
    if max(np.ptp(a), np.ptp(b)) <= 0.0:
        p_value = 1.0 if verdict is Verdict.NO_DIFFERENCE else 0.0
        return ThroughputRatio(ratio=ratio, low=ratio, high=ratio, level=level, p_value=p_value, verdict=verdict)
    welch = welch_test(a_rows_per_s, b_rows_per_s)
    relative = welch_test((a / a.mean()).tolist(), (b / b.mean()).tolist())  # errors of the logarithms
    half = float(stats.t.ppf(0.5 + level / 2.0, relative.freedom)) * relative.error
    return ThroughputRatio(
        ratio=ratio,
        low=ratio * math.exp(-half),
        high=ratio * math.exp(half),
        level=level,
        p_value=welch.p_value,
        verdict=verdict,
    )


def seconds_per_external_row(operators: Iterable[ProfiledOperator]) -> dict[str, float]:
    """Return the time that each operator takes for one row of the input of the dataflow."""
    return {operator.operator: operator.min_latency_s * operator.rows_in for operator in operators}


def difference_cause(
    side: Side,
    slower_s: Mapping[str, float],
    faster_s: Mapping[str, float],
    *,
    regions: Mapping[str, ProfiledRegion],
    single: Mapping[str, Sequence[str]],
) -> DifferenceCause | None:
    """Return the operator that makes a dataflow slower than the other one; None if no operator takes longer.

    An operator that cannot have a second replica and is always busy limits the throughput alone. Otherwise all slots
    are shared, so the operator with the most additional time per external row is the cause. Operators are compared by
    name.

    Args:
        side: The slower dataflow.
        slower_s: Its operators with their seconds per external row.
        faster_s: The operators of the other dataflow.
        regions: Capacities of the slower dataflow under its best plan.
        single: Its regions that can have one replica only, with their operators.
    """
    busy = {name: regions[name].capacity for name in single if name in regions and regions[name].capacity >= _BUSY}
    if busy:
        region = max(busy, key=lambda name: busy[name])
        operator = max(single[region], key=lambda name: slower_s.get(name, 0.0))
        reason = f"it can have one replica only, and this one is busy {busy[region]:.0%} of the time"
        return DifferenceCause(operator=operator, side=side, reason=reason)
    added_s = {name: seconds - faster_s.get(name, 0.0) for name, seconds in slower_s.items()}
    operator = max(added_s, key=lambda name: added_s[name], default="")
    if not operator or added_s[operator] <= 0.0:
        return None
    own_ms, total_ms = slower_s[operator] * 1e3, sum(slower_s.values()) * 1e3
    if operator in faster_s:
        reason = f"it takes {own_ms:.3g} ms per external row instead of {faster_s[operator] * 1e3:.3g} ms"
    else:
        reason = (
            f"it takes {own_ms:.3g} ms of {total_ms:.3g} ms per external row; the other dataflow has no such operator"
        )
    return DifferenceCause(operator=operator, side=side, reason=reason)
