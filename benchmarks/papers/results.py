"""The figures of a paper beside those of Penstock, as a page of the documentation."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "reproduce"
_SOURCES = (
    "benchmarks/papers",
    *(f"src/penstock/{part}" for part in ("study", "engines/simulated", "control", "models", "planning")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    figure: str  # number of the figure and what it shows
    paper: str
    penstock: str
    engine: str
    command: str


Figure = Callable[[], list[ResultRow]]


def computed(part: str, figures: Mapping[str, Figure], only: Sequence[str], *, again: bool) -> list[ResultRow]:
    """Return the rows of all figures. A figure that was computed from the same sources is read from its file.

    Args:
        part: Name of the paper.
        figures: Figures by name.
        only: Figures to compute; empty for all. The others are read if they were computed before.
        again: Whether to compute figures that were computed before.
    """
    rows = []
    for name, figure in figures.items():
        file = CACHE / f"{part}-{name}-{_digest()}.json"
        if file.exists() and not (again and (not only or name in only)):
            rows += [ResultRow(**row) for row in json.loads(file.read_text())]
            print(f"{part}, figure {name}: unchanged", file=sys.stderr)
        elif not only or name in only:
            began = time.monotonic()
            print(f"{part}, figure {name} ...", file=sys.stderr, flush=True)
            own = figure()
            CACHE.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps([asdict(row) for row in own], indent=1))
            print(f"{part}, figure {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            rows += own
    return rows


def _digest() -> str:
    """Return a digest of the sources that the figures depend on."""
    files = [file for folder in _SOURCES for file in sorted((ROOT / folder).rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def page(title: str, introduction: str, rows: Sequence[ResultRow], command: str) -> str:
    """Return the page with the table of all rows."""
    lines = [f"# {title}", "", f"`{command}` writes this page; do not edit it. {introduction}", ""]
    lines += ["| figure | paper | Penstock | engine | command |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.figure} | {row.paper} | {row.penstock} | {row.engine} | `{row.command}` |" for row in rows]
    return "\n".join(lines) + "\n"
