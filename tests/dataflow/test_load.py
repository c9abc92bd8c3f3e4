from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.dataflow.load import LoadError, load, modules_by_value

FLOW = """
import penstock
def build(name):
    flow = penstock.Dataflow(name)
    flow.source("n", penstock.generate(lambda n: n, schema="n bigint", rows=1)).sink("out", penstock.noop())
    return flow
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "mine.py") -> str:
    Path(name).write_text(FLOW + text)
    return name


def test_by_default_the_attribute_flow() -> None:
    assert load(write('flow = build("a"); other = build("b")')).name == "a"


def test_the_only_dataflow_whatever_its_name() -> None:
    assert load(write('mine = build("a"); alias = mine')).name == "a"


def test_a_named_one_and_a_function() -> None:
    file = write('one = build("a"); two = build("b")\ndef make(name="c"): return build(name)')
    assert [load(f"{file}:{name}").name for name in ("one", "two", "make")] == ["a", "b", "c"]


def test_a_function_is_called_with_the_arguments_of_its_name() -> None:
    file = write('def make(name="c", rows=1): return build(f"{name}_{rows}")\none = build("a")')
    assert load(f"{file}:make(name='b', rows=2)").name == "b_2"
    assert load(f"{file}:make()").name == "c_1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "make(rows=x)",
            r"The arguments in 'mine.py:make\(rows=x\)' cannot be read; give names with literal values, such as",
        ),
        ("make(3)", "cannot be read; give names with literal values"),
        ("make(**{})", "cannot be read; give names with literal values"),
        ("make(row=3)", "unexpected keyword argument 'row'"),
        ("one(rows=3)", "'one' of 'mine.py' is not a function, so it takes no arguments; omit them."),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name: str, message: str) -> None:
    file = write('def make(name="c", rows=1): return build(f"{name}_{rows}")\none = build("a")')
    with pytest.raises(penstock.PenstockError, match=message):
        load(f"{file}:{name}")


def test_a_module_within_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "library" / "package_2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from package_2 import inner, empty")
    (package / "empty.py").touch()
    write('def flow(rows=1): return build(f"a_{rows}")', str(package / "inner.py"))
    monkeypatch.syspath_prepend(package.parent)
    assert [load(f"package_2:inner{arguments}").name for arguments in ("", "(rows=2)")] == ["a_1", "a_2"]
    with pytest.raises(LoadError, match="'empty' of 'package_2'"):
        load("package_2:empty")


def test_a_module_by_name() -> None:
    write('flow = build("a")', "by_name_1.py")
    assert load("by_name_1").name == "a"
    assert load("by_name_1:flow").name == "a"


def test_modules_beside_the_file_are_importable_and_are_sent_by_value(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside_1.py").write_text("def twice(n): return 2 * n")
    (tmp_path / "sub" / "package_1").mkdir()
    (tmp_path / "sub" / "package_1" / "__init__.py").touch()
    (tmp_path / "sub" / "package_1" / "inner.py").touch()
    write('import beside_1, package_1.inner\nflow = build("a")', "sub/uses.py")
    load("sub/uses.py")
    names = {module.__name__ for module in modules_by_value()}
    assert {"_penstock_flow_uses", "beside_1", "package_1", "package_1.inner"} <= names
    assert not any(name.startswith(("penstock", "pytest")) for name in names)


def test_modules_of_a_flow_are_sent_unless_they_are_installed() -> None:
    write("def fn(df): return df", "functions_1.py")
    sys.path.insert(0, str(Path.cwd()))
    try:
        functions = importlib.import_module("functions_1")
    finally:
        sys.path.remove(str(Path.cwd()))
    flow = penstock.Dataflow("a")
    rows = flow.source("rows", penstock.generate(json.dumps, schema="value string", rows=1))
    rows.stateless("f", functions.fn).rows("g", pytest.approx, schema="n bigint").sink("out", penstock.memory())
    names = {module.__name__ for module in modules_by_value(flow)}
    assert "functions_1" in names and not names & {"json", "pytest", "_pytest.python_api", "penstock"}


@pytest.mark.parametrize(
    ("text", "spec", "error"),
    [
        ("", "none.py", "There is no file 'none.py'"),
        ("", "no_such_module", "no file and no module 'no_such_module'"),
        ("", "no_such.module:flow", "no file and no module 'no_such.module'"),
        ("", ".", "is a directory"),
        ("", "mine.py", "'mine.py' has no 'flow'; declare one"),
        ('a = build("a")', "mine.py:b", "'mine.py' has no 'b'; it has the dataflow a"),
        ('a = build("a"); b = build("b")', "mine.py", "several dataflows (a, b); name one, such as mine.py:a"),
        ("flow = 5", "mine.py", "'flow' of 'mine.py' is 5; it must be a Dataflow"),
        ("def flow(rate): return build('a')", "mine.py", "needs arguments (rate)"),
        ("def flow(): return None", "mine.py", "'flow' of 'mine.py' is None"),
        ("def flow():\n    return 1 / 0", "mine.py", "line 8: return 1 / 0: ZeroDivisionError: division by zero"),
        ("\nflow = undefined()", "mine.py", "line 8: flow = undefined(): NameError"),
        ("flow = (", "mine.py", "line 7: '(' was never closed: flow = ("),
        ('flow = penstock.Dataflow("9")', "mine.py", "line 7: flow = penstock.Dataflow(\"9\"): The dataflow name '9'"),
        ("raise SystemExit(3)", "mine.py", "line 7: raise SystemExit(3): SystemExit: 3"),
        ("import no_such_thing", "mine.py", "line 7: import no_such_thing: ModuleNotFoundError"),
    ],
)
def test_one_clear_error(text: str, spec: str, error: str) -> None:
    write(text)
    with pytest.raises(LoadError, match=re.escape(error)):
        load(spec)


def test_a_module_that_fails_names_its_line() -> None:
    write("flow = undefined()", "by_name_2.py")
    with pytest.raises(LoadError, match=r"by_name_2.py', line 7: flow = undefined\(\): NameError"):
        load("by_name_2")


UNPICKLE = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(21))"


def test_functions_of_a_flow_file_work_where_the_file_is_not(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside_2.py").write_text("def twice(n): return 2 * n")
    write('import beside_2\ndef calls(n): return beside_2.twice(n)\nflow = build("a")', "sub/travels.py")
    load("sub/travels.py")
    modules = modules_by_value()
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps(sys.modules["_penstock_flow_travels"].calls)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    elsewhere = subprocess.run([sys.executable, "-c", UNPICKLE], input=pickled, capture_output=True, check=True)
    assert elsewhere.stdout == b"42\n"


def test_an_edit_within_the_same_second_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    for name in ("first", "other"):  # the same length
        file.write_text(f"{FLOW}\nflow = build({name!r})\n")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert load(str(file)).name == name


def test_only_the_statement_whose_cause_was_removed_runs_again(tmp_path: Path) -> None:
    (tmp_path / "needy_helper.py").write_text(
        "import sys\nready = sys.modules['_penstock_flow_mine'].calls\nready[1]\n"
    )
    file = write("calls = ['once']\nimport needy_helper\ncalls.append('after')\nflow = build('a')")
    errors: list[str] = []

    def remedy(error: Exception) -> bool:
        errors.append(str(error))
        sys.modules["_penstock_flow_mine"].__dict__["calls"].append("remedy")
        return True

    assert load(file, remedy).name == "a"
    assert errors == ["list index out of range"]
    assert sys.modules["_penstock_flow_mine"].__dict__["calls"] == ["once", "remedy", "after"]


def test_a_statement_that_fails_again_is_reported() -> None:
    with pytest.raises(LoadError, match=r"line 7: 1 / 0: ZeroDivisionError: division by zero"):
        load(write("1 / 0\nflow = build('a')"), lambda error: True)


def test_future_features_apply_to_all_statements() -> None:
    Path("future_1.py").write_text(
        f'"""A page."""\nfrom __future__ import annotations\n{FLOW}\n'
        "def f(n: not_defined_anywhere) -> None: ...\nflow = build('a')"
    )
    assert load("future_1.py").name == "a"
    assert sys.modules["_penstock_flow_future_1"].__doc__ == "A page."


def test_a_missing_module_is_named_with_the_line_that_imports_it(tmp_path: Path) -> None:
    (tmp_path / "helper_5.py").write_text("\nimport not_installed_anywhere\n")
    with pytest.raises(LoadError) as info:
        load(write("import helper_5\nflow = build('a')"))
    assert f"'{tmp_path / 'helper_5.py'}', line 2: import not_installed_anywhere: ModuleNotFoundError" in str(
        info.value
    )
    assert f"install it for {sys.executable}" in str(info.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file() -> None:
    file = Path(write("flow = build('a')"))
    file.chmod(0)
    with pytest.raises(LoadError, match=r"Cannot read '.*mine.py': Permission denied; check its permissions."):
        load(str(file))
