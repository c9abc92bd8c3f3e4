"""The figures of a paper beside those of Penstock, as a page of the documentation."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "reproduce"
_SOURCES = (
    "benchmarks/papers",
    "benchmarks/app_costs.py",
    "benchmarks/models_curves.py",
    "benchmarks/models_queueing.py",
    *(
        f"src/penstock/{part}"
        for part in ("apps", "study", "engines/simulated", "control", "models", "planning", "measure")
    ),
)
_FIGURE = re.compile(r"--figure (\S+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    figure: str  # number of the figure and what it shows
    paper: str
    penstock: str
    engine: str
    command: str


Figure = Callable[[], list[ResultRow]]


def computed(
    part: str,
    figures: Mapping[str, Figure],
    only: Sequence[str],
    *,
    again: bool,
    published: Mapping[str, Sequence[ResultRow]],
) -> list[ResultRow]:
    """Return the rows of all figures. A figure that was computed from the same sources is read from its file.

    Args:
        part: Name of the paper.
        figures: Figures by name.
        only: Figures to compute; empty for all.
        again: Whether to compute figures that were computed before.
        published: Rows of each figure on the current page. They stay if the figure is not computed and has no file.
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
        else:
            rows += published.get(name, ())
            print(f"{part}, figure {name}: not computed, rows of the page kept", file=sys.stderr)
    return rows


def _digest() -> str:
    """Return a digest of the sources that the figures depend on."""
    files = [file for source in _SOURCES for file in source_files(ROOT / source)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def source_files(source: Path) -> list[Path]:
    """Return the given file, or all Python files of the given folder."""
    return [source] if source.is_file() else sorted(source.rglob("*.py"))


def page(title: str, introduction: str, rows: Sequence[ResultRow], command: str) -> str:
    """Return the page with the table of all rows."""
    lines = [f"# {title}", "", f"`{command}` writes this page; do not edit it. {introduction}", ""]
    lines += ["| figure | paper | Penstock | engine | command |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.figure} | {row.paper} | {row.penstock} | {row.engine} | `{row.command}` |" for row in rows]
    return "\n".join(lines) + "\n"


def published(text: str) -> dict[str, list[ResultRow]]:
    """Return the rows of a page by figure, which the command of a row names, or else the beginning of its subject."""
    figures: dict[str, list[ResultRow]] = {}
    for line in text.splitlines():
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        if len(cells) != 5 or not line.endswith("` |"):
            continue
        figure, paper, penstock, engine, command = cells
        row = ResultRow(figure=figure, paper=paper, penstock=penstock, engine=engine, command=command.strip("`"))
        named = _FIGURE.search(row.command)
        figures.setdefault(named[1] if named else figure.partition(":")[0], []).append(row)
    return figures
