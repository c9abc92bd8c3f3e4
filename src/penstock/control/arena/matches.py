"""A match: one policy on one case, measured against the fixed plans of the case in hindsight."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from penstock.control.arena.cases import SETTLED_S, WINDOW_S, Case, Cell
from penstock.control.arena.clairvoyant import PlanSchedule
from penstock.control.arena.fixed_plans import ALLOWED_LATE, HindsightPlans, window_latency_s
from penstock.control.arena.loads import LENGTH_S
from penstock.control.controller import Settings
from penstock.control.policy import Decision, Memory, Policy, Situation
from penstock.control.simulation import Duration, simulate
from penstock.engines.simulated import SimulatedEngine
from penstock.measure.window import Window
from penstock.store import DecisionRecord, Store

_AFTER_S = (30.0, 150.0)  # time after a change in which its prediction is compared with the windows
_GROWS = 0.8  # share of the rows of the last ten minutes that wait at the end, if a backlog is not bounded


Sample = tuple[float, float, float, int, float]  # start, span, latency, slots in use, backlog in seconds


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one policy on one case. Windows that begin before `SETTLED_S` do not count."""

    cell: Cell
    policy: str
    late: float  # share of the windows above the target
    slot_hours: float
    relative_cost: float  # slot-hours relative to the cheapest fixed plan
    changes: int  # in the whole time
    late_changes: int  # after the first hour
    rolled_back: int
    most_backlog_s: float  # longest time in which the rows that wait arrived
    recovery_s: float  # longest time in which all windows were late
    unbounded: bool  # the backlog grew until the end
    # Windows from 30 to 150 s after a change within the predicted interval of 90 % of windows, and all these windows.
    coverage: tuple[int, int]
    target_s: float
    fixed_slots: int
    schedule_late: float  # late windows of the clairvoyant schedule
    allowed_late: float  # the same, and at least the share that every plan may have
    schedule_cost: float  # slot-hours relative to the clairvoyant schedule
    decide_s: float  # longest time of a decision
    decisions: tuple[str, ...] = ()  # the changes, in words


def play(policy: Policy, case: Case, reference: HindsightPlans, schedule: PlanSchedule, settings: Settings) -> Match:
    """Simulate the policy on a case from the case's first plan."""
    engine = _ObservedEngine(case)
    policy = timed = _Timed(policy)
    with tempfile.TemporaryDirectory() as at, Store(Path(at)) as store:
        _, rows = simulate(
            policy,
            engine,
            store,
            settings,
            clock=engine.clock,
            duration=Duration(windows=case.windows, window_s=WINDOW_S),
        )
    counted = [sample for sample in engine.samples if sample[0] >= SETTLED_S]
    late = np.mean([latency_s > reference.target_s for _, _, latency_s, _, _ in counted])
    slot_seconds = sum(span_s * slots for _, span_s, _, slots, _ in counted)
    seconds = sum(span_s for _, span_s, _, _, _ in counted)
    backlog_s = [backlog for _, _, _, _, backlog in counted]
    last = [backlog for at_s, _, _, _, backlog in counted if at_s > counted[-1][0] - 900.0]
    return Match(
        cell=case.cell,
        policy=policy.name,
        late=float(late),
        slot_hours=slot_seconds / 3600.0,
        relative_cost=slot_seconds / seconds / reference.cheapest_slots,
        changes=len(rows),
        late_changes=sum(row.at_s > 3600.0 for row in rows),
        rolled_back=sum(row.verdict == "rolled back" for row in rows),
        most_backlog_s=max(backlog_s),
        recovery_s=_longest_late_s(counted, reference.target_s),
        unbounded=last[-1] > 300.0 and last[-1] > last[0] / _GROWS,
        coverage=coverage(engine.samples, rows),
        target_s=reference.target_s,
        fixed_slots=reference.cheapest_slots,
        schedule_late=schedule.late,
        allowed_late=max(schedule.late, ALLOWED_LATE),
        schedule_cost=slot_seconds / seconds * (LENGTH_S - SETTLED_S) / 3600.0 / schedule.slot_hours,
        decide_s=timed.longest_s,
        decisions=tuple(f"{row.at_s:.0f} s, {row.reason_code}, {row.verdict or '-'}: {row.reason}" for row in rows),
    )


def _longest_late_s(samples: Sequence[Sample], target_s: float) -> float:
    longest_s = late_s = 0.0
    for sample in samples:
        late_s = late_s + sample[1] if sample[2] > target_s else 0.0
        longest_s = max(longest_s, late_s)
    return longest_s


class _Timed:
    """A policy whose decisions are timed, in processor time: other processes do not count."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy  # under this name, guards and policies inside are found
        self.name = policy.name
        self.longest_s = 0.0

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        began_s = time.process_time()
        try:
            return self.policy.decide(situation, memory)
        finally:
            self.longest_s = max(self.longest_s, time.process_time() - began_s)


def coverage(samples: Sequence[Sample], changes: Sequence[DecisionRecord]) -> tuple[int, int]:
    """Return how many windows after changes were within the predicted interval, and how many had a latency at all.

    A prediction without a measured window after it is unknown, and does not count. The windows after a later change
    belong to the prediction of that one.
    """
    within = known = 0
    ends_s = [row.at_s for row in changes[1:]] + [math.inf]
    for row, end_s in zip(changes, ends_s, strict=False):  # without a change there is no end either
        expected = row.expected
        if expected is None or expected.low_s is None or expected.high_s is None:
            continue
        first_s, last_s = row.at_s + _AFTER_S[0], min(row.at_s + _AFTER_S[1], end_s)
        after = [sample[2] for sample in samples if first_s <= sample[0] < last_s and not math.isnan(sample[2])]
        known += len(after)
        within += sum(expected.low_s <= latency_s <= expected.high_s for latency_s in after)
    return within, known


class _ObservedEngine(SimulatedEngine):
    """A simulated engine that keeps (start, span, latency, slots in use, backlog in seconds) of each window."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.samples: list[Sample] = []
        self._rate = 1.0
        super().__init__(
            case.dataflow.flow,
            case.behaviour,
            plan=case.first_plan,
            mode=case.cell.engine,
            seed=case.cell.seed + 1000,
        )

    def observe(self) -> Window:
        window = super().observe()
        slots = min(self.plan.slots, self._case.topology.slots(self.plan, micro_batch=self._case.micro_batch))
        waiting = sum(operator.backlog_rows or 0 for operator in window.operators)
        self._rate = 0.95 * self._rate + 0.05 * (window.external_rows_per_s or 0.0)
        self.samples.append(
            (
                window.start_s,
                window.end_s - window.start_s,
                window_latency_s(window),
                slots,
                waiting / max(self._rate, 1e-9),
            )
        )
        return window
