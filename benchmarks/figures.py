"""The figures that a benchmark prints: a table for people, rows for machines."""

from __future__ import annotations

from typing import Any

from rich.table import Table

Row = dict[str, Any]


def row(name: str, value: float, unit: str, bar: str = "", ok: bool | None = None) -> Row:
    return {"name": name, "value": value, "unit": unit, "bar": bar, "ok": ok}


def shown(rows: list[Row]) -> Table:
    table = Table("figure", "value", "unit", "bar", "ok")
    for one in rows:
        ok = "" if one["ok"] is None else "yes" if one["ok"] else "NO"
        value = f"{one['value']:,.3g}" if one["value"] < 100 else f"{one['value']:,.0f}"
        table.add_row(one["name"], value, one["unit"], one["bar"], ok)
    return table
