"""Estimate how many more rounds a study needs. Its end depends on results, so this is a forecast and no bound."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.study.stepwise.profile import ProfileRound

# Medians over the studies of figures 11 to 14 (`python -m benchmarks.papers stepwise`).
_PLATFORM_ROUNDS = 6
_CAPACITY_ROUNDS = 2


def rounds_left(rounds: Sequence[ProfileRound], *, max_rounds: int) -> int:
    """Return the expected number of rounds after these.

    Step 2 has a typical length, and a study that is longer already needs one more round at least. Step 3 ends after two
    rounds in a row that are revoked.
    """
    revoked = 0
    for row in reversed(rounds):
        if row.step != "capacity" or row.kept:
            break
        revoked += 1
    left = _CAPACITY_ROUNDS - revoked
    if not rounds or rounds[-1].step == "platform":
        left = max(1, _PLATFORM_ROUNDS - len(rounds)) + _CAPACITY_ROUNDS
    return max(0, min(left, max_rounds - len(rounds)))
