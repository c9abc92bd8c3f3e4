"""What an output and its oracle disagree on, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from datetime import datetime


def differences(expected: Counter[Hashable], seen: Counter[Hashable]) -> list[str]:
    """One sentence an item whose count differs, in a fixed order; none if the two are equal.

    >>> from collections import Counter
    >>> differences(Counter(a=2, b=1), Counter(a=2, b=3, c=1))
    ["'b': expected 1, got 3", "'c': expected 0, got 1"]
    """
    return [
        f"{item!r}: expected {expected[item]}, got {seen[item]}"
        for item in sorted(expected.keys() | seen.keys(), key=repr)
        if expected[item] != seen[item]
    ]


def epoch_ms(at: datetime) -> int:
    """Milliseconds since 1970 of a timestamp as `DataFrame.collect()` gives it: without a zone it is local time."""
    return round(at.timestamp() * 1000)
