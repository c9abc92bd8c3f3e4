"""The margin of MST: the factor by which the planned rate exceeds the expected one, learned from insufficient plans.

If a plan should have sufficed but did not keep up, or did not process its backlog in time, the margin becomes the
capacity divided by the processed rate. It decays while no backlog exists, and more slowly each time it was learned
again. A backlog from a plan change, or from a load that rose above the plan, does not count: the processed rate must be
below the input of the latest window and of those before it, or the backlog must last longer than `catch_up_s`.
"""

from __future__ import annotations

from penstock.control.policies.mst.load import AT_S, GAP_S, InputLoad
from penstock.control.policy import Memory

MARGIN, BACKLOG, SLOTS = "mst.margin", "mst.backlog", "mst.slots"
LOW_TURNS, LOW_MOST = (
    "mst.low_turns",
    "mst.low_most",
)  # turns for which fewer executors have sufficed, and their largest number
TOO_SOON = "mst.too_soon"  # how often the margin was learned again before it had decayed
WAITED_S, WAITED_ROWS = "mst.waited_s", "mst.waited_rows"  # duration of the backlog, and rows processed meanwhile
_MOST = 2.0
_DECAY = 0.02  # share of (margin - 1) that a turn without a backlog removes
_DECAYED = 1.01
_LESS, _MUCH_LESS = 0.05, 0.1  # relative shortfall that counts, in general and in the first turn of a plan


def with_margin(load: InputLoad, memory: Memory, *, slots: int, capacity: float, catch_up_s: float) -> dict[str, float]:
    """Return the memory with an updated margin. `capacity` is the rows/s that the current slots should sustain."""
    span_s = load.at_s - memory.get(AT_S, load.at_s)
    same = memory.get(SLOTS) == slots and span_s <= GAP_S
    before = memory.get(BACKLOG, load.backlog) if same else load.backlog
    # Arrivals minus the growth of the backlog: a row that was read may still wait behind its source.
    taken = load.latest - (load.backlog - before) / span_s if span_s > 0 else load.latest
    fell_behind, short = _short_since(load, before, taken) if same else _short_at_first(load)
    waits = same and min(before, load.backlog) > load.ordinary
    waited_s = memory.get(WAITED_S, 0.0) + span_s if waits else 0.0
    waited_rows = memory.get(WAITED_ROWS, 0.0) + taken * span_s if waits else 0.0
    if waited_s > catch_up_s:  # the plan keeps up at best, but does not process the backlog in time
        mean = (1.0 - _LESS) * waited_rows / waited_s
        short, waited_s, waited_rows = mean if 0 < mean < capacity else None, 0.0, 0.0
    margin, too_soon = memory.get(MARGIN, 1.0), memory.get(TOO_SOON, 0.0)
    if short is not None and load.latest <= capacity:
        missing = min(_MOST, capacity / short)
        too_soon += _DECAYED < margin < missing
        margin = max(margin, missing)
    elif load.backlog <= load.ordinary:
        margin = 1.0 + (margin - 1.0) * (1.0 - _DECAY / 2.0**too_soon)
        too_soon = too_soon if margin > _DECAYED else 0.0
    # The current executors did not suffice, so fewer did not either.
    low = {LOW_TURNS: 0.0, LOW_MOST: 0.0} if fell_behind else {}
    now = {MARGIN: margin, TOO_SOON: too_soon, BACKLOG: load.backlog, SLOTS: float(slots)}
    return {**memory, **low, **now, WAITED_S: waited_s, WAITED_ROWS: waited_rows}


def _short_since(load: InputLoad, before: float, taken: float) -> tuple[bool, float | None]:
    """Return whether the backlog grew since the previous turn, and the processed rows/s if they were too few."""
    behind = load.backlog > max(before, load.ordinary) and not load.within_a_batch
    return behind, taken if behind and 0 < taken < min(load.latest, load.earlier) else None


def _short_at_first(load: InputLoad) -> tuple[bool, float | None]:
    """Return the same for the first turn of a plan, from the processed rate: no earlier backlog exists."""
    if load.worked is None or load.backlog <= load.ordinary or load.within_a_batch:
        return False, None
    short = 0 < load.worked < (1.0 - _MUCH_LESS) * min(load.latest, load.earlier)
    return short, load.worked if short else None
