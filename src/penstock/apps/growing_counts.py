"""Counts that are sent at every change and only ever grow: what they come to, and how that differs from an oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.apps.differences import differences


def last_counts(output: Iterable[Mapping[str, Any]], key: str) -> Counter[str]:
    """Key -> its last count. Counts only grow, so that is the largest.

    >>> last_counts([{"word": "a", "count": 2}, {"word": "a", "count": 3}], "word")
    Counter({'a': 3})
    """
    last: Counter[str] = Counter()
    for row in output:
        last[row[key]] = max(last[row[key]], row["count"])
    return last


def check_counts(expected: Counter[str], output: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    """How the last counts differ from those expected; also a count that was sent twice, since each update is a growth.

    >>> check_counts(Counter(a=2), [{"word": "a", "count": 1}, {"word": "a", "count": 1}], "word")
    ["'a': expected 2, got 1", "'a': count 1 was sent 2 times"]
    """
    output = list(output)
    sent = Counter((row[key], row["count"]) for row in output)
    twice = [f"{one!r}: count {n} was sent {times} times" for (one, n), times in sent.items() if times > 1]
    return differences(expected, last_counts(output, key)) + sorted(twice)
