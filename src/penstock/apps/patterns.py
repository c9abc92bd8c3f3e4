"""Frequent patterns: itemsets that many of the last messages of a microblog share, kept up as messages come and go.

Fu et al., "DRS", ToN 25(6), 2017, section V-A. A window slides over the last WINDOW messages; each message is a set of
tags. `generate` makes every nonempty subset of the tags of a message that enters or leaves, an exponential number;
`detect` keeps, by pattern, how many messages of the window hold it; patterns that reach THRESHOLD are frequent. Those
that have no frequent superset are maximal. Whether there is one, another replica knows: it says so through the loop.

What comes out must not depend on how rows fall into batches, which takes three things:

- One source brings both what enters and what leaves, in one row a position. Penstock hands rows of one source on in
  order, batch by batch (two sources have no order between them), and within a batch `detect` sorts by position. So
  each pattern sees its counts move as they would one row at a time.
- What comes back through the loop comes at any time. It is therefore told as a fact with its position, "a superset
  became frequent at 17", and looked up among the spans in which the pattern was frequent itself. A superset is frequent
  only while all its subsets are, so there is exactly one such span.
- Each fact is sent once: a pattern became `frequent` at a position, or `rare`; a span became `covered`, at the first
  superset that is heard of, whichever it is. A span that is not covered was maximal from its beginning to its end.

A pattern that no message of the window holds keeps nothing, but for the spans in which it was maximal: a superset might
still be heard of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import ROWS_PER_S, default_sink
from penstock.apps.seeded_random import random_bits, zipf_table
from penstock.dataflow.sinks import Sink

WINDOW = 200  # messages
THRESHOLD = 8  # of them
TAGS = 64
_SEED = 0x74616773
_TAGS = [f"#{'bcdfghjklmnprstv'[i // 4]}{'aeio'[i % 4]}" for i in range(TAGS)]
_TOPICS = zipf_table(range(8), bits=8)  # of four tags each
_TREND = 150  # messages, after which the topics that are talked of most are others

MESSAGES = "position bigint, entering string, leaving string"  # tags, one blank apart; null: nobody leaves yet
CANDIDATES = "pattern string, position bigint, change int"  # 0: a superset became frequent there
FACTS = "pattern string, fact string, position bigint"
_STATE = "count bigint, since bigint, covered boolean, spans string"


def message(n: int) -> str:
    """The tags of message n: one to four, in order, most of them of one topic.

    >>> message(3) == message(3), 1 <= len(message(3).split()) <= 4
    (True, True)
    """
    bits = random_bits(n, _SEED)
    topic = (_TOPICS[bits & 0xFF] + n // _TREND) % 8
    parts = [bits >> shift & 0x3FF for shift in (10, 20, 30, 40)[: 1 + (bits >> 8) % 4]]
    drawn = {_TAGS[part >> 4] if part % 8 == 0 else _TAGS[4 * topic + (part >> 3 & 3)] for part in parts}
    return " ".join(sorted(drawn))


def generator(n: int) -> tuple[int, str, str | None]:
    """Position n: the message that enters the window there, and the one that leaves it."""
    return n, message(n), message(n - WINDOW) if n >= WINDOW else None


def subsets(tags: str) -> Iterator[str]:
    """
    >>> list(subsets("#a #b"))
    ['#a', '#b', '#a #b']
    """
    items = tags.split()
    for size in range(1, len(items) + 1):
        yield from map(" ".join, combinations(items, size))


def candidates(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every pattern whose count moves at this position."""
    moves: Counter[str] = Counter(subsets(row["entering"]))
    moves.subtract(subsets(row["leaving"] or ""))
    for pattern, change in moves.items():
        if change:
            yield {"pattern": pattern, "position": row["position"], "change": change}


class Detector:
    """What is known of one pattern."""

    def __init__(self, threshold: int, count: int = 0, since: int = -1, covered: bool = False, spans: str = "") -> None:
        self._threshold = threshold
        self._count = count
        self._since = since  # that it is frequent; -1: it is not
        self._covered = covered  # in the span that goes on
        self._spans = [tuple(map(int, one.split("-"))) for one in spans.split()]  # that are over, and not covered

    @property
    def state(self) -> tuple[int, int, bool, str] | None:
        """None: there is nothing to be kept."""
        if self._count == 0 and not self._spans:
            return None
        return self._count, self._since, self._covered, " ".join(f"{start}-{end}" for start, end in self._spans)

    def moved(self, position: int, change: int) -> Iterator[tuple[str, int]]:
        """In order of position."""
        self._count += change
        if self._since < 0 and self._count >= self._threshold:
            self._since, self._covered = position, False
            yield "frequent", position
        elif self._since >= 0 and self._count < self._threshold:
            if not self._covered:
                self._spans.append((self._since, position))
            self._since = -1
            yield "rare", position

    def superset(self, position: int) -> Iterator[tuple[str, int]]:
        """One became frequent at this position, which the pattern itself has come to already."""
        if 0 <= self._since <= position:
            if not self._covered:
                self._covered = True
                yield "covered", self._since
            return
        for span in self._spans:
            if span[0] <= position < span[1]:
                self._spans.remove(span)
                yield "covered", span[0]
                return

    def batch(self, rows: Iterable[tuple[int, int]]) -> list[tuple[str, int]]:
        """(position, change) in any order: all that moves the count in order, and then what the loop has brought."""
        in_order = sorted(rows)
        facts = [fact for at, change in in_order if change for fact in self.moved(at, change)]
        return facts + [fact for at, change in in_order if not change for fact in self.superset(at)]


