"""The figures that a benchmark prints: a table for people, rows for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
T = TypeVar("T")  # what is measured


def row(name: str, value: float, unit: str, bar: str = "", ok: bool | None = None) -> Row:
    return {"name": name, "value": value, "unit": unit, "bar": bar, "ok": ok}


def shown(rows: list[Row]) -> Table:
    table = Table("figure", "value", "unit", "bar", "ok")
    for row in rows:
        ok = "" if row["ok"] is None else "yes" if row["ok"] else "NO"
        value = f"{row['value']:,.3g}" if row["value"] < 100 else f"{row['value']:,.0f}"
        table.add_row(row["name"], value, row["unit"], row["bar"], ok)
    return table


def print_all(parts: Mapping[str, Callable[[T], list[Row]]], only: str | None, subject: T, *, as_json: bool) -> None:
    """Runs the parts, or one of them, and prints what they found."""
    rows: list[Row] = []
    for name, part in parts.items():
        if only in (None, name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows += part(subject)
    if as_json:
        print(json.dumps(rows))
    else:
        Console(width=120).print(shown(rows))
