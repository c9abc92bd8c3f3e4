"""The rule by which waiting rows become invocations, shared by Spark, the simulator and the in-memory runner.

The function takes numbers and sequences of numbers and calls nothing, so numba can compile it.
"""

from __future__ import annotations

from typing import Any

from penstock.dataflow.schedule import Ports, RowCount, RowSchedule

ALL, ANY = 0, 1  # `Ports`
EXACT, AT_LEAST, EQUAL = 0, 1, 2  # `RowCount`
_PORTS = {Ports.ALL: ALL, Ports.ANY: ANY}
_COUNTS = {RowCount.EXACT: EXACT, RowCount.AT_LEAST: AT_LEAST, RowCount.EQUAL: EQUAL}


def codes(schedule: RowSchedule) -> tuple[int, int]:
    """Return the ports and the count of a schedule as numbers."""
    return _PORTS[schedule.ports], _COUNTS[schedule.count]


def next_invocation(
    ports: int, count: int, required: Any, waiting: Any, taken: Any, first: int = 0, size: int | None = None
) -> bool:
    """Write into `taken` how many rows the next invocation takes from each port.

    If any port is enough, the first port with enough rows is served, alone.

    Args:
        ports: ALL or ANY.
        count: EXACT, AT_LEAST or EQUAL.
        required: Rows that each port needs.
        waiting: Rows that wait at each port.
        taken: The result, by port.
        first: The first port of the operator in these sequences.
        size: The number of its ports. None: all.

    Returns:
        Whether an invocation is due. If not, `taken` has no meaning.

    >>> taken = [0, 0]
    >>> next_invocation(ALL, EXACT, [2, 3], [5, 3], taken), taken
    (True, [2, 3])
    >>> next_invocation(ALL, EQUAL, [1, 1], [5, 3], taken), taken
    (True, [3, 3])
    >>> next_invocation(ANY, AT_LEAST, [9, 2], [5, 3], taken), taken
    (True, [0, 3])
    >>> next_invocation(ALL, EXACT, [2, 3], [5, 2], taken)
    False
    """
    end = len(required) if size is None else first + size
    if ports == ANY:
        for port in range(first, end):
            if waiting[port] >= required[port]:
                for other in range(first, end):
                    taken[other] = 0
                taken[port] = required[port] if count == EXACT else waiting[port]
                return True
        return False
    least = waiting[first]
    for port in range(first, end):
        if waiting[port] < required[port]:
            return False
        if waiting[port] < least:
            least = waiting[port]
    for port in range(first, end):
        if count == EXACT:
            taken[port] = required[port]
        elif count == AT_LEAST:
            taken[port] = waiting[port]
        else:
            taken[port] = least
    return True
