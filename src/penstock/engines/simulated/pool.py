"""The pool of waiting rows, and the lists in it: queues, logs, rows that wait for one to pair with.

`one` is the record of SIZES, which knows the free places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.engines.simulated.compiling import compiled, compiled_with_arrays
from penstock.engines.simulated.records import NONE, QUEUE, ROW

List = tuple[np.ndarray, np.ndarray]  # births and operators, in order


@compiled
def put(rows: np.ndarray, one: np.ndarray, queues: np.ndarray, queue: int, birth: float, operator: int) -> None:
    """At the end of a list; the caller has seen that the pool has a place."""
    i = one[0].free
    one[0].free = rows[i].after
    one[0].free_rows -= 1
    rows[i].birth = birth
    rows[i].operator = operator
    rows[i].after = NONE
    if queues[queue].size == 0:
        queues[queue].head = i
    else:
        rows[queues[queue].tail].after = i
    queues[queue].tail = i
    queues[queue].size += 1


@compiled
def put_first(rows: np.ndarray, one: np.ndarray, queues: np.ndarray, queue: int, birth: float, operator: int) -> None:
    i = one[0].free
    one[0].free = rows[i].after
    one[0].free_rows -= 1
    rows[i].birth = birth
    rows[i].operator = operator
    rows[i].after = queues[queue].head
    if queues[queue].size == 0:
        rows[i].after = NONE
        queues[queue].tail = i
    queues[queue].head = i
    queues[queue].size += 1


@compiled
def take_first(rows: np.ndarray, one: np.ndarray, queues: np.ndarray, queue: int) -> int:
    """Its place in the pool: still readable, but free."""
    i = queues[queue].head
    queues[queue].head = rows[i].after
    queues[queue].size -= 1
    rows[i].after = one[0].free
    one[0].free = i
    one[0].free_rows += 1
    return int(i)


@compiled_with_arrays
def listed(rows: np.ndarray, queues: np.ndarray, queue: int) -> List:
    size = queues[queue].size
    birth, operator = np.empty(size), np.empty(size, np.int64)
    i = queues[queue].head
    for at in range(size):
        birth[at], operator[at] = rows[i].birth, rows[i].operator
        i = rows[i].after
    return birth, operator


def filled(queues: Sequence[List], pairs: Sequence[List], *, spare: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(pool, queues, pairing lists) with room for as many rows again; the free places follow those in use."""
    every = [*queues, *pairs]
    sizes = np.array([len(birth) for birth, _ in every], np.int64)
    used = int(sizes.sum())
    rows = _free_places(0, 2 * used + spare)
    rows["birth"][:used] = np.concatenate([one[0] for one in every])
    rows["operator"][:used] = np.concatenate([one[1] for one in every])
    lists = np.zeros(len(every), QUEUE)
    lists["size"] = sizes
    lists["head"] = np.cumsum(sizes) - sizes
    lists["tail"] = lists["head"] + sizes - 1
    return rows, lists[: len(queues)].copy(), lists[len(queues) :].copy()


def enlarged(rows: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Twice the pool; `one` is the record of SIZES, which is told."""
    more = _free_places(len(rows), len(rows))
    more["after"][-1] = one[0]["free"]
    one["free"] = len(rows)
    one["free_rows"] += len(more)
    return np.concatenate([rows, more])


def _free_places(first: int, size: int) -> np.ndarray:
    rows = np.zeros(size, ROW)
    rows["after"] = np.arange(first + 1, first + size + 1)
    return rows
