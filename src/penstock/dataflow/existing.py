"""The treatment of output that another run or program has left where a sink writes."""

from __future__ import annotations

from typing import Literal, get_args

from penstock.dataflow.errors import DataflowError

Existing = Literal["error", "overwrite", "append"]


def checked_existing(function: str, existing: Existing) -> Existing:
    """Return the value unchanged.

    Raises:
        DataflowError: The value is unknown.

    >>> checked_existing("parquet", "replace")
    Traceback (most recent call last):
    penstock.dataflow.errors.DataflowError: parquet() is given existing='replace'; choose one of error, overwrite, \
append.
    """
    if existing not in get_args(Existing):
        raise DataflowError(
            f"{function}() is given existing={existing!r}; choose one of {', '.join(get_args(Existing))}."
        )
    return existing
