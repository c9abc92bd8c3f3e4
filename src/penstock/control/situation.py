"""What a policy decides on, as one value, and the contract of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.control.decisions import Decision, Hold, Reason
from penstock.control.shape import Shape
from penstock.measure.window import Window
from penstock.plan.plan import Plan

Memory = Mapping[str, float]  # what a policy has learned: explicit, so that it can be kept and given back


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChange:
    """A plan change that was carried out, by whomever."""

    at_s: float
    old: Plan
    new: Plan
    pause_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    now_s: float
    shape: Shape
    plan: Plan  # in force
    window: Window | None  # smoothed over what was measured under this plan; None: nothing yet
    latest: Window | None  # the last one as it was observed
    changes: tuple[PastChange, ...] = ()  # oldest first
    max_slots: int  # that may be used
    micro_batch: bool = False  # stages of a query run one after another; otherwise all operators run at once
    stale_after_s: float = 60.0
    # From all the rest but `max_slots`.
    worked_out: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def slots(self) -> int:
        """In use."""
        return self.shape.slots(self.plan, micro_batch=self.micro_batch)

    def waiting(self, window: Window) -> int:
        """Rows that wait anywhere, each once: row by row those right behind a source are counted as its own, too."""
        rows = {one.operator: one.backlog_rows or 0 for one in window.operators}
        twice = 0
        if not self.micro_batch:
            for name in self.shape.sources:
                if name not in self.plan.cuts:
                    behind = sum(rows.get(one.name, 0) for one in self.shape.flow.consumers(name))
                    twice += min(rows.get(name, 0), behind)
        return sum(rows.values()) - twice

    def within(self, max_slots: int) -> Situation:
        """With so many slots that may be used; what was worked out does not depend on them, and is shared."""
        found = replace(self, max_slots=max_slots)
        object.__setattr__(found, "worked_out", self.worked_out)
        return found

    def measured(self) -> tuple[Window, Window] | Hold:
        """`window` and `latest`, or why nothing is to be decided on them."""
        if self.window is None or self.latest is None:
            return Hold(reason=Reason.MISSING, why="nothing has been measured under this plan yet")
        if (age_s := self.now_s - self.latest.end_s) > self.stale_after_s:
            return Hold(
                reason=Reason.STALE,
                why=f"the last window ended {age_s:.0f} s ago; older than {self.stale_after_s:g} s is stale",
            )
        return self.window, self.latest


class Policy(Protocol):
    """Pure: the same situation and memory give the same decision, and nothing else happens.

    Contract: nothing but Hold where metrics are missing or stale; a plan that is valid for the dataflow and uses at
    most `max_slots`.
    """

    @property
    def name(self) -> str: ...

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]: ...
