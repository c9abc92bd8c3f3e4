"""What a task adds to a batch, learned from the same query under different numbers of tasks.

What is left of a batch without the work of its rows is r = a + b x, with x tasks in its stages. Under one plan a and b
cannot be told apart; under two they can. Over all queries, each about its own means,

    b = (sum (x - mean x) (r - mean r) + w b0) / (sum (x - mean x)^2 + w)

where b0 is what was expected beforehand and w its weight: a plan with two tasks more or less outweighs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from penstock.control.situation import Memory

Query = tuple[str, ...]  # the regions in it

_KEY = "drs.rest_of_batch"
_WEIGHT = 1.0  # tasks^2


class Rest(NamedTuple):
    """Of the mean batch of a query."""

    tasks: int
    seconds: float


def remembered(memory: Memory, rests: Mapping[Query, Rest], *, rate: float) -> Memory:
    """With what was seen now, a running mean for each number of tasks."""
    found = dict(memory)
    for query, rest in rests.items():
        before = found.get(key := _key(query, rest.tasks), rest.seconds)
        found[key] = (1.0 - rate) * before + rate * rest.seconds
    return found


def recalled(memory: Memory, rests: Mapping[Query, Rest]) -> dict[Query, Rest]:
    """What is remembered of them: under a backlog batches are nearly all work, and what is left of one is an error."""
    return {query: Rest(one.tasks, memory.get(_key(query, one.tasks), one.seconds)) for query, one in rests.items()}


def _key(query: Query, tasks: int) -> str:
    return f"{_KEY} {'+'.join(query)} {tasks}"


def task_s(memory: Memory, expected_s: float) -> float:
    """
    >>> task_s({}, 0.02)
    0.02
    >>> seen = remembered({}, {("count",): Rest(2, 0.18)}, rate=0.3)
    >>> seen = remembered(seen, {("count",): Rest(10, 0.50)}, rate=0.3)
    >>> round(task_s(seen, 0.02), 3)  # (0.50 - 0.18) / (10 - 2) = 0.04
    0.039
    """
    seen: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for key, seconds in memory.items():
        if key.startswith(_KEY):
            query, _, tasks = key.rpartition(" ")
            seen[query].append((tasks, seconds))
    together, spread = _WEIGHT * expected_s, _WEIGHT
    for some in seen.values():
        if len(some) == 1:  # of most, and it says nothing
            continue
        points = [(int(tasks), seconds) for tasks, seconds in some]
        mean_x = sum(x for x, _ in points) / len(points)
        mean_r = sum(r for _, r in points) / len(points)
        together += sum((x - mean_x) * (r - mean_r) for x, r in points)
        spread += sum((x - mean_x) ** 2 for x, _ in points)
    return max(0.0, together / spread)
