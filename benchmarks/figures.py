"""The figures of a benchmark, printed as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
T = TypeVar("T")  # the subject of the measurement


def row(name: str, value: float, unit: str, bar: str = "", ok: bool | None = None) -> Row:
    return {"name": name, "value": value, "unit": unit, "bar": bar, "ok": ok}


def shown(rows: list[Row]) -> Table:
    table = Table("figure", "value", "unit", "bar", "ok")
    for figure in rows:
        ok = "" if figure["ok"] is None else "yes" if figure["ok"] else "NO"
        value = f"{figure['value']:,.3g}" if figure["value"] < 100 else f"{figure['value']:,.0f}"
        table.add_row(figure["name"], value, figure["unit"], figure["bar"], ok)
    return table


def print_all(parts: Mapping[str, Callable[[T], list[Row]]], only: str | None, subject: T, *, as_json: bool) -> None:
    """Run all parts, or the part named `only`, and print their figures."""
    rows: list[Row] = []
    for name, part in parts.items():
        if only in (None, name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows += part(subject)
    print_rows(rows, as_json=as_json)


def print_rows(rows: list[Row], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows))
    else:
        Console(width=120).print(shown(rows))
