"""The tasks that use every slot equally (not in the paper).

Adding tasks by ratio passes over plans that are better: with 8 slots and three equal operators, 9 tasks leave seven
slots with one task and one slot with two, and 12 tasks are worse, but 24 tasks use all slots equally. The placement is
even, so the number of tasks should be a multiple of the number of slots. The measured time per row tells which
multiple divides the slots most accurately. One trial of Algorithm 2 tests this prediction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_MOST_PER_SLOT = 8
_NEAR = 0.98  # the fewest tasks that are predicted to reach this share of the best prediction are chosen


def filling_tasks(
    seconds_per_row: Mapping[str, float],
    slots: int,
    fixed: Mapping[str, int] | None = None,
    constant: Collection[str] = (),
) -> dict[str, int] | None:
    """Return the tasks of each operator that fill all slots equally; None if there are too few slots.

    Args:
        seconds_per_row: Time of each operator per row of the sources. Operators that take no time need no slot.
        slots: Number of slots.
        fixed: Tasks of the operators whose number of tasks must not change.
        constant: Operators whose input does not grow with that of the dataflow. One task is enough for them, because
            one task was enough at the small load at which the times were measured.

    >>> filling_tasks({"first": 0.001, "second": 0.001, "third": 0.001}, slots=8)
    {'first': 8, 'second': 8, 'third': 8}
    >>> filling_tasks({"parse": 0.001, "count": 0.002}, slots=12)
    {'parse': 4, 'count': 8}
    """
    given = dict(fixed or {}) | dict.fromkeys(constant, 1)
    working = {name: seconds for name, seconds in seconds_per_row.items() if seconds > 0}
    free = [name for name in working if name not in given]
    taken = sum(count for name, count in given.items() if name in working)
    candidates = []
    for per_slot in range(1, _MOST_PER_SLOT + 1):
        left = per_slot * slots - taken
        if free and left >= len(free):
            tasks = _divided(left, {name: working[name] for name in free})
            counts = given | tasks
            rate = min(counts[name] / working[name] for name in working if name not in constant) / per_slot
            candidates.append((rate, tasks))
    if not candidates:
        return None
    best = max(rate for rate, _ in candidates)
    tasks = next(tasks for rate, tasks in candidates if rate >= _NEAR * best)
    return {name: given.get(name, tasks.get(name, 1)) for name in seconds_per_row}


def _divided(total: int, seconds: Mapping[str, float]) -> dict[str, int]:
    """Divide tasks so that the slowest operator is as fast as possible: each task goes to the slowest one."""
    tasks = dict.fromkeys(seconds, 1)
    for _ in range(total - len(tasks)):
        slowest = min(tasks, key=lambda name: tasks[name] / seconds[name])
        tasks[slowest] += 1
    return tasks
