"""The pages of results: computing one figure keeps the rows of the others, and changed sources compute figures again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.papers import results
from benchmarks.papers.results import ROOT, Figure, ResultRow, computed, page, published, source_files

PAGES = sorted((ROOT / "docs" / "papers").glob("*-results.md"))


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "CACHE", tmp_path / "cache")


def row(figure: str, penstock: str) -> ResultRow:
    command = f"python -m benchmarks.papers one --figure {figure}"
    return ResultRow(figure=f"{figure}: subject", paper="-", penstock=penstock, engine="models", command=command)


def figures(penstock: str) -> dict[str, Figure]:
    return {"6": lambda: [row("6", penstock)], "table-2": lambda: [row("table-2", penstock), row("table-2", penstock)]}


def test_one_figure_keeps_the_rows_of_figures_that_were_computed_from_other_sources() -> None:
    text = page("One", "About it.", [row("6", "old"), row("table-2", "old"), row("table-2", "old")], "make")
    rows = computed("one", figures("new"), ["6"], again=False, published=published(text))
    assert rows == [row("6", "new"), row("table-2", "old"), row("table-2", "old")]


def test_figures_from_the_same_sources_are_read_instead_of_computed_or_kept() -> None:
    everything = [row("6", "first"), row("table-2", "first"), row("table-2", "first")]
    assert computed("one", figures("first"), [], again=False, published={}) == everything
    page_rows = {"table-2": [row("table-2", "of the page")]}
    assert computed("one", figures("second"), ["6"], again=False, published=page_rows) == everything
    assert computed("one", figures("third"), ["6"], again=True, published=page_rows) == [
        row("6", "third"),
        *everything[1:],
    ]


def test_a_row_with_a_command_of_its_own_belongs_to_the_figure_that_its_subject_names() -> None:
    own = ResultRow(figure="6.3: time", paper="200 min", penstock="-", engine="Spark", command="penstock profile x")
    assert published(page("One", "About it.", [row("6", "a"), own], "make")) == {"6": [row("6", "a")], "6.3": [own]}


@pytest.mark.parametrize("file", PAGES, ids=[file.stem for file in PAGES])
def test_every_row_of_a_published_page_is_kept(file: Path) -> None:
    text = file.read_text()
    rows = [row for own in published(text).values() for row in own]
    title, introduction, command = "any", "any", "any"
    table = text[text.index("| figure |") :]
    assert sorted(page(title, introduction, rows, command).splitlines()[4:]) == sorted(table.splitlines())


def test_the_digest_covers_all_that_the_figures_import_from_benchmarks_apps_and_measure() -> None:
    covered = {file for source in results._SOURCES for file in source_files(ROOT / source)}
    packages = [ROOT / "benchmarks", ROOT / "src/penstock/apps", ROOT / "src/penstock/measure"]
    imported = {file for source in covered if source.is_relative_to(packages[0]) for file in _imports(source)}
    needed = {file for file in imported if any(file.is_relative_to(package) for package in packages)}
    assert needed >= {packages[0] / "app_costs.py", packages[1] / "logos.py", packages[2] / "window.py"}
    assert needed <= covered


def _imports(file: Path) -> set[Path]:
    """Return the files of this project that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    roots = (ROOT, ROOT / "src")
    paths = {root.joinpath(*name.split(".")).with_suffix(".py") for name in names for root in roots}
    return {path for path in paths if path.is_file()}
