"""The pool of waiting rows. Queues, source logs and pairing lists are linked lists in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.engines.simulated.compiled.compiler import compiled, compiled_with_arrays
from penstock.engines.simulated.compiled.records import NONE
from penstock.engines.simulated.rows.records import QUEUE, ROW, RowState

RowList = tuple[np.ndarray, np.ndarray]  # append times and operators, in order


@compiled
def append_row(state: RowState, queues: np.ndarray, queue: int, born_s: float, operator: int) -> None:
    """Append a row to a list. The caller ensures that the pool has a free place."""
    pool, status = state.pool, state.status
    i = status[0].first_free
    status[0].first_free = pool[i].next
    status[0].free_places -= 1
    pool[i].born_s = born_s
    pool[i].operator = operator
    pool[i].next = NONE
    if queues[queue].size == 0:
        queues[queue].head = i
    else:
        pool[queues[queue].tail].next = i
    queues[queue].tail = i
    queues[queue].size += 1


@compiled
def prepend_row(state: RowState, queues: np.ndarray, queue: int, born_s: float, operator: int) -> None:
    """Insert a row at the head of a list. The caller ensures that the pool has a free place."""
    pool, status = state.pool, state.status
    i = status[0].first_free
    status[0].first_free = pool[i].next
    status[0].free_places -= 1
    pool[i].born_s = born_s
    pool[i].operator = operator
    pool[i].next = queues[queue].head
    if queues[queue].size == 0:
        pool[i].next = NONE
        queues[queue].tail = i
    queues[queue].head = i
    queues[queue].size += 1


@compiled
def take_row(state: RowState, queues: np.ndarray, queue: int) -> int:
    """Remove the first row of a list and return its place, which is free but readable until the next insertion."""
    pool, status = state.pool, state.status
    i = queues[queue].head
    queues[queue].head = pool[i].next
    queues[queue].size -= 1
    pool[i].next = status[0].first_free
    status[0].first_free = i
    status[0].free_places += 1
    return int(i)


@compiled_with_arrays
def row_list(pool: np.ndarray, queues: np.ndarray, queue: int) -> RowList:
    """Return the rows of a list."""
    size = queues[queue].size
    born_s, operator = np.empty(size), np.empty(size, np.int64)
    i = queues[queue].head
    for at in range(size):
        born_s[at], operator[at] = pool[i].born_s, pool[i].operator
        i = pool[i].next
    return born_s, operator


def filled_pool(
    queues: Sequence[RowList], pairs: Sequence[RowList], *, spare: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (pool, queues, pairing lists) with these rows. The free places follow the used ones in the pool."""
    lists = [*queues, *pairs]
    sizes = np.array([len(born_s) for born_s, _ in lists], np.int64)
    used = int(sizes.sum())
    pool = _free_places(0, 2 * used + spare)
    pool["born_s"][:used] = np.concatenate([born_s for born_s, _ in lists])
    pool["operator"][:used] = np.concatenate([operator for _, operator in lists])
    records = np.zeros(len(lists), QUEUE)
    records["size"] = sizes
    records["head"] = np.cumsum(sizes) - sizes
    records["tail"] = records["head"] + sizes - 1
    return pool, records[: len(queues)].copy(), records[len(queues) :].copy()


def enlarged_pool(pool: np.ndarray, status: np.ndarray) -> np.ndarray:
    """Return a pool of twice the size, and update the free places in `status`."""
    more = _free_places(len(pool), len(pool))
    more["next"][-1] = status[0]["first_free"]
    status["first_free"] = len(pool)
    status["free_places"] += len(more)
    return np.concatenate([pool, more])


def _free_places(first: int, size: int) -> np.ndarray:
    pool = np.zeros(size, ROW)
    pool["next"] = np.arange(first + 1, first + size + 1)
    return pool
