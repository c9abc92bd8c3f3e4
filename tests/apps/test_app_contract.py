"""Every app passes one suite: its dataflow is valid, its generator is a function of the row number, and its oracle is
deterministic and notices missing output."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pyspark import cloudpickle

import penstock
from penstock.dataflow.sinks import Memory, Noop
from penstock.dataflow.sources import Generate
from penstock.plan import pipelines

ROWS = {  # enough for a result of the oracle
    "wordcount": 50,
    "finance": 400,
    "netmon": 1_000,
    "joker.waiting": 50,
    "logos": 12,
    "patterns": 400,
    "joker.sum_barrier": 2_000,
    **{f"model_driven.{name}": 20 for name in ("linear", "diamond", "star", "traffic", "finance", "grid")},
    "mst.data_clean": 50,
    "mst.decision_tree": 60,
    "mst.grep": 50,
    "mst.page_view": 50,
    "mst.rolling_count": 50,
    "mst.rolling_sort": 50,
    "mst.sol": 50,
    "mst.unique_visitor": 50,
    "mst.vertical_tree": 120,
    "stepwise.diamond": 10,
    "stepwise.linear": 10,
    "stepwise.star": 10,
    "stepwise.twitter_sentiment": 400,
    "stepwise.waiting_word_count": 50,
    "stepwise.word_count": 50,
    **{f"nexmark.q{number}": 30_000 for number in (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12)},
}
NEEDED = {"logos": "cv2", "mst.decision_tree": "river"}


@pytest.fixture(params=ROWS)
def app(request: pytest.FixtureRequest) -> ModuleType:
    if request.param in NEEDED:
        pytest.importorskip(NEEDED[request.param])
    return import_module(f"penstock.apps.{request.param}")


def rows_of(app: ModuleType) -> int:
    return ROWS[app.__name__.removeprefix("penstock.apps.")]


def generators(flow: penstock.Dataflow) -> list[Generate]:
    return [operator.source for operator in flow.operators if isinstance(operator.source, Generate)]


def rows_at(source: Generate, numbers: Iterable[int]) -> list[tuple[Any, ...]]:
    """Return the rows of a vectorised generator."""
    return list(zip(*(column.tolist() for column in source.fn(np.array(list(numbers))).values()), strict=True))


def test_every_app_is_in_the_suite() -> None:
    folder = Path(penstock.__file__).parent / "apps"
    names = {
        ".".join(file.relative_to(folder).with_suffix("").parts)
        for file in folder.rglob("*.py")
        if "\ndef oracle(" in file.read_text()
    }
    assert names == set(ROWS)


def test_an_app_has_the_four_functions(app: ModuleType) -> None:
    assert {"rows", "rows_per_s", "output"} <= inspect.signature(app.flow).parameters.keys()
    assert list(inspect.signature(app.oracle).parameters)[:1] == ["rows"]
    assert list(inspect.signature(app.actual).parameters) == ["output"]
    assert list(inspect.signature(app.check).parameters)[:2] == ["output", "rows"]


def test_the_dataflow_is_valid_and_is_called_like_the_app(app: ModuleType) -> None:
    flow = app.flow(rows=rows_of(app))
    flow.check()
    assert flow.name == app.__name__.rpartition(".")[2]
    assert pipelines(flow, penstock.default_plan(flow, slots=3))
    assert all(operator.columns is not None for operator in flow.operators if operator.kind != "sink")


def test_finite_output_is_kept_and_endless_output_is_not(app: ModuleType) -> None:
    assert isinstance(app.flow(rows=rows_of(app))["out"].sink, Memory)
    endless = app.flow()
    assert isinstance(endless["out"].sink, Noop) and all(source.rows is None for source in generators(endless))
    assert isinstance(app.flow(output=penstock.memory())["out"].sink, Memory)


def test_a_generated_row_depends_only_on_its_number(app: ModuleType) -> None:
    count = rows_of(app)
    sources = generators(app.flow(rows=count))
    assert sources and all(source.rows is not None and 0 < source.rows <= count for source in sources)
    for source in sources:
        copy = cloudpickle.loads(cloudpickle.dumps(source.fn))
        if source.vectorised:
            assert rows_at(source, range(10)) == [
                row for n in range(10) for row in rows_at(replace(source, fn=copy), [n])
            ]
        else:
            forwards = [source.fn(n) for n in range(10)]
            assert forwards == [copy(n) for n in reversed(range(10))][::-1]


def test_the_oracle_is_deterministic_and_has_a_result(app: ModuleType) -> None:
    expected = app.oracle(rows_of(app))
    assert expected and expected == app.oracle(rows_of(app))


def test_missing_output_is_reported(app: ModuleType) -> None:
    differences = app.check([], rows_of(app))
    assert differences and all("expected" in sentence and "got 0" in sentence for sentence in differences)
    assert not app.actual([])
