"""The decisions of the policy: apply the profiled plan of the platform, and recalibrate it for one of three causes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.control.demand import demand_of
from penstock.control.policies.stepwise.drift import Condition, exceeded, watched
from penstock.control.policies.stepwise.memory import Notes
from penstock.control.policies.stepwise.online_trials import OnlineTrials
from penstock.control.policies.stepwise.recalibration import LIMITS, Cause
from penstock.control.policies.stepwise.turn import RecalibrationSettings, Turn
from penstock.control.policy import Decision, Hold, Memory, Reason, Situation
from penstock.study.stepwise.sequential_test import confidence_interval


@dataclass(frozen=True, slots=True)
class Stepwise:
    settings: RecalibrationSettings
    name: str = field(default="stepwise", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        if isinstance(demand, Hold):
            return demand, memory
        decision, notes = _decide(Turn(self.settings, situation, demand), Notes.of(memory))
        return decision, notes.to_memory(memory)


def _decide(turn: Turn, notes: Notes) -> tuple[Decision, Notes]:
    is_resized = notes.slots not in (None, turn.slots)
    if is_resized or notes.changed != turn.is_changed:
        notes = Notes(slots=notes.slots, changed=turn.is_changed)
    before, notes = notes.slots, replace(notes, slots=turn.slots)
    if notes.recalibration is not None:
        return OnlineTrials(turn).continue_(notes, notes.recalibration)
    if notes.sustained is not None:
        return _watch(turn, notes, notes.sustained)
    profiled = turn.profiled_plan()
    if profiled is None:
        return OnlineTrials(turn).begin(notes, Cause.PROGRAM if turn.is_changed else Cause.PLATFORM)
    plan = profiled.plan.replace(slots=turn.situation.plan.slots)
    if plan == turn.situation.plan:
        return _watch(turn, notes, profiled.rows_per_s)
    size = f"{turn.slots} slots" + (f" instead of {before}" if is_resized else "")
    reason = f"The platform has {size}; the profiled plan for it sustained {profiled.rows_per_s:.4g} rows/s."
    if is_resized:  # until the plan is in force: a guard may delay it
        notes = replace(notes, slots=before)
    return turn.change(plan, profiled.rows_per_s, reason, Reason.PROFILED), notes


def _watch(turn: Turn, notes: Notes, sustained_per_s: float) -> tuple[Decision, Notes]:
    """Hold while the plan processes what it sustained before, and recalibrate it otherwise."""
    thresholds, load_per_s = turn.thresholds(sustained_per_s), turn.load_per_s
    condition, notes = watched(turn.situation, notes, thresholds, turn.throughput_per_s)
    if notes.sustained is not None:  # a recalibrated plan may sustain more than was measured until now
        sustained_per_s = max(notes.sustained, _processed_per_s(turn, notes, condition))
        notes = replace(notes, sustained=sustained_per_s)
    if condition is Condition.DRIFT:
        return OnlineTrials(turn).begin(notes, Cause.DRIFT)
    what = exceeded(turn.situation, thresholds) or "no batch has ended"
    what = what[0].upper() + what[1:]
    rate = f"{sustained_per_s:.4g} rows/s that the plan sustained"
    if load_per_s > sustained_per_s:
        reason = f"The load of {load_per_s:.4g} rows/s is above the {rate}; this is not data drift."
        return turn.hold(Reason.AT_LIMIT, reason, needs_slots=turn.needed_slots(sustained_per_s)), notes
    if condition is Condition.HIGH_LOAD:
        reason = f"{what}, but the throughput is not clearly below the {rate}; this is not data drift."
        return turn.hold(Reason.CATCHING_UP, reason), notes
    if condition is Condition.SUSPECTED:
        assert notes.over_s is not None
        over_s = turn.latest.end_s - notes.over_s
        reason = f"{what}, since {over_s:.0f} s; drift requires {thresholds.lasting_s:g} s and two measured windows."
        return turn.hold(Reason.NOT_YET, reason), notes
    return turn.hold(Reason.WITHIN_TARGET, f"The load of {load_per_s:.4g} rows/s is not above the {rate}."), notes


def _processed_per_s(turn: Turn, notes: Notes, condition: Condition) -> float:
    """Return a rate that the plan certainly sustains: the load without a backlog, or the throughput with one."""
    if condition is Condition.NORMAL:
        return turn.load_per_s
    return confidence_interval(notes.samples)[0] if len(notes.samples) >= LIMITS.min_windows else 0.0
