"""Every kind of source and sink passes one suite: the declaration is a value, a dataflow accepts it, and it can be sent
to other processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import get_args

import pytest
from pyspark import cloudpickle

import penstock
from penstock.dataflow import DataflowError, Kind
from penstock.dataflow.sinks import Noop, Sink
from penstock.dataflow.sources import Source, SparkSource


def first_column(n: int) -> int:
    return n


def stream_of(spark: object) -> object:
    return spark


def write(df: object, key: str) -> None: ...


SOURCES: dict[str, Callable[[], Source]] = {
    "replay": lambda: penstock.replay("in/*.csv", rows_per_s=5, schema="n bigint"),
    "backlog": lambda: penstock.backlog("in/*.json", schema="n bigint"),
    "files": lambda: penstock.files("in/*.parquet", schema="n bigint"),
    "generate": lambda: penstock.generate(first_column, schema="n bigint", rows=3),
    "vectorised": lambda: penstock.generate(first_column, schema="n bigint", rows=3, vectorised=True),
    "kafka": lambda: penstock.kafka("in", bootstrap_servers="localhost:1", format="json", schema="n bigint"),
    "spark_source": lambda: penstock.spark_source(stream_of),
}
SINKS: dict[str, Callable[[], Sink]] = {
    "parquet": lambda: penstock.parquet("out"),
    "memory": penstock.memory,
    "noop": penstock.noop,
    "foreach_batch": lambda: penstock.foreach_batch(write),
    "kafka": lambda: penstock.kafka("out", bootstrap_servers="localhost:1", format="json"),
}
KINDS = [pytest.param(make, id=f"source-{name}") for name, make in SOURCES.items()] + [
    pytest.param(make, id=f"sink-{name}") for name, make in SINKS.items()
]


def test_every_kind_is_in_the_suite() -> None:
    assert {type(make()) for make in SOURCES.values()} == set(get_args(Source))
    assert {type(make()) for make in SINKS.values()} == set(get_args(Sink))


@pytest.mark.parametrize("make", KINDS)
def test_a_declaration_is_a_value(make: Callable[[], Source | Sink]) -> None:
    declared = make()
    assert declared == make() and hash(declared) == hash(make())
    for field in dataclasses.fields(declared):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(declared, field.name, None)


@pytest.mark.parametrize("make", KINDS)
def test_a_declaration_can_be_sent_to_another_process(make: Callable[[], Source | Sink]) -> None:
    assert cloudpickle.loads(cloudpickle.dumps(make())) == make()


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_a_dataflow_accepts_the_source_and_knows_its_columns(make: Callable[[], Source]) -> None:
    flow = penstock.Dataflow("f")
    flow.source("in", make()).sink("out", penstock.noop())
    flow.check()
    operator = flow["in"]
    assert operator.kind is Kind.SOURCE and operator.source == make()
    assert operator.columns == (None if isinstance(operator.source, SparkSource) else ("n",))
    assert penstock.default_plan(flow).replicas == {"out": 2}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_a_source_is_not_a_sink(make: Callable[[], Source]) -> None:
    flow = penstock.Dataflow("f")
    stream = flow.source("in", make())
    if not isinstance(make(), Sink):
        with pytest.raises(DataflowError, match="Sink 'out' is .*, which is not a sink; give it penstock.parquet"):
            stream.sink("out", make())  # type: ignore[arg-type]


@pytest.mark.parametrize("make", SINKS.values(), ids=SINKS)
def test_a_dataflow_accepts_the_sink_and_can_leave_it_out(make: Callable[[], Sink]) -> None:
    flow = penstock.Dataflow("f")
    flow.source("in", SOURCES["generate"]()).sink("out", make())
    flow.check()
    assert flow["out"].kind is Kind.SINK and flow["out"].sink == make()
    assert flow.without_output()["out"].sink == Noop() and flow["out"].sink == make()


@pytest.mark.parametrize("make", SINKS.values(), ids=SINKS)
def test_a_sink_is_not_a_source(make: Callable[[], Sink]) -> None:
    if not isinstance(make(), Source):
        with pytest.raises(DataflowError, match="Source 'in' is .*, which is not a source; give it penstock.replay"):
            penstock.Dataflow("f").source("in", make())  # type: ignore[arg-type]
