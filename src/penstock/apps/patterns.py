"""Frequent patterns: maintain the itemsets that many of the latest messages of a microblog have in common.

Fu et al., "DRS", ToN 25(6), 2017, section V-A. A window slides over the last WINDOW messages. Each message is a set
of tags. `generate` produces every nonempty subset of the tags of a message that enters or leaves the window. `detect`
counts by pattern how many messages of the window contain it. A pattern that reaches THRESHOLD is frequent. A frequent
pattern without a frequent superset is maximal. Supersets are counted by other replicas, which report them through the
loop.

The output must not depend on the boundaries of batches. Three properties ensure this:

- One source provides both entering and leaving messages, in one row per position. Penstock keeps the order of rows of
  one source across batches (there is no order between two sources), and `detect` sorts by position within a batch.
  Each pattern therefore sees its counts change as if rows arrived one at a time.
- Rows of the loop arrive at any time. They are facts with a position, such as "a superset became frequent at 17",
  which are looked up among the spans in which the pattern was frequent. A superset is frequent only while all its
  subsets are, so exactly one span matches.
- Each fact is sent once: a pattern became `frequent` or `rare` at a position, or a span became `covered` by the first
  superset that was reported. A span that is not covered was maximal from its beginning to its end.

A pattern that is not in the window keeps no state, apart from the spans in which it was maximal: a superset may still
be reported.
"""

from __future__ import annotations

import functools
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

WINDOW = 200  # messages; the paper has 50,000
THRESHOLD = 8  # messages
TAGS = 64
_SEED = 0x74616773
_TAGS = [f"#{'bcdfghjklmnprstv'[i // 4]}{'aeio'[i % 4]}" for i in range(TAGS)]
_TOPICS = zipf_table(range(8), bits=8)  # topics have four tags each
_TREND = 150  # messages after which other topics are the most frequent

# Tags are separated by blanks; leaving is null while the window fills.
MESSAGES = "position bigint, entering string, leaving string"
CANDIDATES = "pattern string, position bigint, change int"  # change 0: a superset became frequent at the position
FACTS = "pattern string, fact string, position bigint"
_STATE = "count bigint, since bigint, covered boolean, spans string"


