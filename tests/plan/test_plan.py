"""Plans: the default plan, validation, required cuts, and differences."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.apps import finance, netmon, wordcount
from penstock.dataflow import Dataflow, PlanError
from penstock.plan import (
    ExecutorGroup,
    Plan,
    check_successor,
    default_plan,
    diff,
    pipelines,
    recut,
    required_cuts,
    rescaled,
    validated,
    with_permanent_cuts,
    with_remaining_threads,
)


def same(df: object) -> object:
    return df


def counting(name: str = "f") -> Dataflow:
    flow = penstock.Dataflow(name)
    flow.source("s", penstock.generate(same, schema="v string", rows=1)).stateless("map", same).keyed(
        "count", same, keys=["k"]
    ).sink("out", penstock.noop())
    return flow


def test_the_default_plan_has_as_few_queries_as_the_graph_allows() -> None:
    assert [len(pipelines(flow, default_plan(flow))) for flow in (wordcount.flow(), netmon.flow())] == [1, 1]
    flow = finance.flow()
    assert [pipeline.name for pipeline in pipelines(flow, default_plan(flow))] == ["vwap", "out"]


def test_the_reasons_of_required_cuts() -> None:
    flow = penstock.Dataflow("f")
    stream = flow.source("s", penstock.generate(same, schema="k string", rows=1)).stateless("map", same)
    stream.keyed("one", same, keys=["k"]).keyed("two", same, keys=["k"]).sink("a", penstock.noop())
    stream.stateless("thin", same).global_state("top", same).stateless("shout", same).sink("b", penstock.noop())
    flow.source("theirs", penstock.spark_source(same)).sink("c", penstock.noop())
    reasons = required_cuts(flow, default_plan(flow, slots=3).replicas)
    assert reasons["map"].startswith("fan-out: one, thin")
    assert reasons["one"].startswith("Spark allows 'one' and 'two'")
    assert reasons["thin"].startswith("global state") and reasons["top"].startswith("global state")
    assert reasons["theirs"].startswith("only Spark knows")
    assert set(reasons) == {"map", "one", "thin", "top", "theirs"}


def test_two_keyed_regions_with_other_counts_are_cut_for_that() -> None:
    flow = finance.flow()
    plan = default_plan(flow, replicas={"vwap": 2, "bargain": 3})
    assert required_cuts(flow, plan.replicas)["vwap"].startswith("replicas: 'vwap' has 2 and 'bargain' has 3")


def two_counts(*, watermark_between: bool = False, **modes: str) -> Dataflow:
    """A chain of two windowed counts, `small` and `large`, with a stateless operator between them."""
    flow = penstock.Dataflow("f")
    rows = flow.source("s", penstock.generate(same, schema="k string, ts timestamp", rows=1)).watermark(
        "ts", "1 second"
    )
    small = rows.keyed("small", same, keys=["k"], columns=["window", "k"], **modes)
    between = small.stateless("between", same, columns=["window", "ts"])
    if watermark_between:
        between.watermark("ts", "1 second")
    between.keyed("large", same, keys=["window"], columns=["window"]).sink("out", penstock.noop())
    return flow


def test_two_states_in_append_mode_share_a_query_while_their_replicas_are_equal() -> None:
    flow = two_counts()
    plan = default_plan(flow, slots=3)
    (pipeline,) = pipelines(flow, plan)
    assert pipeline.state == ("small", "large") and pipeline.state_replicas == 3
    assert rescaled(flow, plan, {"small": 4, "large": 4}).cuts == frozenset()
    other = rescaled(flow, plan, {"large": 1})
    assert other.cuts == {"between"}
    assert required_cuts(flow, other.replicas)["between"].startswith("replicas: 'small' has 3 and 'large' has 1")
    with pytest.raises(PlanError, match="must cut after 'between'"):
        validated(flow, other.replace(cuts=frozenset()))
    assert default_plan(flow, share_queries=False).cuts == {"between"}


def test_two_states_share_no_query_if_spark_would_refuse_it() -> None:
    flow = two_counts(output_mode="update")
    assert required_cuts(flow, {})["between"].startswith("Spark allows 'small' and 'large' in one query only if both")
    flow = two_counts(watermark_between=True)
    assert required_cuts(flow, {})["between"].startswith("event time: a watermark is declared between 'small' and")


def test_states_before_a_join_share_its_query() -> None:
    flow = penstock.Dataflow("f")
    counts = []
    for side in ("left", "right"):
        rows = flow.source(f"{side}_rows", penstock.generate(same, schema="k string, ts timestamp", rows=1))
        counts.append(rows.watermark("ts", "1 second").keyed(side, same, keys=["k"], columns=["window", "k"]))
    flow.keyed("both", lambda left, right: left, keys=["window"], inputs=counts).sink("out", penstock.noop())
    plan = default_plan(flow)
    assert plan.cuts == frozenset()
    assert rescaled(flow, plan, {"left": 1}).cuts == {"left"}
    assert rescaled(flow, plan, {"both": 1}).cuts == {"left", "right"}


def test_a_cut_between_two_states_can_be_added_to_a_run_but_not_removed() -> None:
    flow = two_counts()
    together = default_plan(flow)
    apart = together.replace(cuts=frozenset({"between"}))
    check_successor(flow, together, apart)
    check_successor(flow, apart, apart.replace(cuts=frozenset({"between", "small"})))
    check_successor(flow, apart.replace(cuts=frozenset({"between", "small"})), apart)  # another cut is left
    with pytest.raises(PlanError, match="removes the cut after \"between\", but the states of 'small' and 'large'"):
        check_successor(flow, apart, together)
    assert with_permanent_cuts(flow, apart, together) == apart
    assert with_permanent_cuts(flow, together, apart) == apart
    check_successor(counting(), default_plan(counting()).replace(cuts=frozenset({"map"})), default_plan(counting()))


def test_a_loop_needs_its_cut() -> None:
    flow = penstock.Dataflow("f")
    back = flow.feedback("back", schema="n bigint")
    step = flow.stateless(
        "step", same, inputs=[flow.source("s", penstock.generate(same, schema="n bigint", rows=1)), back]
    )
    step.stateless("again", same).feed(back)
    step.sink("out", penstock.noop())
    plan = default_plan(flow)
    assert "again" in plan.cuts
    with pytest.raises(
        PlanError, match="must cut after 'again' \\(feedback: the loop to 'step' must be closed through a cut\\)"
    ):
        validated(flow, plan.replace(cuts=plan.cuts - {"again"}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dataflow": "other"}, "The plan is for dataflow 'other', but the dataflow is 'f'"),
        ({"replicas": {"map": 0, "count": 1}}, "replicas of 'map' = 0 .*; give a whole number, 1 or more"),
        ({"replicas": {"map": -2, "count": 1}}, "1 or more"),
        ({"replicas": {"map": 1, "count": 1_000_000}}, "replicas of 'count' = 1,000,000 .*10,000 at most"),
        (
            {"replicas": {"map": 1}},
            "gives no number of replicas for operators 'count', 'out', which are replicated together",
        ),
        (
            {"replicas": {"map": 1, "count": 1, "x": 1}},
            "'x', which is not an operator of dataflow 'f'; its operators are s, map, count, out",
        ),
        ({"slots": 0}, "slots = 0"),
        ({"cuts": frozenset({"nowhere"})}, "cuts after 'nowhere', which is not an operator"),
        ({"cuts": frozenset({"out"})}, "cuts after sink 'out'"),
        (
            {"groups": {"a": ExecutorGroup(operators=("x",), slots=1)}},
            "Group 'a' contains 'x', which is not an operator",
        ),
        ({"groups": {"a": ExecutorGroup(operators=(), slots=1)}}, "Group 'a' has no operators"),
        ({"groups": {"a b": ExecutorGroup(operators=("map",), slots=1)}}, "'a b' is not a name of a group"),
        ({"groups": {"a": ExecutorGroup(operators=("map",), slots=0)}}, "slots of group 'a' = 0"),
        ({"groups": {"a": ExecutorGroup(operators=("map",), slots=2)}}, '2 slots, and its groups have 2.*"slots": 3'),
        (
            {
                "slots": 3,
                "groups": {
                    "a": ExecutorGroup(operators=("map",), slots=1),
                    "b": ExecutorGroup(operators=("count", "map"), slots=1),
                },
            },
            "'map' is in the groups 'a' and 'b'",
        ),
    ],
)
def test_an_invalid_plan_is_refused_with_the_correction(change: dict[str, object], says: str) -> None:
    flow = counting()
    with pytest.raises(PlanError, match=says):
        validated(flow, default_plan(flow).replace(**change))


def test_groups_are_validated_in_the_order_of_the_dataflow_and_described() -> None:
    flow = counting()
    plan = default_plan(flow, slots=4)
    grouped = validated(flow, plan.replace(groups={"a": ExecutorGroup(operators=("count", "map"), slots=3)}))
    assert grouped.groups["a"].operators == ("map", "count")
    assert grouped.group_slots == 3 and grouped.group_of == {"map": "a", "count": "a"}
    assert str(diff(plan, grouped)) == "group a: none -> 3 slots for map, count"
    assert rescaled(flow, grouped, {"count": 2}).groups == grouped.groups


def test_an_operator_with_global_state_has_one_replica() -> None:
    flow = penstock.Dataflow("f")
    flow.source("s", penstock.generate(same, schema="k string", rows=1)).global_state("top", same).sink(
        "out", penstock.noop()
    )
    with pytest.raises(PlanError, match="'top' has global state and therefore one replica, not 2"):
        rescaled(flow, default_plan(flow), {"top": 2})


@pytest.mark.parametrize(
    ("replicas", "says"),
    [
        ({"nowhere": 2}, "'nowhere', which is not an operator"),
        ({"s": 2}, "source 's', which has no replicas of its own"),
        ({"count": 2, "out": 3}, "'count' and 'out' are replicated together, but 2 and 3 replicas are given"),
        ({"count": 0}, "1 or more"),
    ],
)
def test_rescaling_is_checked_too(replicas: dict[str, int], says: str) -> None:
    flow = counting()
    with pytest.raises(PlanError, match=says):
        rescaled(flow, default_plan(flow), replicas)


def test_cuts_are_added_and_removed_by_operator() -> None:
    flow = counting()
    plan = default_plan(flow, slots=3)
    cut = recut(flow, plan, cut=["map", "count"])
    assert cut == plan.replace(cuts=frozenset({"map", "count"}))
    assert [pipeline.operators for pipeline in pipelines(flow, cut)] == [("s", "map"), ("count",), ("out",)]
    assert recut(flow, cut, fuse=["count"], cut=["s"]).cuts == {"map", "s"}
    assert recut(flow, cut, fuse=["map", "count"]) == plan


@pytest.mark.parametrize(
    ("cut", "fuse", "says"),
    [
        (["nothing"], [], "'nothing', which is not an operator of dataflow 'f'"),
        (["out"], [], "sink 'out', which has no output"),
        (["map"], ["map"], "both added and removed; name 'map' once"),
        ([], ["count"], r"no cut after 'count' that could be removed; it cuts after between\.$"),
        ([], ["between"], r"The cut after 'between' is required \(replicas: 'small' has 3 and 'large' has 1"),
    ],
)
def test_impossible_cuts_are_refused(cut: list[str], fuse: list[str], says: str) -> None:
    flow = two_counts() if "between" in says else counting()
    plan = rescaled(flow, default_plan(flow, slots=3), {"large": 1} if "between" in says else {})
    with pytest.raises(PlanError, match=says):
        recut(flow, plan, cut=cut, fuse=fuse)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"dataflow": "f"}', '{"dataflow": "f", "slots": 2, "extra": 1}', '{"dataflow": "f", "slots": "2"}'],
)
def test_a_document_that_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="The text is not a plan: .*Write a plan like"):
        Plan.from_json(text)


def test_a_key_that_is_given_twice_is_named() -> None:
    with pytest.raises(PlanError, match="The text is not a plan: 'count' is given twice in one object"):
        Plan.from_json('{"dataflow": "f", "slots": 2, "replicas": {"count": 2, "count": 3}}')


plans = st.builds(
    Plan,
    dataflow=st.just("f"),
    cuts=st.frozensets(st.sampled_from(["s", "map", "count"])),
    replicas=st.fixed_dictionaries({"map": st.integers(1, 9), "count": st.integers(1, 9)}),
    slots=st.integers(1, 9),
    groups=st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.builds(ExecutorGroup, operators=st.just(("map",)), slots=st.integers(1, 3)),
    ),
)


@settings(deadline=None)
@given(plans)
def test_json_in_and_out_is_the_same_plan(plan: Plan) -> None:
    assert Plan.from_json(plan.to_json()) == plan
    assert diff(plan, plan).empty


@settings(deadline=None)
@given(plans, plans)
def test_a_difference_says_what_to_change(old: Plan, new: Plan) -> None:
    difference = diff(old, new)
    again = old.replace(
        cuts=(old.cuts - set(difference.cuts_removed)) | set(difference.cuts_added),
        replicas=old.replicas | {name: after for name, (_, after) in difference.replicas.items() if after is not None},
        slots=difference.slots[1] if difference.slots else old.slots,
        groups={
            name: group
            for name in old.groups.keys() | difference.groups.keys()
            if (group := difference.groups.get(name, (None, old.groups.get(name)))[1]) is not None
        },
    )
    assert again == new


@settings(deadline=None)
@given(plans)
def test_pipelines_are_a_partition_of_the_operators(plan: Plan) -> None:
    flow = counting()
    queries = pipelines(flow, plan)
    assert sorted(name for query in queries for name in query.operators) == sorted(
        operator.name for operator in flow.operators
    )
    assert {query.output for query in queries} == set(plan.cuts) | {"out"}
    assert all(len(query.state) <= 1 for query in queries)


def test_plans_of_two_dataflows_have_no_difference() -> None:
    with pytest.raises(PlanError, match="Plans of two dataflows, 'f' and 'g', cannot be compared"):
        diff(default_plan(counting("f")), default_plan(counting("g")))


def test_a_plan_may_name_any_operator_of_those_replicated_together() -> None:
    flow = counting()
    plan = default_plan(flow)
    assert validated(flow, plan.replace(replicas={"map": 1, "out": 3})).replicas == {"map": 1, "count": 3}
    assert validated(flow, plan.replace(replicas={"out": 3, "map": 1, "count": 3})).replicas == {"map": 1, "count": 3}
    assert rescaled(flow, plan, {"out": 5}).replicas["count"] == 5
    with pytest.raises(PlanError, match="Operators 'out' and 'count' are replicated together, but 3 and 2"):
        validated(flow, plan.replace(replicas={"map": 1, "out": 3, "count": 2}))


def waiting() -> Dataflow:
    flow = penstock.Dataflow("f")
    rows = flow.source("s", penstock.generate(same, schema="v string", rows=1))
    rows.rows("call", same, "v string", threads=8).rows("plain", same, "v string").sink("out", penstock.noop())
    return flow


def test_a_plan_contains_the_threads_of_all_operators_that_have_them() -> None:
    plan = default_plan(waiting())
    assert plan.threads == {"call": 8}
    assert Plan.from_json(plan.to_json()) == plan
    old = Plan.from_json('{"dataflow": "f", "replicas": {"call": 2}, "slots": 2}')  # a plan without threads
    assert validated(waiting(), old).threads == {"call": 8}


def test_threads_are_rescaled_alone_or_with_replicas() -> None:
    flow, plan = waiting(), default_plan(waiting())
    more = rescaled(flow, plan, {"call.threads": 64})
    assert str(diff(plan, more)) == "call: 8 -> 64 threads" and more.replicas == plan.replicas
    assert pipelines(flow, more) == pipelines(flow, plan)
    assert str(diff(plan, rescaled(flow, plan, {"call.threads": 1, "call": 3}))) == (
        "call: 2 -> 3 replicas, call: 8 -> 1 threads"
    )


@pytest.mark.parametrize(
    ("threads", "reason"),
    [
        ({"plain": 2}, "'plain', which is not an operator with threads in dataflow 'f'; its .* are call"),
        ({"call": 0}, "threads of 'call' = 0 is not possible; give a whole number, 1 to 1,024"),
        ({"call": 1_025}, "1 to 1,024"),
    ],
)
def test_impossible_threads_are_refused(threads: dict[str, int], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        validated(waiting(), default_plan(waiting()).replace(threads=threads))


def test_a_resumed_plan_forgets_threads_of_operators_that_lost_them() -> None:
    flow = penstock.Dataflow("f")
    rows = flow.source("s", penstock.generate(same, schema="v string", rows=1))
    rows.rows("call", same, "v string").rows("plain", same, "v string").sink("out", penstock.noop())
    before = default_plan(waiting())
    assert validated(flow, with_remaining_threads(flow, before)) == before.replace(threads={})
    assert with_remaining_threads(waiting(), before) == before
