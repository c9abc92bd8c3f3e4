"""Read CSV with line numbers for error messages."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from penstock.dataflow.errors import PenstockError


class CsvError(PenstockError):
    """The text is not valid CSV."""


def read_csv(text: str, source: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the column names, and (line number, values) of each non-empty row.

    >>> read_csv("app, vms\\n\\ngrep,4\\n", "samples.csv")
    (['app', 'vms'], [(3, ['grep', '4'])])
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        return columns, [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise CsvError(f"{source}, line {reader.line_num}: this is not valid CSV: {error}. Correct the line.") from None


def quoted_row(row: Sequence[str]) -> str:
    """Return a row, shortened if necessary, for an error message."""
    line = ",".join(row)
    return line if len(line) <= 80 else f"{line[:77]}..."
