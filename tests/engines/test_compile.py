"""A function of the user's that fails while it builds its DataFrame."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.compile import Compiler
from penstock.plan import default_plan, pipelines


def misspelt(df: Any) -> Any:
    return df.selct("n")


def test_a_function_that_fails_is_told_with_its_line() -> None:
    flow = ps.Dataflow("misspelt")
    numbers = flow.source("numbers", ps.generate(int, schema="n bigint", rows=1))
    numbers.stateless("few", misspelt).sink("out", ps.noop())
    (pipeline,) = pipelines(flow, default_plan(flow))
    frame = SimpleNamespace(schema=[], columns=["n"])
    line = misspelt.__code__.co_firstlineno + 1
    with pytest.raises(
        ps.DataflowError,
        match=rf"^the function of 'few' fails: '.*test_compile\.py', line {line}: .*: AttributeError: .*'selct'",
    ):
        Compiler(None, flow, pipeline, lambda *_: (frame, None), None).compile()
