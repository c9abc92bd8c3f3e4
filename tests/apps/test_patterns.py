from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.apps import patterns
from penstock.dataflow import regions
from tests.support.spark_runs import engine_for, play

ROWS, THRESHOLD = 700, patterns.THRESHOLD


def in_batches(rows: int, sizes: list[int], threshold: int, chance: random.Random) -> tuple[Counter[Any], int]:
    """Run the functions of the app without Spark, and return the facts and the number of keys that still have a state.

    Batches have the given sizes and a random order of rows. The loop returns rows after one to four batches."""
    kept: dict[str, tuple[int, int, bool, str]] = {}
    facts: Counter[Any] = Counter()
    loop: list[list[dict[str, Any]]] = []
    at = 0
    while at < rows or any(loop):
        size = sizes[chance.randrange(len(sizes))]
        coming = [patterns.generator(n) for n in range(at, min(rows, at + size))]
        at += size
        names = ("position", "entering", "leaving")
        batch = [move for row in coming for move in patterns.candidates(dict(zip(names, row, strict=True)))]
        batch += loop.pop(0) if loop else []
        chance.shuffle(batch)
        by_key: dict[str, list[tuple[int, int]]] = {}
        for move in batch:
            by_key.setdefault(move["pattern"], []).append((move["position"], move["change"]))
        for pattern, moves in by_key.items():
            known = patterns.Detector(threshold, *kept.pop(pattern, ()))
            for fact, position in known.batch(moves):
                facts[pattern, fact, position] += 1
                later = chance.randrange(4)
                loop += [[] for _ in range(later + 1 - len(loop))]
                loop[later] += patterns.report_to_subsets({"pattern": pattern, "fact": fact, "position": position})
            if known.state is not None:
                kept[pattern] = known.state
    return facts, len(kept)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([1, 3, 17, 80, 400]), min_size=1, max_size=3), st.integers(0, 10_000))
def test_facts_do_not_depend_on_batches_their_order_or_the_lag_of_the_loop(sizes: list[int], seed: int) -> None:
    facts, _ = in_batches(300, sizes, 8, random.Random(seed))
    assert facts == patterns.oracle(300, 8)


def test_patterns_outside_the_window_keep_no_state_except_maximal_spans() -> None:
    facts, left = in_batches(ROWS, [50], THRESHOLD, random.Random(1))
    assert facts == patterns.oracle(ROWS, THRESHOLD)
    held = {pattern for n in range(ROWS - patterns.WINDOW, ROWS) for pattern in patterns.subsets(patterns.message(n))}
    spans = {(pattern, at) for pattern, fact, at in facts if fact == "frequent"} - {
        (pattern, at) for pattern, fact, at in facts if fact == "covered"
    }
    assert len(held) <= left <= len(held | {pattern for pattern, _ in spans})
    assert len({pattern for n in range(ROWS) for pattern in patterns.subsets(patterns.message(n))}) > 1.5 * left


def test_at_any_position_the_facts_give_the_maximal_frequent_patterns() -> None:
    """The expected patterns are computed from their definition, over the messages of the window."""
    facts = patterns.oracle(ROWS, THRESHOLD)
    for position in (250, 431, ROWS - 1):
        window = [patterns.message(n).split() for n in range(position - patterns.WINDOW + 1, position + 1)]
        counts = Counter(some for message in window for size in range(1, 5) for some in combinations(message, size))
        frequent = {some for some, count in counts.items() if count >= THRESHOLD}
        maximal = {some for some in frequent if not any(set(some) < set(other) for other in frequent)}
        spans: dict[str, int] = {}
        for pattern, fact, at in sorted(facts, key=lambda row: row[2]):
            if at <= position and fact == "frequent":
                spans[pattern] = at
            elif at <= position and fact == "rare":
                spans.pop(pattern, None)
        assert {tuple(pattern.split()) for pattern in spans} == frequent
        uncovered = {tuple(pattern.split()) for pattern, at in spans.items() if (pattern, "covered", at) not in facts}
        assert uncovered <= maximal
        assert len(maximal) > 3 and any(len(pattern) > 1 for pattern in maximal)


def test_generated_messages_cause_facts_of_every_kind() -> None:
    facts = patterns.oracle(ROWS, THRESHOLD)
    kinds = Counter(fact for _, fact, _ in facts)
    assert min(kinds[kind] for kind in ("frequent", "rare", "covered")) > 20
    sizes = Counter(len(patterns.message(n).split()) for n in range(1_000))
    assert set(sizes) == {1, 2, 3, 4}


@pytest.mark.parametrize("window", [1, 37, 500])
def test_the_size_of_the_window_is_a_parameter(window: int) -> None:
    """The expected counts are those of the messages in the window."""
    rows, detectors = 700, {}
    facts = set()
    for n in range(rows):
        row = dict(zip(("position", "entering", "leaving"), patterns.generator(n, window), strict=True))
        for move in patterns.candidates(row):
            detector = detectors.setdefault(move["pattern"], patterns.Detector(THRESHOLD))
            facts |= {(move["pattern"], *fact) for fact in detector.batch([(move["position"], move["change"])])}
    inside = Counter(p for n in range(rows - window, rows) for p in patterns.subsets(patterns.message(n)))
    frequent = {pattern for pattern, count in inside.items() if count >= THRESHOLD}
    last = {pattern: fact for pattern, fact, _ in sorted(facts, key=lambda fact: fact[2])}
    assert {pattern for pattern, fact in last.items() if fact == "frequent"} == frequent
    expected = {fact for fact in patterns.oracle(rows, THRESHOLD, window) if fact[1] != "covered"}
    assert facts == expected  # without the loop no pattern is covered


def test_a_window_without_messages_is_refused() -> None:
    with pytest.raises(penstock.PenstockError, match="at least 1"):
        patterns.flow(window=0)


def test_the_loop_goes_through_a_cut_and_each_operator_is_a_region() -> None:
    flow = patterns.flow(rows=ROWS)
    flow.check()
    assert [region.operators for region in regions(flow)][1:] == [
        ("generate",), ("detect",), ("tell",), ("report", "out"),
    ]  # fmt: skip
    assert {"detect", "tell"} <= penstock.default_plan(flow).cuts
    patterns.flow().check()


@pytest.mark.spark
def test_on_spark_the_facts_are_the_oracle_s_also_through_a_plan_change(spark: Any, tmp_path: Path) -> None:
    flow = patterns.flow(rows=ROWS, rows_per_s=150, threshold=THRESHOLD)
    engine = engine_for(flow, spark, tmp_path / "run", penstock.default_plan(flow, slots=2, replicas={"detect": 1}))
    try:
        engine.start()
        more = penstock.rescaled(flow, engine.plan, {"detect": 2})
        play(engine, [more.replace(cuts=more.cuts | {"generate"})])
        assert patterns.check(engine.rows("out"), ROWS, THRESHOLD) == []
    finally:
        engine.stop()
