"""The reference contains every public name, and the list of guides in README every guide."""

from __future__ import annotations

import re
from pathlib import Path

import penstock

ROOT = Path(__file__).parents[2]


def test_the_reference_contains_every_public_name() -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    documented = set(re.findall(r"auto(?:function|class|exception):: (?:penstock\.)?(\w+)", text))
    assert set(penstock.__all__) - documented == set()


def test_readme_links_every_guide() -> None:
    readme = (ROOT / "README.md").read_text()
    guides = [page.name for page in (ROOT / "docs" / "how-to").glob("*.md")]
    assert [guide for guide in guides if f"docs/how-to/{guide}" not in readme] == []
