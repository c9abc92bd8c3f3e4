"""The Python examples in README and the documentation are valid. Declarations are executed without Spark."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.operators
from examples.barrier import SumBarrier
from examples.barrier import flow as barrier_flow

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
PAGES = {
    page: blocks
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if (blocks := BLOCK.findall(page.read_text()))
}


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def public_calls(code: str) -> list[tuple[str, ast.Call]]:
    """Return the calls of functions of the package, by their dotted names."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [(name, call) for call in calls if (name := ast.unparse(call.func)).startswith("penstock.")]


def bind(function: Any, call: ast.Call) -> None:
    """Raise TypeError if the function does not take the arguments of a call."""
    arguments = [None for _ in call.args]
    inspect.signature(function).bind(*arguments, **{keyword.arg: None for keyword in call.keywords if keyword.arg})


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_calls_have_arguments_that_exist(page: Path) -> None:
    calls = [call for block in PAGES[page] for call in public_calls(block)]
    for name, call in calls:
        function: Any = penstock
        for part in name.split(".")[1:]:
            function = getattr(function, part)
        bind(function, call)


def test_the_pages_have_calls_to_check() -> None:
    assert {name for blocks in PAGES.values() for block in blocks for name, _ in public_calls(block)} >= {
        "penstock.run",
        "penstock.watch",
        "penstock.profile",
    }


def test_an_argument_that_does_not_exist_is_found() -> None:
    ((_, call),) = public_calls("penstock.memory(folder='x')")
    with pytest.raises(TypeError, match="folder"):
        bind(penstock.memory, call)


def declarations() -> dict[str, Any]:
    """Return the names that the guides use as given."""
    flow = penstock.Dataflow("guide")
    numbers = penstock.generate(lambda n: {"k": n % 3, "x": 1.0}, schema="k long, x double", rows_per_s=10)
    clicks = flow.source("clicks", penstock.generate(lambda n: {"user": "a"}, schema="user string", rows_per_s=10))
    readings = flow.source("readings", numbers)
    counts = readings.keyed("count", lambda df: df.groupBy("k").count(), keys=["k"])
    views = flow.source("views", penstock.generate(lambda n: {"ad_id": n}, schema="ad_id long", rows_per_s=10))
    names = {"flow": flow, "clicks": clicks, "readings": readings, "counts": counts, "views": views}
    return names | {"penstock": penstock, "SumBarrier": SumBarrier}


@pytest.mark.parametrize(
    "page", ["how-to/threads.md", "how-to/operators.md", "how-to/own-dataflow.md", "concepts/exactly-once.md"]
)
def test_declarations_can_be_executed(page: str) -> None:
    names = declarations()
    if page == "how-to/threads.md":
        names["requests"] = pytest.importorskip("requests")
    before = len(names["flow"].operators)
    for block in PAGES[ROOT / "docs" / page]:
        exec(block, names)
    assert len(names["flow"].operators) > before


def test_the_guide_of_operators_states_what_the_runner_returns() -> None:
    (block,) = (block for block in PAGES[ROOT / "docs" / "how-to" / "operators.md"] if "runner.feed" in block)
    call, stated = next(line.split("# one batch: ") for line in block.splitlines() if "# one batch: " in line)
    names = declarations()
    exec(block, names)
    runner = penstock.OperatorRunner(SumBarrier(), rows=1)
    assert eval(
        call.strip().removeprefix("runner."), {name: getattr(runner, name) for name in ("feed",)}
    ) == ast.literal_eval(stated)


def test_the_example_of_operators_is_a_valid_dataflow() -> None:
    plan = penstock.default_plan(barrier_flow, slots=2)
    assert plan.dataflow == barrier_flow.name and set(plan.replicas) <= {node.name for node in barrier_flow.operators}