def detected(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any, threshold: int) -> Iterator[pd.DataFrame]:
    """One pattern in one batch."""
    known = Detector(threshold, *(state.get if state.exists else ()))
    # Lists, because Spark keeps plain numbers only.
    facts = known.batch(
        row for one in frames for row in zip(one["position"].tolist(), one["change"].tolist(), strict=True)
    )
    if known.state is not None:
        state.update(known.state)
    elif state.exists:
        state.remove()
    yield pd.DataFrame({"pattern": key[0], "fact": [one for one, _ in facts], "position": [at for _, at in facts]})


def detect(moves: DataFrame, threshold: int = THRESHOLD) -> DataFrame:
    def of_pattern(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        return detected(key, frames, state, threshold)

    return moves.groupBy("pattern").applyInPandasWithState(of_pattern, FACTS, _STATE, "update", "NoTimeout")


def told(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A pattern that became frequent tells those that have one item less; they in turn tell theirs.

    >>> [one["pattern"] for one in told({"pattern": "#a #b #c", "fact": "frequent", "position": 7})]
    ['#a #b', '#a #c', '#b #c']
    """
    items = row["pattern"].split()
    if row["fact"] == "frequent" and len(items) > 1:
        for fewer in combinations(items, len(items) - 1):
            yield {"pattern": " ".join(fewer), "position": row["position"], "change": 0}


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    threshold: int = THRESHOLD,
) -> penstock.Dataflow:
    """The dataflow on generated messages."""
    flow = penstock.Dataflow("patterns")
    rate = ROWS_PER_S if rows is None and rows_per_s is None else rows_per_s
    messages = flow.source("messages", penstock.generate(generator, schema=MESSAGES, rows=rows, rows_per_s=rate))
    supersets = flow.feedback("supersets", schema=CANDIDATES)
    moves = messages.rows("generate", candidates, schema=CANDIDATES)
    facts = flow.keyed(
        "detect",
        lambda moves: detect(moves, threshold),
        keys=["pattern"],
        inputs=[moves, supersets],
        columns=["pattern", "fact", "position"],
    )
    facts.rows("tell", told, schema=CANDIDATES).feed(supersets)
    facts.stateless("report", lambda facts: facts, columns=["pattern", "fact", "position"]).sink(
        "out", default_sink(output, rows)
    )
    return flow


Fact = tuple[str, str, int]  # pattern, fact, position


def oracle(rows: int, threshold: int = THRESHOLD) -> Counter[Fact]:
    """The facts of `rows` messages, each once."""
    return facts_of([message(n) for n in range(rows)], WINDOW, threshold)


def facts_of(messages: list[str], window: int, threshold: int) -> Counter[Fact]:
    """One message after another, all patterns in one place.

    >>> sorted(facts_of(["#a #b", "#a", "#a #b", "#c"], window=3, threshold=2))
    [('#a', 'covered', 1), ('#a', 'frequent', 1), ('#a #b', 'frequent', 2), ('#a #b', 'rare', 3), \
('#b', 'covered', 2), ('#b', 'frequent', 2), ('#b', 'rare', 3)]
    """
    found: set[Fact] = set()
    counts: Counter[str] = Counter()
    since: dict[str, int] = {}
    for position, entering in enumerate(messages):
        counts.update(subsets(entering))
        if position >= window:
            counts.subtract(subsets(messages[position - window]))
        for pattern in [one for one in since if counts[one] < threshold]:
            del since[pattern]
            found.add((pattern, "rare", position))
        new = [one for one in subsets(entering) if counts[one] >= threshold and one not in since]
        since |= dict.fromkeys(new, position)
        found |= {(one, "frequent", position) for one in new}
        found |= {(less, "covered", since[less]) for one in new for less in subsets(one) if less != one}
    return Counter(found)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Fact]:
    return Counter((row["pattern"], row["fact"], row["position"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, threshold: int = THRESHOLD) -> list[str]:
    """How the output differs from the oracle's: facts that are missing, wrong, or there more than once."""
    return differences(oracle(rows, threshold), actual(output))