def message(n: int) -> str:
    """Return the tags of message n: one to four, sorted, most of them of one topic.

    >>> message(3) == message(3), 1 <= len(message(3).split()) <= 4
    (True, True)
    """
    bits = random_bits(n, _SEED)
    topic = (_TOPICS[bits & 0xFF] + n // _TREND) % 8
    parts = [bits >> shift & 0x3FF for shift in (10, 20, 30, 40)[: 1 + (bits >> 8) % 4]]
    drawn = {_TAGS[part >> 4] if part % 8 == 0 else _TAGS[4 * topic + (part >> 3 & 3)] for part in parts}
    return " ".join(sorted(drawn))


def generator(n: int, window: int = WINDOW) -> tuple[int, str, str | None]:
    """Return row n: the position, the message that enters the window there, and the one that leaves it."""
    return n, message(n), message(n - window) if n >= window else None


def subsets(tags: str) -> Iterator[str]:
    """Yield all nonempty subsets of the tags.

    >>> list(subsets("#a #b"))
    ['#a', '#b', '#a #b']
    """
    items = tags.split()
    for size in range(1, len(items) + 1):
        yield from map(" ".join, combinations(items, size))


def candidates(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every pattern whose count changes at this position."""
    moves: Counter[str] = Counter(subsets(row["entering"]))
    moves.subtract(subsets(row["leaving"] or ""))
    for pattern, change in moves.items():
        if change:
            yield {"pattern": pattern, "position": row["position"], "change": change}


class Detector:
    """The state of one pattern."""

    def __init__(self, threshold: int, count: int = 0, since: int = -1, covered: bool = False, spans: str = "") -> None:
        self._threshold = threshold
        self._count = count
        self._since = since  # position since which the pattern is frequent; -1 if it is not
        self._covered = covered  # whether a superset covers the current span
        self._spans = [tuple(map(int, span.split("-"))) for span in spans.split()]  # ended and not covered

    @property
    def state(self) -> tuple[int, int, bool, str] | None:
        """The values to store; None if there is nothing to keep."""
        if self._count == 0 and not self._spans:
            return None
        return self._count, self._since, self._covered, " ".join(f"{start}-{end}" for start, end in self._spans)

    def change_count(self, position: int, change: int) -> Iterator[tuple[str, int]]:
        """Change the count and yield the resulting fact. Calls must be in the order of positions."""
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
        """Note that a superset became frequent at an earlier position, and yield the resulting fact."""
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
        """Process pairs (position, change) in any order: first the changes of the count, then the rows of the loop."""
        in_order = sorted(rows)
        facts = [fact for at, change in in_order if change for fact in self.change_count(at, change)]
        return facts + [fact for at, change in in_order if not change for fact in self.superset(at)]


def detected(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any, threshold: int) -> Iterator[pd.DataFrame]:
    """Process the rows of one pattern in one batch."""
    known = Detector(threshold, *(state.get if state.exists else ()))
    # Lists, because the state of Spark accepts only plain numbers.
    facts = known.batch(
        row for frame in frames for row in zip(frame["position"].tolist(), frame["change"].tolist(), strict=True)
    )
    if known.state is not None:
        state.update(known.state)
    elif state.exists:
        state.remove()
    yield pd.DataFrame({"pattern": key[0], "fact": [fact for fact, _ in facts], "position": [at for _, at in facts]})


def detect(moves: DataFrame, threshold: int = THRESHOLD) -> DataFrame:
    def of_pattern(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        return detected(key, frames, state, threshold)

    return moves.groupBy("pattern").applyInPandasWithState(of_pattern, FACTS, _STATE, "update", "NoTimeout")


def report_to_subsets(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Report a pattern that became frequent to its subsets with one item less, which report to theirs in turn.

    >>> [row["pattern"] for row in report_to_subsets({"pattern": "#a #b #c", "fact": "frequent", "position": 7})]
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
    window: int = WINDOW,
) -> penstock.Dataflow:
    """Return the dataflow on generated messages; `flow(window=50_000, threshold=2_000)` has the paper's size."""
    if window < 1 or threshold < 1:
        raise penstock.PenstockError(
            f"The window has {window} messages and the threshold is {threshold}; both must be at least 1."
        )
    flow = penstock.Dataflow("patterns")
    rate = ROWS_PER_S if rows is None and rows_per_s is None else rows_per_s
    messages = flow.source(
        "messages",
        penstock.generate(functools.partial(generator, window=window), schema=MESSAGES, rows=rows, rows_per_s=rate),
    )
    supersets = flow.feedback("supersets", schema=CANDIDATES)
    moves = messages.rows("generate", candidates, schema=CANDIDATES)
    facts = flow.keyed(
        "detect",
        lambda moves: detect(moves, threshold),
        keys=["pattern"],
        inputs=[moves, supersets],
        columns=["pattern", "fact", "position"],
    )
    facts.rows("tell", report_to_subsets, schema=CANDIDATES).feed(supersets)
    facts.stateless("report", lambda facts: facts, columns=["pattern", "fact", "position"]).sink(
        "out", default_sink(output, rows)
    )
    return flow


Fact = tuple[str, str, int]  # pattern, fact, position


def oracle(rows: int, threshold: int = THRESHOLD, window: int = WINDOW) -> Counter[Fact]:
    """Return the facts of `rows` messages, each once."""
    return facts_of([message(n) for n in range(rows)], window, threshold)


def facts_of(messages: list[str], window: int, threshold: int) -> Counter[Fact]:
    """Return the facts of these messages, computed one message at a time.

    >>> sorted(facts_of(["#a #b", "#a", "#a #b", "#c"], window=3, threshold=2))
    [('#a', 'covered', 1), ('#a', 'frequent', 1), ('#a #b', 'frequent', 2), ('#a #b', 'rare', 3), \
('#b', 'covered', 2), ('#b', 'frequent', 2), ('#b', 'rare', 3)]
    """
    facts: set[Fact] = set()
    counts: Counter[str] = Counter()
    since: dict[str, int] = {}
    for position, entering in enumerate(messages):
        counts.update(subsets(entering))
        if position >= window:
            counts.subtract(subsets(messages[position - window]))
        for pattern in [known for known in since if counts[known] < threshold]:
            del since[pattern]
            facts.add((pattern, "rare", position))
        new = [subset for subset in subsets(entering) if counts[subset] >= threshold and subset not in since]
        since |= dict.fromkeys(new, position)
        facts |= {(pattern, "frequent", position) for pattern in new}
        facts |= {(less, "covered", since[less]) for pattern in new for less in subsets(pattern) if less != pattern}
    return Counter(facts)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Fact]:
    return Counter((row["pattern"], row["fact"], row["position"]) for row in output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, threshold: int = THRESHOLD, window: int = WINDOW
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, threshold, window), actual(output))
