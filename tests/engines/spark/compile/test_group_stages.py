"""Two groups never share a stage, and an operator without a group runs where its stage runs."""

from __future__ import annotations

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark.compile.group_stages import GroupStages


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
    found = {}
    for operator in declared.operators:
        found[operator.name] = stages.conflicting_inputs(operator, is_moved=operator.name in moved)
        if operator.name in groups and operator.kind.has_state:
            continue
        stages.add(operator, None, is_moved=operator.name in moved)  # type: ignore[arg-type]
    return {name: inputs for name, inputs in found.items() if inputs}


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
