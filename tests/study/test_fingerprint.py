"""Fingerprints: equality of programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.dataflow.load import load
from penstock.study.mst.fingerprint import fingerprint

FingerprintOf = Callable[..., str]
FLOW = """
import penstock
import beside_the_flow as beside

def wait(row):
    return beside.wait(row, 1)

flow = penstock.Dataflow("waiting")
flow.source("rows", penstock.generate(int, schema="n bigint", rows=9)).rows("wait", wait, schema="n bigint").sink("out", penstock.noop())
"""
BESIDE = """
def wait(row, ms):
    return row
"""


@pytest.fixture
def fingerprint_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FingerprintOf]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    flow, beside = tmp_path / "waiting_flow.py", tmp_path / "beside_the_flow.py"

    def fingerprint_of_texts(text: str = FLOW, text_beside: str = BESIDE) -> str:
        flow.write_text(text)
        beside.write_text(text_beside)
        return fingerprint(load(str(flow)))

    yield fingerprint_of_texts
    sys.modules.pop("beside_the_flow")
    sys.modules.pop("_penstock_flow_waiting_flow")


def test_comments_docstrings_and_blanks_do_not_count(fingerprint_of: FingerprintOf) -> None:
    documented = FLOW.replace("(row):", '(row):  # slowly\n    """Waits."""\n\n').replace("1)", "1,)")
    documented = '"""What waits."""\n' + documented
    assert documented != FLOW and fingerprint_of(documented) == fingerprint_of() == fingerprint_of(
        FLOW, "# a comment" + BESIDE
    )


def test_code_counts_also_that_of_modules_beside_it(fingerprint_of: FingerprintOf) -> None:
    slower = FLOW.replace("1)", "5)")
    doubled = BESIDE.replace("return row", "return row | row")
    assert len({fingerprint_of(), fingerprint_of(slower), fingerprint_of(FLOW, doubled)}) == 3


def test_a_file_that_is_not_imported_does_not_count(fingerprint_of: FingerprintOf, tmp_path: Path) -> None:
    before = fingerprint_of()
    (tmp_path / "notes.py").write_text("x = 1")
    assert fingerprint_of() == before
