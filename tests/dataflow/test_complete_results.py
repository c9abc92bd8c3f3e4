"""Where a result in output mode complete may go."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.plan import Plan, default_plan, validated


def complete(to: Any) -> penstock.Dataflow:
    flow = penstock.Dataflow("complete")
    words = flow.source("words", penstock.generate(str, schema="word string", rows=1))
    to(flow, words.global_state("count", lambda df: df, output_mode="complete"))
    return flow


def test_it_goes_through_stateless_operators_to_a_sink_and_no_plan_may_cut_it() -> None:
    flow = complete(lambda flow, counts: counts.stateless("top", lambda df: df).sink("out", penstock.memory()))
    plan = default_plan(flow)
    assert plan.cuts == frozenset()
    for name in ("count", "top"):
        with pytest.raises(
            penstock.PlanError, match=f"cuts after '{name}', but .* result of 'count' .* remove \"{name}\""
        ):
            validated(flow, plan.replace(cuts=frozenset({name})))
    assert isinstance(validated(flow, plan.replace(cuts=frozenset({"words"}))), Plan)


def twice(flow: penstock.Dataflow, counts: penstock.Stream) -> None:
    counts.sink("out", penstock.memory())
    counts.sink("more", penstock.memory())


def united(flow: penstock.Dataflow, counts: penstock.Stream) -> None:
    other = flow.source("other", penstock.generate(str, schema="word string", rows=1))
    flow.stateless("both", inputs=[counts, other]).sink("out", penstock.memory())


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        (twice, "2 operators read 'count'"),
        (united, "'both' also reads other streams"),
        (
            lambda flow, counts: counts.keyed("again", lambda df: df, keys=["word"]).sink("out", penstock.memory()),
            "'again' would receive every result again in each batch",
        ),
        (
            lambda flow, counts: counts.sink("out", penstock.kafka("t", bootstrap_servers="localhost:9092")),
            "the records of Kafka sink 'out' cannot be replaced",
        ),
    ],
    ids=["fan_out", "union", "state", "kafka"],
)
def test_other_ways_are_refused(to: Any, reason: str) -> None:
    with pytest.raises(penstock.DataflowError, match=f"{reason}; send its output .*or use output_mode='update'"):
        complete(to).check()
