"""The wheel works in a fresh virtual environment without the repository: the demo and all examples run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
# Variables of this checkout. The archive of classes in JDK_JAVA_OPTIONS makes a JVM with other jars print warnings.
LOCAL = {"JDK_JAVA_OPTIONS", "PYTHONPATH", "SPARK_CONF_DIR", "VIRTUAL_ENV"}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin folder of a virtual environment that contains the wheel and nothing of the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    execute(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("penstock-*.whl")
    execute(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    # Most modules of the dependencies are never imported, so they are not compiled.
    options = ("--quiet", "--disable-pip-version-check", "--no-compile")
    execute(programs / "python", "-m", "pip", "install", *options, wheel, cwd=folder)
    return programs


def execute(*command: object, cwd: Path, typed: str | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in LOCAL}
    environment["JDK_JAVA_OPTIONS"] = "-Xshare:auto"  # without an archive of classes in the cache of the user
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, input=typed)
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


def test_the_demo_is_exact_and_its_policy_acts(installed: Path, tmp_path: Path) -> None:
    *_, last = execute(installed / "penstock", "demo", "--json", cwd=tmp_path).splitlines()  # a JVM may warn before
    result = json.loads(last)
    fixed, scaled = result["without"], result["with_policy"]
    assert result["differences"] == [] and result["rows"] > 0
    # Half of the first load is four times 40 rows/s. Two replicas serve at most 2 / 0.02 s = 100 rows/s.
    assert fixed["most_slots"] == 2 and fixed["most_backlog_rows"] > 100
    assert len(result["decisions"]) >= 1  # changes of the plan
    assert scaled["most_slots"] > fixed["most_slots"]  # more slots while the load is high
    assert (tmp_path / result["report"]).is_file()


def test_there_are_five_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / example.name
    copy.write_text(example.read_text())
    assert execute(installed / "python", copy, cwd=tmp_path).strip()


def test_the_example_in_readme_can_be_typed_into_a_shell(installed: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    echoed = execute(installed / "python", "-i", cwd=tmp_path, typed=code)
    (counts,) = {int(count) for count in re.findall(r"'count': (\d+)", echoed)}
    assert 1_000 <= counts <= 5_000  # 5,000 lines have 1,000 times each of five words and 5,000 times 'again'
    assert re.search(r"runs/wordcount/\S+\.html", echoed)
