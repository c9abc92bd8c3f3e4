"""A scripted policy, and the engine for tests of the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.control.policy import Change, Decision, Hold, Memory, Reason, Situation
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import DecisionRecord
from tests.support.applications import plan_of, video
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import QueueingEngine

SERVICE = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
START = {"extract": 3, "match": 3, "aggregate": 1}


def scripted_engine(
    clock: FakeClock, *, rate: float = 6.0, counts: dict[str, int] = START, **known: Any
) -> QueueingEngine:
    flow = video()
    return QueueingEngine(
        flow,
        plan_of(flow, counts),
        clock=clock,
        **{"rate": lambda _: rate, "service_per_s": SERVICE} | known,
    )


@dataclass(frozen=True)
class Scripted:
    """A policy that decides by a function of the situation, for tests of the loop."""

    decides: Callable[[Situation], Decision]
    name: str = field(default="scripted", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        return self.decides(situation), memory


def changing(**counts: int) -> Scripted:
    """Return a policy that always requests these replicas and expects half the latency."""

    def decides(situation: Situation) -> Decision:
        plan = situation.plan.replace(replicas=situation.plan.replicas | counts)
        if plan == situation.plan:
            return Hold(reason_code=Reason.BEST, reason="there already")
        assert situation.window is not None and situation.window.latency is not None
        now_s = situation.window.latency.mean_s
        staying = PlanOutcome(slots=situation.slots, latency_s=now_s)
        return Change(
            plan=plan,
            reason_code=Reason.SHORTAGE,
            reason="as scripted",
            staying=staying,
            expected=PlanOutcome(slots=sum(plan.replicas.values()), latency_s=now_s / 2),
        )

    return Scripted(decides)


def reasons(rows: list[DecisionRecord]) -> list[str]:
    return [row.reason_code for row in rows]
