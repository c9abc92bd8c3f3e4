"""Regions by the rules of Joker: examples and applications of the paper, and properties of any graph."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.apps import finance, netmon, wordcount
from penstock.dataflow import Dataflow, Kind, Region, regions

Op = tuple[str, set[str]]  # SL with its required fields, or PS with its keys


def same(df: object) -> object:
    return df


def chain(*operators: Op) -> Dataflow:
    """Return a chain of a source and these operators."""
    flow = penstock.Dataflow("chain")
    stream = flow.source("source", penstock.spark_source(same))
    for number, (kind, names) in enumerate(operators):
        if kind == "SL":
            stream = stream.stateless(f"o{number}", same, fields=sorted(names))
        elif kind == "PS":
            stream = stream.keyed(f"o{number}", same, keys=sorted(names))
        else:
            stream = stream.global_state(f"o{number}", same)
    stream.sink("out", penstock.noop())
    return flow


def shape(flow: Dataflow) -> list[tuple[str, tuple[str, ...], int]]:
    """Return (kind, keys, number of operators without the sink) of the regions after the source."""
    replicated = [region for region in regions(flow) if region.kind is not Kind.SOURCE]
    return [
        (str(region.kind), region.keys, len([name for name in region.operators if name != "out"]))
        for region in replicated
    ]


def test_a_stateless_operator_that_carries_the_key_stays_with_it() -> None:
    assert shape(chain(("PS", {"A"}), ("SL", {"A", "B"}))) == [("keyed", ("A",), 2)]


def test_fewer_keys_start_a_new_region() -> None:
    assert shape(chain(("PS", {"A", "B", "C"}), ("PS", {"A", "B"}))) == [
        ("keyed", ("A", "B", "C"), 1),
        ("keyed", ("A", "B"), 1),
    ]


def test_more_keys_stay_in_the_region_of_fewer() -> None:
    assert shape(chain(("PS", {"A", "B"}), ("PS", {"A", "B", "C"}))) == [("keyed", ("A", "B"), 2)]


def test_stateless_operators_before_a_keyed_one_join_it_if_they_carry_its_keys() -> None:
    assert shape(chain(("SL", {"A", "B"}), ("SL", {"A", "B", "C"}), ("PS", {"A", "B", "C"}))) == [
        ("stateless", (), 1),
        ("keyed", ("A", "B", "C"), 2),
    ]


def test_a_stateless_operator_without_the_key_ends_the_region() -> None:
    assert shape(chain(("PS", {"A"}), ("SL", {"B"}), ("PS", {"A"}))) == [
        ("keyed", ("A",), 1),
        ("stateless", (), 1),
        ("keyed", ("A",), 1),
    ]


def test_an_operator_with_global_state_stands_alone_with_one_replica() -> None:
    parts = regions(chain(("SL", {"A"}), ("ST", set()), ("SL", {"A"})))
    assert [(str(region.kind), region.replicable) for region in parts] == [
        ("source", True),
        ("stateless", True),
        ("global_state", False),
        ("stateless", True),
    ]


def test_a_branch_ends_a_region_and_starts_one_on_each_side() -> None:
    flow = penstock.Dataflow("branch")
    stream = flow.source("source", penstock.spark_source(same)).keyed("a", same, keys=["K"])
    left = stream.stateless("left", same, fields=["K"])
    right = stream.stateless("right", same, fields=["K"])
    flow.keyed("join", lambda x, y: x, keys=["K"], inputs=[left, right]).sink("out", penstock.noop())
    assert [region.operators for region in regions(flow)] == [
        ("source",),
        ("a",),
        ("left",),
        ("right",),
        ("join", "out"),
    ]


def test_the_applications_of_the_paper() -> None:
    def of(flow: Dataflow) -> list[tuple[str, tuple[str, ...]]]:
        return [(str(region.kind), region.operators) for region in regions(flow) if region.kind is not Kind.SOURCE]

    assert of(wordcount.flow()) == [("stateless", ("split",)), ("keyed", ("count", "out"))]
    assert of(netmon.flow()) == [
        ("stateless", ("failures", "parse")),
        ("keyed", ("attempts", "cutoff", "diff", "out")),
    ]
    keyed = [operators for kind, operators in of(finance.flow()) if kind == "keyed"]
    assert [operators[0] for operators in keyed] == ["vwap", "bargain"]


operators = st.tuples(st.sampled_from(["SL", "PS", "ST"]), st.sets(st.sampled_from("ABC"), min_size=1))


@settings(deadline=None)
@given(st.lists(operators, min_size=1, max_size=8))
def test_the_regions_of_any_chain_are_an_ordered_partition(ops: list[Op]) -> None:
    flow = chain(*ops)
    parts: tuple[Region, ...] = regions(flow)
    assert [name for region in parts for name in region.operators] == [operator.name for operator in flow.operators]
    for region in parts:
        for name in region.operators:
            operator = flow[name]
            if region.kind is Kind.GLOBAL_STATE:
                assert operator.kind in (Kind.GLOBAL_STATE, Kind.SINK)
            if region.kind is Kind.STATELESS:
                assert operator.kind in (Kind.STATELESS, Kind.SINK)
            if operator.kind is Kind.KEYED:
                assert set(region.keys) <= set(operator.keys)
            if region.kind is Kind.KEYED and operator.kind is Kind.STATELESS:
                assert operator.fields is not None and set(region.keys) <= operator.fields
    for before, after in itertools.pairwise(parts):
        # Regions are maximal: the first operator of a keyed region did not fit into the keyed region before it.
        first = flow[after.operators[0]]
        if before.kind is Kind.KEYED and first.kind is Kind.KEYED:
            assert not set(before.keys) <= set(first.keys)
