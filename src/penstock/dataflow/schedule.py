"""Schedules: when an operator with ports is invoked (Kahveci and Gedik, JPDC 2020, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.dataflow.errors import DataflowError

RowNumbers = int | Sequence[int] | Mapping[int, int]


class Ports(StrEnum):
    """The ports that must have enough rows before an invocation."""

    ALL = "all"
    ANY = "any"


class RowCount(StrEnum):
    """How many of the waiting rows an invocation receives."""

    EXACT = "exact"  # the required number
    AT_LEAST = "at least"  # all waiting rows
    EQUAL = "equal"  # at least the required number, and equally many from each port


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSchedule:
    """Invocations when enough rows wait."""

    ports: Ports
    rows: RowNumbers  # per port, or one number for all ports
    count: RowCount

    def required(self, operator: str, inputs: int) -> tuple[int, ...]:
        """Return the rows that each of `inputs` ports needs.

        Raises:
            DataflowError: The numbers do not fit the ports.
        """
        given = f"Operator '{operator}' is scheduled with rows={self.rows!r}"
        if isinstance(self.rows, Mapping):
            for port in self.rows:
                if port not in range(inputs):
                    raise DataflowError(f"{given}, but it has no port {port!r}; its ports are {_ports(inputs)}.")
            missing = [port for port in range(inputs) if port not in self.rows]
            if missing:
                raise DataflowError(f"{given}, which has no number for port {missing[0]}; give one for each port.")
            numbers = [self.rows[port] for port in range(inputs)]
        elif isinstance(self.rows, Sequence) and not isinstance(self.rows, str):
            numbers = list(self.rows)
            if len(numbers) != inputs:
                raise DataflowError(f"{given}, but it has {inputs} input port(s); give one number for each port.")
        else:
            numbers = [self.rows] * inputs
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise DataflowError(f"{given}; a port needs a whole number of rows, 1 or more.")
        if self.count is RowCount.EQUAL:
            if self.ports is Ports.ANY:
                raise DataflowError(
                    f"Operator '{operator}' is scheduled with when_any(count='equal'); equal numbers need rows on all "
                    "ports: use when_all, or count='at least'."
                )
            if len(set(numbers)) > 1:
                raise DataflowError(f"{given} and count='equal'; give one number for all ports, or count='at least'.")
        return tuple(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicSchedule:
    """Invocations at fixed times, with all rows that wait then."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NoSchedule:
    """No invocations: input rows are discarded."""


Schedule = RowSchedule | PeriodicSchedule | NoSchedule


def when_all(rows: RowNumbers = 1, *, count: str = "exact") -> Schedule:
    """Invoke an operator when enough rows wait at all of its input ports.

    Args:
        rows: Rows that a port needs: one number for all ports, a list with one number per port, or a dict from port to
            number.
        count: "exact" (an invocation receives this number of rows of each port), "at least" (it receives all waiting
            rows) or "equal" (it receives the same number of rows of each port, as many as possible).

    Raises:
        DataflowError: `count` is none of these.

    >>> when_all(rows=10).required("sums", inputs=2)
    (10, 10)
    """
    return RowSchedule(ports=Ports.ALL, rows=rows, count=_row_count("when_all", count))


def when_any(rows: RowNumbers = 1, *, count: str = "exact") -> Schedule:
    """Invoke an operator when enough rows wait at one of its input ports, with the rows of this port.

    Args:
        rows: Rows that a port needs, as for `when_all`.
        count: "exact" or "at least", as for `when_all`.

    Raises:
        DataflowError: `count` is none of these.

    >>> when_any(rows={0: 1, 1: 5}).required("sums", inputs=2)
    (1, 5)
    """
    return RowSchedule(ports=Ports.ANY, rows=rows, count=_row_count("when_any", count))


def every(seconds: float) -> Schedule:
    """Invoke an operator periodically for each key, with all rows that wait then, possibly none.

    Args:
        seconds: The period in processing time. The times are the multiples of the period since 1970.

    Raises:
        DataflowError: The period is not above 0.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.001 <= seconds < math.inf:
        raise DataflowError(f"every({seconds!r}) is not a period; give a number of seconds, 0.001 or more.")
    return PeriodicSchedule(seconds=float(seconds))


def never() -> Schedule:
    """Do not invoke an operator. Its input rows are discarded."""
    return NoSchedule()


def _row_count(function: str, count: str) -> RowCount:
    try:
        return RowCount(count)
    except ValueError:
        raise DataflowError(f"{function}(count={count!r}): give count='exact', 'at least' or 'equal'.") from None


def _ports(inputs: int) -> str:
    return ", ".join(map(str, range(inputs)))
