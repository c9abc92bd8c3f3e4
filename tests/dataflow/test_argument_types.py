"""A wrong type of an argument is one sentence, where it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.api.policy_options import OptionError
from penstock.dataflow import Dataflow, DataflowError
from penstock.dataflow.errors import PlanError


def numbers(flow: Dataflow) -> Any:
    return flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=1))


def same(row: Any) -> Any:
    return row


WRONG: list[tuple[str, Callable[[Dataflow], Any]]] = [
    ("rows_per_s='fast'", lambda flow: penstock.generate(same, schema="n bigint", rows_per_s="fast")),  # type: ignore[arg-type]
    ("rows_per_s='fast'", lambda flow: penstock.replay("a.txt", rows_per_s="fast")),  # type: ignore[arg-type]
    ("rows_per_s=True", lambda flow: penstock.replay("a.txt", rows_per_s=True)),
    ("rows='x'", lambda flow: penstock.generate(same, schema="n bigint", rows="x")),  # type: ignore[arg-type]
    ("rows=2.5", lambda flow: penstock.generate(same, schema="n bigint", rows=2.5)),  # type: ignore[arg-type]
    ("schema=3", lambda flow: penstock.generate(same, schema=3, rows=1)),  # type: ignore[arg-type]
    ("schema=3", lambda flow: penstock.files("a.json", schema=3)),  # type: ignore[arg-type]
    ("fn=7", lambda flow: penstock.generate(7, schema="n bigint", rows=1)),  # type: ignore[arg-type]
    ("repeat='2'", lambda flow: penstock.backlog("a.txt", repeat="2")),  # type: ignore[arg-type]
    ("path=1", lambda flow: penstock.files(1)),  # type: ignore[arg-type]
    ("path=1", lambda flow: penstock.parquet(1)),  # type: ignore[arg-type]
    ("fn='print'", lambda flow: penstock.foreach_batch("print")),  # type: ignore[arg-type]
    ("fn=None", lambda flow: penstock.spark_source(None)),  # type: ignore[arg-type]
    ("dead_letter=1", lambda flow: penstock.kafka("a", bootstrap_servers="b", dead_letter=1)),  # type: ignore[arg-type]
    ("options", lambda flow: penstock.kafka("a", bootstrap_servers="b", options=["x"])),  # type: ignore[arg-type]
    ("selectivity='2'", lambda flow: numbers(flow).stateless("a", same, selectivity="2")),
    ("schema=5", lambda flow: numbers(flow).rows("a", same, schema=5)),
    ("columns=5", lambda flow: numbers(flow).stateless("a", same, columns=5)),
    ("columns=[5]", lambda flow: numbers(flow).stateless("a", same, columns=[5])),
    ("keys=[1]", lambda flow: numbers(flow).keyed("a", same, keys=[1])),
    ("keys=1", lambda flow: numbers(flow).keyed("a", same, keys=1)),
    ("delay=10", lambda flow: numbers(flow).watermark("n", 10)),
    ("output_mode=1", lambda flow: numbers(flow).keyed("a", same, keys=["n"], output_mode=1)),
]


@pytest.mark.parametrize(("given", "declare"), WRONG)
def test_a_declaration(given: str, declare: Callable[[Dataflow], Any]) -> None:
    with pytest.raises(DataflowError) as info:
        declare(Dataflow("wrong"))
    text = str(info.value)
    assert given in text and "; give a" in text and "\n" not in text


def test_a_missing_and_an_unknown_argument_name_the_function() -> None:
    with pytest.raises(TypeError, match=r"^generate\(\): .*'schema'"):
        penstock.generate(same, rows=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^parquet\(\): .*'mode'"):
        penstock.parquet("out", mode="overwrite")  # type: ignore[call-arg]


def test_a_plan_that_is_no_plan_and_a_dataflow_that_is_no_dataflow() -> None:
    flow = Dataflow("flow")
    numbers(flow).sink("out", penstock.memory())
    with pytest.raises(PlanError, match=r"of type dict; give a penstock\.Plan or the path"):
        penstock.run(flow, plan={"slots": 2})  # type: ignore[arg-type]
    with pytest.raises(DataflowError, match=r"flow is 'flow\.py'; it must be a Dataflow"):
        penstock.default_plan("flow.py")  # type: ignore[arg-type]


def test_a_file_with_an_unknown_suffix_needs_a_format() -> None:
    with pytest.raises(DataflowError, match=r"format of 'a\.avro' is unknown.*give format="):
        penstock.files("a.avro", schema="n bigint")
    assert penstock.files("a.avro", schema="n bigint", format="json").format == "json"
    assert penstock.files("a.out").format == "text"


def test_numbers_of_numpy_and_paths_are_accepted() -> None:
    source = penstock.replay(Path("a.txt"), rows_per_s=np.float64(2.5), repeat=np.int64(2))  # type: ignore[arg-type]
    assert (source.glob, source.rows_per_s, source.repeat) == ("a.txt", 2.5, 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"window_s": "2"}, "run() is given window_s='2', which is of type str; give a number or None."),
        ({"windows": 2.5}, "run() is given windows=2.5, which is of type float; give a whole number."),
        ({"executors": 3}, "run() is given executors=3, which is of type int; give a pair or None."),
        ({"at": 3}, "run() is given at=3, which is of type int; give a text or a path or None."),
        ({"confs": "a=b"}, "run() is given confs='a=b', which is of type str; give a dict or None."),
    ],
)
def test_options_of_a_run(options: dict[str, Any], sentence: str) -> None:
    flow = Dataflow("right")
    numbers(flow).sink("out", penstock.noop())
    with pytest.raises(OptionError) as info:
        penstock.run(flow, **options)
    assert str(info.value) == sentence


def test_executors_on_a_local_master_are_refused() -> None:
    flow = Dataflow("right")
    numbers(flow).sink("out", penstock.noop())
    with pytest.raises(OptionError, match=r"executors of 'local\[2\]' cannot be changed.*run on a cluster"):
        penstock.run(flow, master="local[2]", policy="mst", executors=(1, 3), executor_cores=1)
