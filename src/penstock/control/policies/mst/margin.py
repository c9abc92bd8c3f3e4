"""The margin of policy mst: how much more to plan for than the capacity says, learned from where that was wrong.

Where a plan that should have sufficed did not keep up, or did not catch up, the margin becomes what was missing, and it
fades while all is well, the slower the more often that was too soon. What piled up while the plan was being changed was
no fault of the plan, and neither is what piled up because the load stepped above it: it has to fall short of what came
in the very window, and of what came before it, or rows have to wait for longer than they were to.
"""

from __future__ import annotations

from penstock.control.policies.mst.load import AT_S, GAP_S, InputLoad
from penstock.control.policy import Memory

MARGIN, BACKLOG, SLOTS = "mst.margin", "mst.backlog", "mst.slots"
LOW_TURNS, LOW_MOST = "mst.low_turns", "mst.low_most"  # for how long fewer executors have sufficed, and how many
TOO_SOON = "mst.too_soon"  # how often the margin was learned again before it had faded
WAITED_S, WAITED_ROWS = "mst.waited_s", "mst.waited_rows"  # for how long rows have waited, and rows taken meanwhile
_MOST = 2.0
_FADES = 0.02  # of the margin above 1, a quiet turn
_FADED = 1.01
_LESS, _MUCH_LESS = 0.05, 0.1  # of what comes: less is noise, and more so where a plan has just begun


def with_margin(load: InputLoad, memory: Memory, *, slots: int, capacity: float, catch_up_s: float) -> dict[str, float]:
    """`capacity`, in rows/s, is what the slots in use should sustain."""
    span_s = load.at_s - memory.get(AT_S, load.at_s)
    same = memory.get(SLOTS) == slots and span_s <= GAP_S
    before = memory.get(BACKLOG, load.backlog) if same else load.backlog
    # Of what arrived, that which did not come to wait: a row that was read may still be waiting behind its source.
    taken = load.latest - (load.backlog - before) / span_s if span_s > 0 else load.latest
    fell_behind, short = _short_since(load, before, taken) if same else _short_at_first(load)
    waits = same and min(before, load.backlog) > load.ordinary
    waited_s = memory.get(WAITED_S, 0.0) + span_s if waits else 0.0
    waited_rows = memory.get(WAITED_ROWS, 0.0) + taken * span_s if waits else 0.0
    if waited_s > catch_up_s:  # it was to be gone by now; what just keeps up does not catch up
        mean = (1.0 - _LESS) * waited_rows / waited_s
        short, waited_s, waited_rows = mean if 0 < mean < capacity else None, 0.0, 0.0
    margin, too_soon = memory.get(MARGIN, 1.0), memory.get(TOO_SOON, 0.0)
    if short is not None and load.latest <= capacity:
        missing = min(_MOST, capacity / short)
        too_soon += _FADED < margin < missing
        margin = max(margin, missing)
    elif load.backlog <= load.ordinary:
        margin = 1.0 + (margin - 1.0) * (1.0 - _FADES / 2.0**too_soon)
        too_soon = too_soon if margin > _FADED else 0.0
    # Fewer have not sufficed while not even these did.
    low = {LOW_TURNS: 0.0, LOW_MOST: 0.0} if fell_behind else {}
    now = {MARGIN: margin, TOO_SOON: too_soon, BACKLOG: load.backlog, SLOTS: float(slots)}
    return {**memory, **low, **now, WAITED_S: waited_s, WAITED_ROWS: waited_rows}


def _short_since(load: InputLoad, before: float, taken: float) -> tuple[bool, float | None]:
    """Whether more waits than at the turn before, and the rows/s that were taken if those were too few."""
    behind = load.backlog > max(before, load.ordinary) and not load.within_a_batch
    return behind, taken if behind and 0 < taken < min(load.latest, load.earlier) else None


def _short_at_first(load: InputLoad) -> tuple[bool, float | None]:
    """The first turn under a plan may be its last: there is no backlog to compare with, but what was done."""
    if load.worked is None or load.backlog <= load.ordinary or load.within_a_batch:
        return False, None
    short = 0 < load.worked < (1.0 - _MUCH_LESS) * min(load.latest, load.earlier)
    return short, load.worked if short else None
