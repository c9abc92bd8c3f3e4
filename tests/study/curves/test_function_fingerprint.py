"""The fingerprint of a function changes exactly if its code or a value that it uses changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.study.curves.function_fingerprint import function_fingerprint


def defined(source: str, name: str = "f") -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return scope[name]  # type: ignore[no-any-return]


PLAIN = "K = 2\ndef g(x):\n    return x + K\ndef f(row):\n    return g(row) if row in {'a', 'b', 'c'} else 1\n"


@pytest.mark.parametrize(
    "other", ["# a comment\n" + PLAIN, PLAIN.replace("def f", "\n\ndef f"), PLAIN + "def unused():\n    return 3\n"]
)
def test_layout_and_other_functions_do_not_count(other: str) -> None:
    assert function_fingerprint(defined(PLAIN)) == function_fingerprint(defined(other))


@pytest.mark.parametrize(("before", "after"), [("K = 2", "K = 3"), ("x + K", "x - K"), ("else 1", "else 0")])
def test_code_constants_and_called_functions_count(before: str, after: str) -> None:
    assert function_fingerprint(defined(PLAIN)) != function_fingerprint(defined(PLAIN.replace(before, after)))


def test_enclosed_values_and_defaults_count() -> None:
    def adding(n: int) -> Callable[[int], int]:
        return lambda x: x + n

    assert function_fingerprint(adding(1)) == function_fingerprint(adding(1)) != function_fingerprint(adding(2))


def test_it_is_the_same_in_another_process(tmp_path: Path) -> None:
    module = tmp_path / "own_functions.py"
    module.write_text(
        PLAIN
        + "class C:\n    def __init__(self):\n        self.n = object()\n    def __call__(self, row):\n        return f(row)\n"
    )
    code = (
        "import own_functions\n"
        "from penstock.study.curves.function_fingerprint import function_fingerprint as p\n"
        "print(p(own_functions.f), p(own_functions.C()))"
    )
    printed = {
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(printed) == 1
