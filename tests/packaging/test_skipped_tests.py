"""`make test` ends with the list of skipped tests, which a tool reads from the reports of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "skipped_tests.py"

TESTS = """
import pytest

def test_that_runs(): ...

@pytest.mark.xfail(reason="a known bug")
def test_that_fails(): assert False

@pytest.mark.skip(reason="no broker")
def test_with_a_mark(): ...

@pytest.mark.parametrize("n", [1, 2])
def test_with_parameters(n): pytest.skip("no Java")

@pytest.fixture
def browser(): pytest.skip("no Chromium")

def test_with_a_fixture(browser): ...
"""
WHOLE_MODULE = "import pytest; pytest.skip('no cluster', allow_module_level=True)"


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_skipped_tests_are_listed_with_their_reasons(tmp_path: Path) -> None:
    (tmp_path / "test_parts.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text(WHOLE_MODULE)
    (tmp_path / "test_others.py").write_text("def test_that_runs_too(): ...")
    pytest = ["-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    run(*pytest, "--junitxml=reports/one.xml", "test_parts.py", "test_module.py", cwd=tmp_path)
    run(*pytest, "--junitxml=reports/two.xml", "test_others.py", cwd=tmp_path)
    assert run(TOOL, "reports", cwd=tmp_path).splitlines() == [
        "reports contains the results of 8 tests; 5 were skipped.",
        "  1 x test_module: no cluster",
        "  1 x test_parts.test_with_a_fixture: no Chromium",
        "  1 x test_parts.test_with_a_mark: no broker",
        "  2 x test_parts.test_with_parameters: no Java",
    ]
