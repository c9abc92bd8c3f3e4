"""Two groups never share a stage, and an operator without a group runs where its stage runs."""

from __future__ import annotations

import pytest
from pyspark.resource import ExecutorResourceRequests, ResourceProfile, ResourceProfileBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark.compile.compiler import Compiled, Compiler
from penstock.engines.spark.compile.group_stages import GroupStages
from penstock.plan import ExecutorGroup, default_plan, pipelines, validated


def flow() -> Dataflow:
    declared = penstock.Dataflow("f")
    first = declared.source("s", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=1))
    second = first.rows("a", lambda row: row, schema="n bigint").rows("b", lambda row: row, schema="n bigint")
    second.keyed("k", lambda df: df.groupBy("n").count(), keys=["n"]).sink("out", penstock.noop())
    return declared


def conflicts(groups: dict[str, str], replicas: int, moved: frozenset[str] = frozenset()) -> dict[str, list[str]]:
    """Return the inputs that each operator needs in another stage."""
    declared = flow()
    # Only row functions are in groups, so no resource profile is applied and no DataFrame is needed.
    stages = GroupStages(groups, dict.fromkeys("abk", replicas) | {"out": replicas}, None)
    conflicting = {}
    for operator in declared.operators:
        conflicting[operator.name] = stages.conflicting_inputs(operator, is_moved=operator.name in moved)
        if operator.name in groups and operator.kind.has_state:
            continue
        stages.add(operator, None, is_moved=operator.name in moved)  # type: ignore[arg-type]
    return {name: inputs for name, inputs in conflicting.items() if inputs}


def test_operators_of_different_groups_in_one_stage_are_separated() -> None:
    assert conflicts({"a": "x", "b": "y"}, replicas=2) == {"b": ["a"]}
    assert conflicts({"a": "x", "b": "x"}, replicas=2) == {}
    assert conflicts({"a": "x"}, replicas=2) == {}


def test_rows_that_are_shuffled_anyway_are_not_shuffled_twice() -> None:
    assert conflicts({"a": "x", "b": "y"}, replicas=2, moved=frozenset({"b"})) == {}
    assert conflicts({"b": "x", "k": "y"}, replicas=2) == {}


def test_spark_does_not_shuffle_to_a_single_replica() -> None:
    assert conflicts({"b": "x", "k": "y"}, replicas=1) == {"k": ["b"]}


def test_an_operator_without_a_group_passes_the_group_of_its_stage_on() -> None:
    assert conflicts({"a": "x", "k": "y"}, replicas=1) == {"k": ["b"]}


def counted_twice(spark: SparkSession, groups: dict[str, str]) -> Compiled:
    """Compile two aggregates in one query, in these groups."""
    rows = spark.readStream.format("rate").name("rows").load().withWatermark("timestamp", "1 second")
    declared = penstock.Dataflow("twice")
    source = declared.source("s", penstock.generate(lambda n: n, schema="timestamp timestamp, value bigint", rows=1))
    kept = source.stateless("kept", lambda df: df.where("value > 1"))
    counts = kept.keyed(
        "counts",
        lambda df: df.groupBy(F.window("timestamp", "1 second"), "value").count(),
        keys=["timestamp", "value"],
        output_mode="append",
    )
    totals = counts.keyed(
        "totals", lambda df: df.groupBy("window").agg(F.sum("count")), keys=["window"], output_mode="append"
    )
    totals.sink("out", penstock.noop())
    plan = default_plan(declared, slots=9).replace(cuts=frozenset())
    members = {name: tuple(op for op, group in groups.items() if group == name) for name in groups.values()}
    plan = plan.replace(groups={name: ExecutorGroup(operators=ops, slots=1) for name, ops in members.items()})
    (pipeline,) = pipelines(declared, validated(declared, plan))
    profiles: dict[str, ResourceProfile] = {
        name: ResourceProfileBuilder().require(ExecutorResourceRequests().cores(1)).build for name in members
    }

    def read(*_: object) -> tuple[DataFrame, None]:
        return rows, None

    return Compiler(spark, declared, pipeline, read, 100, profile=profiles.__getitem__).compile()


@pytest.mark.spark
def test_groups_change_neither_event_time_nor_the_owners_of_states(spark: SparkSession) -> None:
    plain = counted_twice(spark, {})
    grouped = counted_twice(spark, {"kept": "x", "counts": "y", "totals": "z"})
    assert plain.state_owners == grouped.state_owners == ("totals", "counts")
    assert plain.df.schema == grouped.df.schema
    assert plain.event_time is None and grouped.event_time is None  # the output of a sink has none
    assert plain.around_state.keys() == grouped.around_state.keys()
    for name, df in plain.around_state.items():
        assert df.schema.json() == grouped.around_state[name].schema.json()  # with the marks of event time
