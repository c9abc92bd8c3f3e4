"""The fingerprint of a function changes exactly if its code or a value that it uses changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow import Dataflow, Operator
from penstock.dataflow.sources import generate
from penstock.study.curves.function_fingerprint import function_fingerprint, input_fingerprint, operator_fingerprint


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


def printed(folder: Path, files: dict[str, str], call: str = "f") -> str:
    """Return the fingerprint of a function in files, computed in a process of its own."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    code = (
        "import flow\n"
        "from penstock.study.curves.function_fingerprint import function_fingerprint\n"
        f"print(function_fingerprint(flow.{call}))"
    )
    words = [sys.executable, "-B", "-c", code]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


HELPERS = "RATE = 2\ndef g(x):\n    return x * RATE\ndef unused(x):\n    return x\n"


@pytest.mark.parametrize(
    ("flow", "helpers"),
    [
        ("import helpers\ndef f(row):\n    return helpers.g(row)\n", "helpers.py"),
        ("import own.helpers\ndef f(row):\n    return own.helpers.g(row)\n", "own/helpers.py"),
        ("from own import helpers as h\ndef f(row):\n    return h.g(row)\n", "own/helpers.py"),
        ("def f(row):\n    from helpers import g\n    return g(row)\n", "helpers.py"),
        ("def f(row):\n    from own import helpers\n    return helpers.g(row)\n", "own/helpers.py"),
        ("import helpers\nTABLE = {'a': [helpers.g]}\ndef f(row):\n    return TABLE['a'][0](row)\n", "helpers.py"),
        ("import functools, helpers\nf = functools.partial(map, helpers.g)\n", "helpers.py"),
    ],
)
def test_functions_in_modules_of_the_user_count(flow: str, helpers: str, tmp_path: Path) -> None:
    first = printed(tmp_path / "a", {"flow.py": flow, helpers: HELPERS})
    changed = printed(tmp_path / "b", {"flow.py": flow, helpers: HELPERS.replace("x * RATE", "x + RATE")})
    constant = printed(tmp_path / "c", {"flow.py": flow, helpers: HELPERS.replace("RATE = 2", "RATE = 3")})
    other = printed(tmp_path / "d", {"flow.py": flow, helpers: HELPERS.replace("return x\n", "return -x\n")})
    assert len({first, changed, constant}) == 3 and other == first


OBJECT = """
import array
class Base:
    FACTOR = 2
    def scale(self, x):
        return self.FACTOR * x
class Model(Base):
    __slots__ = ("weights",)
    def __init__(self):
        self.weights = array.array("d", range(5_000))
    @staticmethod
    def shift(x):
        return x + 1
    @property
    def size(self):
        return 10
    def call(self, row):
        return self.scale(row)
f = Model().call
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [("FACTOR = 2", "FACTOR = 3"), ("x + 1", "x + 2"), ("return 10", "return 11"), ("5_000", "5_001")],
)
def test_the_state_and_the_class_of_an_object_count(before: str, after: str, tmp_path: Path) -> None:
    first = printed(tmp_path / "a", {"flow.py": OBJECT})
    assert first == printed(tmp_path / "b", {"flow.py": "# a comment\n" + OBJECT})
    assert first != printed(tmp_path / "c", {"flow.py": OBJECT.replace(before, after)})


def operator(**options: Any) -> Operator:
    flow = Dataflow("shop")
    numbers = flow.source("numbers", generate(lambda n: n, schema="n bigint", rows_per_s=1.0))
    numbers.rows("lookup", options.pop("fn", str), options.pop("schema", "n bigint"), **options)
    return flow["lookup"]


BASE: dict[str, Any] = {"threads": 4, "timeout_s": 1.0}


@pytest.mark.parametrize(
    "other",
    [
        {"schema": "n int"},
        {"timeout_s": 2.0},
        {"retries": 1},
        {"ordered": False},
        {"ordered": "key", "keys": ["n"]},
        {"client": dict},
        {"client": lambda: {"a": 1}},
        {"dead_letters": True},
    ],
)
def test_the_declaration_of_an_operator_counts(other: dict[str, Any]) -> None:
    assert operator_fingerprint(operator(**BASE)) != operator_fingerprint(operator(**BASE | other))


def test_the_number_of_threads_does_not_count() -> None:
    """A study measures all numbers of threads. A client counts by its code."""
    assert operator_fingerprint(operator(**BASE)) == operator_fingerprint(operator(**BASE | {"threads": 8}))
    with_clients = [operator(**BASE, client=defined(f"def f():\n    return {n}\n")) for n in (1, 1, 2)]
    first, same, other = map(operator_fingerprint, with_clients)
    assert first == same != other


def chain(
    *,
    start: int = 0,
    rows: int | None = None,
    rows_per_s: float = 1.0,
    cleaned: str = "def f(row):\n    return row\n",
    cleaning: dict[str, Any] | None = None,
    looked_up: str = "def f(row):\n    return row\n",
) -> str:
    flow = Dataflow("shop")
    source = generate(lambda n: n + start, schema="n bigint", rows=rows, rows_per_s=rows_per_s)
    clean = flow.source("numbers", source).rows("clean", defined(cleaned), "n bigint", **cleaning or {"threads": 1})
    clean.rows("other", str, "n bigint")
    clean.rows("lookup", defined(looked_up), "n bigint").stateless("after", lambda df: df)
    return input_fingerprint(flow, "lookup")


@pytest.mark.parametrize(
    "other",
    [
        {"start": 1},
        {"rows": 10},
        {"cleaned": "def f(row):\n    return {'n': 1}\n"},
        {"cleaning": {"threads": 1, "dead_letters": True}},
    ],
)
def test_sources_and_operators_before_it_count_for_the_input(other: dict[str, Any]) -> None:
    assert chain() != chain(**other)


@pytest.mark.parametrize(
    "other", [{}, {"rows_per_s": 5.0}, {"cleaning": {"threads": 8}}, {"looked_up": "def f(row):\n    return None\n"}]
)
def test_rates_threads_and_the_operator_itself_do_not_count_for_the_input(other: dict[str, Any]) -> None:
    assert chain() == chain(**other)
