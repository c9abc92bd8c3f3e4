"""Compare the output of an app with its oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

Item = TypeVar("Item", bound=Hashable)


def differences(expected: Counter[Item], actual: Counter[Item]) -> list[str]:
    """Return one sentence for each item whose count differs, in a fixed order.

    >>> from collections import Counter
    >>> differences(Counter(a=2, b=1), Counter(a=2, b=3, c=1))
    ["'b': expected 1, got 3", "'c': expected 0, got 1"]
    """
    return [
        f"{item!r}: expected {expected[item]}, got {actual[item]}"
        for item in sorted(expected.keys() | actual.keys(), key=repr)
        if expected[item] != actual[item]
    ]


def last_counts(output: Iterable[Mapping[str, Any]], key: str) -> Counter[str]:
    """Return the last count of each key from rows in output mode update. Counts only grow, so the largest is the last.

    >>> last_counts([{"word": "a", "count": 2}, {"word": "a", "count": 3}], "word")
    Counter({'a': 3})
    """
    last: Counter[str] = Counter()
    for row in output:
        last[row[key]] = max(last[row[key]], row["count"])
    return last


def count_differences(expected: Counter[str], output: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    """Return the differences between the expected and the last counts, and the counts that were emitted twice.

    Every update increases a count. A repeated count is therefore a duplicate.

    >>> count_differences(Counter(a=2), [{"word": "a", "count": 1}, {"word": "a", "count": 1}], "word")
    ["'a': expected 2, got 1", "'a': count 1 was sent 2 times"]
    """
    rows = list(output)
    emitted = Counter((row[key], row["count"]) for row in rows)
    repeated = [f"{item!r}: count {n} was sent {times} times" for (item, n), times in emitted.items() if times > 1]
    return differences(expected, last_counts(rows, key)) + sorted(repeated)


def epoch_ms(at: datetime) -> int:
    """Return milliseconds since 1970 of a timestamp from `DataFrame.collect()`, which is local time without a zone."""
    return round(at.timestamp() * 1000)
