"""HTML tables for notebooks: no scripts, no styles of their own, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a table with one name and one value per row.

    >>> html_table("a <run>", [("state", "running")])
    '<table><caption>a &lt;run&gt;</caption><tbody><tr><th>state</th><td>running</td></tr></tbody></table>'
    """
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


def html_grid(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with one heading per column."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
