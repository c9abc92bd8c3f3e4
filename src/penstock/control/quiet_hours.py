"""A guard that forbids plan changes in a part of each day, such as the night or the hours of a daily report."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, time, tzinfo

from penstock.control.policy import Change, Decision, Memory, Policy, Reason, Situation
from penstock.dataflow.errors import PenstockError
from penstock.plan.plan import Plan


class QuietHoursError(PenstockError):
    """A text is not a span of hours."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """The hours from `begin` up to, but not including, `end`. They may contain midnight."""

    begin: time
    end: time

    @staticmethod
    def parse(text: str) -> QuietHours:
        """Return the hours that a text such as 22:00-06:00 describes.

        >>> str(QuietHours.parse("22:00-6:30"))
        '22:00-06:30'

        Raises:
            QuietHoursError: The text is not of this form, or both times are equal.
        """
        first, _, last = text.partition("-")
        try:
            begin, end = (datetime.strptime(part.strip(), "%H:%M").time() for part in (first, last))
        except ValueError:
            begin = end = time()
        if begin == end:
            raise QuietHoursError(f"'{text}' is not a span of hours; give two different times such as 22:00-06:00.")
        return QuietHours(begin, end)

    def contain(self, moment: time) -> bool:
        """Return whether the hours contain a time of the day.

        >>> night = QuietHours.parse("22:00-06:00")
        >>> [night.contain(time(hour)) for hour in (21, 22, 0, 5, 6)]
        [False, True, True, True, False]
        """
        if self.begin < self.end:
            return self.begin <= moment < self.end
        return moment >= self.begin or moment < self.end

    def __str__(self) -> str:
        return f"{self.begin:%H:%M}-{self.end:%H:%M}"


@dataclass(frozen=True, slots=True)
class Quiet:
    """Forbid all changes in quiet hours, also the roll-back of an earlier change."""

    policy: Policy
    hours: QuietHours = field(kw_only=True)
    zone: tzinfo | None = field(default=None, kw_only=True)  # None: the local time of this machine

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if isinstance(decision, Change) and (reason := self.forbids(decision.plan, situation)) is not None:
            return decision.vetoed(Reason.QUIET_HOURS, reason), memory
        return decision, memory

    def forbids(self, plan: Plan, situation: Situation) -> str | None:
        """Return why the plan may not be applied now."""
        now = datetime.fromtimestamp(situation.now_s, self.zone)
        if not self.hours.contain(now.time()):
            return None
        return f"It is {now:%H:%M}, and no plan is changed in the quiet hours {self.hours}."
