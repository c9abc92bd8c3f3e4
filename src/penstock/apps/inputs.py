"""The source of an app: its generator, or files given in place of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock
from penstock.dataflow.sinks import Sink
from penstock.dataflow.sources import Source

ROWS_PER_S = 2_000.0  # where neither a rate nor an end is given


def generated(fn: Callable[[int], Any], schema: str, rows: int | None, rows_per_s: float | None) -> Source:
    """`rows` at once where no rate is given, an endless stream where no number of rows is."""
    rate = ROWS_PER_S if rows is None and rows_per_s is None else rows_per_s
    return penstock.generate(fn, schema=schema, rows=rows, rows_per_s=rate)


def generated_or_files(
    fn: Callable[[int], Any], schema: str, *, input: str | None, rows: int | None, rows_per_s: float | None
) -> Source:
    """The rows generated, or those of the files of the glob `input`, csv without headers, where it is given."""
    if input is None:
        return generated(fn, schema, rows, rows_per_s)
    if rows is not None:
        raise penstock.DataflowError(f"input={input!r} and rows={rows} are both given; rows is for generated data only")
    how = {"format": "text"} if schema == "value string" else {"schema": schema, "header": False}
    if rows_per_s is None:
        return penstock.backlog(input, **how)
    return penstock.replay(input, rows_per_s=rows_per_s, **how)


def kept_if_finite(output: Sink | None, rows: int | None) -> Sink:
    """The sink given; else memory, unless the stream is endless or of unknown size and would fill it."""
    if output is not None:
        return output
    return penstock.noop() if rows is None else penstock.memory()
