"""DRS with micro-batch queries: its recommendation when the available slots do not suffice."""

from __future__ import annotations

import math
from itertools import product

import pytest

from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots
from penstock.control.policy import Change, Hold
from tests.support.situations import situation_of

BATCH_S, REPLICA_S = 0.1, 0.02  # parameters of the engine below
WORK = (1 / 5.0 + 1 / 4.5, 1 / 100.0)  # s per row: extract and match in one query, aggregate in another
STAGES = (2, 1)


def fewest(rate: float, target_s: float) -> int:
    """Return the fewest slots for which the sum of 1.5 (a + s b k) / (1 - rate c / k) over queries meets the target."""
    slots = []
    for counts in product(range(1, 60), range(1, 6)):
        if all(rate * c < k for c, k in zip(WORK, counts, strict=True)):
            each = zip(WORK, STAGES, counts, strict=True)
            stays = [1.5 * (BATCH_S + s * REPLICA_S * k) / (1 - rate * c / k) for c, s, k in each]
            slots += [sum(counts)] if sum(stays) <= target_s else []
    return min(slots)


def decided(counts: tuple[int, int, int], slots: int, rate: float, target_s: float) -> Hold | Change:
    situation = situation_of("video", counts, rate, slots, micro_batch=True)
    uncut = DrsSettings(goal=FewestSlots(max_s=target_s), worth_slots=math.inf)
    decision, _ = Drs(uncut).decide(situation, {})
    return decision


@pytest.mark.parametrize(
    ("counts", "slots", "rate", "target_s"), [((3, 3, 1), 5, 5.0, 0.98), ((6, 6, 1), 7, 10.0, 1.6)]
)
def test_slots_beyond_the_master_s_are_reported(
    counts: tuple[int, int, int], slots: int, rate: float, target_s: float
) -> None:
    decision = decided(counts, slots, rate, target_s)
    assert decision.needs_slots == fewest(rate, target_s) > slots
    assert str(decision.needs_slots) in decision.reason


def test_slots_beyond_the_master_s_are_reported_if_one_query_alone_needs_more() -> None:
    # Under a backlog the fixed time of a batch cannot be identified, so there is no exact number.
    decision = decided((1, 1, 1), 3, 40.0, 4.0)
    assert decision.needs_slots is not None and decision.needs_slots > 40.0 * sum(WORK)
