"""Rows of a CSV file, with the line each ends on."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from penstock.dataflow.errors import PenstockError


class CsvError(PenstockError):
    """The text is not CSV."""


def read_csv(text: str, source: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The columns, and (line, values) of each row; empty lines are left out.

    >>> read_csv("app, vms\\n\\ngrep,4\\n", "samples.csv")
    (['app', 'vms'], [(3, ['grep', '4'])])
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        return columns, [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise CsvError(f"{source}, line {reader.line_num}: this is not CSV: {error}; mend the line") from None


def quoted_row(row: Sequence[str]) -> str:
    """A row as an error may quote it."""
    line = ",".join(row)
    return line if len(line) <= 80 else f"{line[:77]}..."
