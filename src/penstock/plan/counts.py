"""Counts in sentences."""

from __future__ import annotations


def slots_text(count: int) -> str:
    """Return a number of slots as it is written in a sentence.

    >>> slots_text(1), slots_text(2)
    ('1 slot', '2 slots')
    """
    return "1 slot" if count == 1 else f"{count} slots"


def thread_text(count: int) -> str:
    """Return a number of threads as it is written in a sentence.

    >>> thread_text(1), thread_text(2)
    ('1 thread', '2 threads')
    """
    return "1 thread" if count == 1 else f"{count} threads"
