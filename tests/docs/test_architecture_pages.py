"""Every file or folder that the architecture pages name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "architecture").glob("*.md"))
PACKAGES = ROOT / "src" / "penstock"
# A path in backticks: it contains a slash or ends in .py, and consists of names only.
PATH = re.compile(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?|(?:[\w-]+/)*[\w-]+\.py)`")


def exists(path: str) -> bool:
    return any((base / path).exists() for base in (ROOT, PACKAGES, PACKAGES / "engines" / "spark"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_paths_exist(page: Path) -> None:
    missing = [path for path in PATH.findall(page.read_text()) if not exists(path)]
    assert missing == []


def test_the_paths_of_rows_and_decisions_are_lists_of_files() -> None:
    for name in ("path-of-a-row", "path-of-a-decision"):
        page = (ROOT / "docs" / "architecture" / f"{name}.md").read_text()
        steps = re.findall(r"^\d+\. `([\w/.]+\.py)`", page, re.M)
        (stated,) = re.findall(r"passes through (\d+) files", page)
        assert len(steps) == len(set(steps)) == int(stated)
