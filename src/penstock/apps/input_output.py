"""Sources and sinks of apps: generated rows or files, and the default sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock
from penstock.dataflow.sinks import Sink
from penstock.dataflow.sources import Source

ROWS_PER_S = 2_000.0  # if neither a rate nor a number of rows is given


def generated(fn: Callable[[int], Any], schema: str, rows: int | None, rows_per_s: float | None) -> Source:
    """Return a source of generated rows: all at once without a rate, endless without a number of rows."""
    rate = ROWS_PER_S if rows is None and rows_per_s is None else rows_per_s
    return penstock.generate(fn, schema=schema, rows=rows, rows_per_s=rate)


def generated_or_files(
    fn: Callable[[int], Any], schema: str, *, input: str | None, rows: int | None, rows_per_s: float | None
) -> Source:
    """Return a source of generated rows, or of the files that match the glob `input` (text, or csv without a header).

    Raises:
        DataflowError: Both `input` and `rows` are given.
    """
    if input is None:
        return generated(fn, schema, rows, rows_per_s)
    if rows is not None:
        raise penstock.DataflowError(
            f"Both input={input!r} and rows={rows} are given, but rows is for generated data only; give one of them."
        )
    is_text = schema == "value string"
    format = "text" if is_text else None
    if rows_per_s is None:
        return penstock.backlog(input, format=format, schema=schema, header=is_text)
    return penstock.replay(input, rows_per_s=rows_per_s, format=format, schema=schema, header=is_text)


def default_sink(output: Sink | str | None, rows: int | None) -> Sink:
    """Return the given sink or Parquet files in the given folder, else memory for a finite stream and no output for an
    endless one."""
    if isinstance(output, str):
        return penstock.parquet(output)
    if output is not None:
        return output
    return penstock.noop() if rows is None else penstock.memory()
