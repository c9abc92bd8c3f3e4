"""The state that a plan change will move, as an estimate before the change. The engine measures what it has moved.

A cut moves no state: the operators keep their checkpoints or threads. Other replicas of a region with state move
part of it. Row by row, consistent hashing from k to n replicas moves the share |n - k| / max(n, k) of the keys. On
Spark, the state of the region is repartitioned, which rewrites all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.control.policy import Situation
from penstock.plan.plan import Plan, diff


class MovedState(NamedTuple):
    rows: float | None  # None: the engine does not count the rows of its state
    bytes: float | None

    def __str__(self) -> str:
        if not self.rows and not self.bytes:
            return "no state"
        rows = "an unknown number of rows" if self.rows is None else f"{self.rows:,.0f} rows"
        return rows if self.bytes is None else f"{rows} ({self.bytes:,.0f} bytes)"


def moved_state(situation: Situation, old: Plan, new: Plan) -> MovedState:
    """Return the state that the change between two plans moves, by the state sizes of the latest window."""
    window = situation.window
    assert window is not None
    seen = {operator.operator: operator for operator in window.operators}
    changed = diff(old, new).replicas
    rows: list[float | None] = []
    sizes: list[float | None] = []
    for region in situation.topology.regions:
        before, after = changed.get(region.name, (None, None))
        if before is None or after is None:
            continue
        share = 1.0 if situation.micro_batch else abs(after - before) / max(after, before)
        for name in region.operators:
            if situation.topology.operators[name].kind.has_state and name in seen:
                rows.append(_times(seen[name].state_rows, share))
                sizes.append(_times(seen[name].state_bytes, share))
    return MovedState(rows=_total(rows), bytes=_total(sizes))


def _times(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


def _total(values: list[float | None]) -> float | None:
    """Return the sum of the known values; None if there are values and all are unknown."""
    known = [value for value in values if value is not None]
    return None if values and not known else float(sum(known))
