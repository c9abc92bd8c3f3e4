"""Concurrent calls: how a replica calls a row function for several rows at the same time.

An operator that waits for a service occupies a slot for the whole wait. 32 threads wait for 32 calls in one slot.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.dataflow.declaration import check_keys, schema_columns
from penstock.dataflow.errors import DataflowError

MAX_THREADS = 1_024  # per replica
DEAD_LETTER = "dead_letter"  # column that holds the error of a row, beside the columns of the result
DEAD_LETTER_SCHEMA = "operator string, row string, error string, attempts int"
_NOT_NULL = re.compile(r"\s+not\s+null\b", re.IGNORECASE)


class Order(StrEnum):
    """The rows that keep their order within a replica."""

    ALL = "all"
    KEY = "key"  # rows with equal keys, whose calls never overlap
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentCalls:
    """The declaration of concurrent calls."""

    threads: int = 1  # calls in flight per replica, until a plan gives another number
    timeout_s: float | None = None  # limit of one attempt
    order: Order = Order.ALL
    keys: tuple[str, ...] = ()
    retries: int = 0  # attempts after the first one
    backoff_s: float = 0.1  # pause before the first retry; it doubles with each further one
    client: Callable[[], Any] | None = None  # creates the client of a worker, the second argument of the function
    dead_letters: bool = False  # rows that fail go to a stream of their own instead of failing the batch


def concurrent_calls(
    operator: str,
    fn: Callable[..., Any],
    *,
    threads: int | None,
    timeout_s: float | None,
    ordered: bool | str,
    keys: Sequence[str] | None,
    retries: int,
    backoff_s: float,
    client: Callable[[], Any] | None,
    dead_letters: bool,
) -> ConcurrentCalls | None:
    """Return the declaration of an operator's calls, or None if it calls its function for one row after the other.

    Raises:
        DataflowError: A value is out of range, or the values contradict each other.
    """
    is_plain = timeout_s is None and not retries and client is None and not dead_letters and ordered is True
    if threads is None and is_plain and not is_async(fn):
        return None
    if inspect.isasyncgenfunction(fn):
        raise DataflowError(
            f"The function of '{operator}' is an asynchronous generator; write an 'async def' function that returns a "
            "row, a list of rows, or None."
        )
    check_threads(operator, 1 if threads is None else threads, DataflowError)
    for name, value in (("timeout_s", timeout_s), ("backoff_s", backoff_s)):
        if value is not None and not (math.isfinite(value) and (value > 0 or (name == "backoff_s" and value == 0))):
            raise DataflowError(f"Operator '{operator}' has {name}={value!r}; give a finite number of seconds above 0.")
    if retries < 0:
        raise DataflowError(f"Operator '{operator}' has retries={retries}; give 0 or more.")
    if not isinstance(ordered, bool) and ordered != Order.KEY:
        raise DataflowError(
            f"Operator '{operator}' has ordered={ordered!r}; give True (all rows keep their order), 'key' (rows with "
            "equal keys do) or False (none does)."
        )
    order = Order.KEY if ordered == Order.KEY else Order.ALL if ordered else Order.NONE
    if order is Order.KEY:
        if keys is None:
            raise DataflowError(f"Operator '{operator}' has ordered='key' but no keys; give keys=['<column>'].")
        check_keys(operator, keys)
    elif keys is not None:
        raise DataflowError(f"Operator '{operator}' has keys={list(keys)!r} without ordered='key'; add it, or no keys.")
    return ConcurrentCalls(
        threads=1 if threads is None else threads,
        timeout_s=timeout_s,
        order=order,
        keys=tuple(keys or ()),
        retries=retries,
        backoff_s=backoff_s,
        client=client,
        dead_letters=dead_letters,
    )


def check_threads(operator: str, threads: object, error: type[Exception]) -> None:
    """Raise `error` unless a replica of an operator can have this number of threads."""
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MAX_THREADS:
        raise error(
            f"threads of '{operator}' = {threads!r} is not possible; give a whole number, 1 to {MAX_THREADS:,}."
        )


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether a function, or the method of a callable object, is declared with `async def`."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def schema_with_dead_letters(operator: str, schema: str) -> str:
    """Return the schema of results and dead letters in one stream: one of the two is null in each row.

    >>> schema_with_dead_letters("lookup", "n bigint not null")
    'n bigint, dead_letter struct<operator: string, row: string, error: string, attempts: int>'
    """
    if DEAD_LETTER in schema_columns(schema):
        raise DataflowError(
            f"Operator '{operator}' has a column '{DEAD_LETTER}', which is reserved if dead_letters=True; rename it."
        )
    fields = ", ".join(field.replace(" ", ": ") for field in DEAD_LETTER_SCHEMA.split(", "))
    return f"{_NOT_NULL.sub('', schema)}, {DEAD_LETTER} struct<{fields}>"
