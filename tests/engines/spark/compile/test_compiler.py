"""Compilation of a dataflow: errors of user functions, and replicas of their inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engines.spark.compile.compiler import Compiler
from penstock.plan import default_plan, pipelines


def misspelt(df: Any) -> Any:
    return df.selct("n")


def test_a_failing_function_is_reported_with_its_line() -> None:
    flow = penstock.Dataflow("misspelt")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=1))
    numbers.stateless("few", misspelt).sink("out", penstock.noop())
    (pipeline,) = pipelines(flow, default_plan(flow))
    frame = SimpleNamespace(schema=[], columns=["n"])
    line = misspelt.__code__.co_firstlineno + 1
    with pytest.raises(
        penstock.DataflowError,
        match=rf"^the function of 'few' fails: '.*test_compiler\.py', line {line}: .*: AttributeError: .*'selct'",
    ):
        Compiler(None, flow, pipeline, lambda *_: (frame, None), None).compile()


def test_all_inputs_together_determine_the_replicas_of_an_operator() -> None:
    """A repartition after a function that unites its inputs would be too late, because its work is already done."""
    flow = penstock.Dataflow("several")
    sources = [flow.source(name, penstock.generate(int, schema="n bigint", rows=1)) for name in ("a", "b", "c")]
    flow.stateless("both", lambda a, b, c: a, inputs=sources).sink("out", penstock.noop())
    read: dict[Any, int] = {}

    def reading(origin: Any, replicas: int, with_watermark: bool, shares: tuple[float, ...]) -> Any:
        read[origin] = replicas
        return SimpleNamespace(schema=[], columns=["n"]), None

    for replicas, expected in [(5, [2, 2, 1]), (3, [1, 1, 1]), (4, [2, 1, 1]), (2, [1, 1, 1])]:
        (pipeline,) = pipelines(flow, default_plan(flow, replicas={"both": replicas}))
        with pytest.raises(penstock.DataflowError, match="not a DataFrame"):  # the inputs can be checked without Spark
            Compiler(None, flow, pipeline, reading, None).compile()
        assert list(read.values()) == expected
