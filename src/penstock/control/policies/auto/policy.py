"""The decisions of policy auto.

1. Learn from the latest window: costs, batch times, and whether the plan met the target at this load.
2. Stay if the plan meets the target under the expected load. Measurements override the model: a plan that held at
   this load for long enough stays, and a plan that failed at this load or a lower one does not.
3. Otherwise change to the cheapest plan that meets the target under the expected load, with costs at the unfavourable
   ends of their intervals. Without such a plan within the limit, use the best one within it. See `shortage`.
4. Release slots if a cheaper plan would also have held over the recorded load. See `release`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control.evaluation import normal_backlog_rows
from penstock.control.forecast import forecast
from penstock.control.policies.auto.allocations import allocations
from penstock.control.policies.auto.choices import STAY_LATE, Choice, Chooser, View
from penstock.control.policies.auto.decisions import Decisions
from penstock.control.policies.auto.learned import Learned, UnjudgedChange, load_level, plan_key
from penstock.control.policies.auto.learning import (
    add_batches,
    measured_demand,
    network_of,
    networks,
    placed_replicas,
    present_counts,
)
from penstock.control.policies.auto.release import Release
from penstock.control.policies.auto.replay import Loads, ReplayedPlan, Target, replay
from penstock.control.policies.auto.shortage import Shortage, lasts_s
from penstock.control.policy import Change, Decision, Hold, Memory, Reason, Situation, Verdict, latency_s
from penstock.control.recorded_load import RecordedRate
from penstock.measure.window import Window
from penstock.plan.counts import slots_text

_SLOW_DRAIN_S = 150.0
_IMPROVES = 0.97  # latency relative to the one before it, under a plan that still processes the rows of its pause
_LEAST_GAIN = 0.15  # smallest relative gain of latency, without a target
_LATE_IN_A_ROW = 3  # windows after which a plan with a growing backlog counts as insufficient
_LATE_BATCHES = 3.0  # in micro-batches, as many batches more
_JUDGED_WINDOWS = 3
_UNLIMITED = 10_000
_RESULT_S = 10.0  # results of shorter windows are not independent


@dataclass(frozen=True, slots=True)
class Auto:
    """The cheapest plan that meets the target within the limit; without a target, the fastest plan within it."""

    target: Target | None = None
    slots_per_executor: int = field(default=1, kw_only=True)
    min_executors: int = field(default=1, kw_only=True)
    name: str = field(default="auto", init=False)
    evaluates_changes: bool = field(default=True, init=False)

    @property
    def _chooser(self) -> Chooser:
        return Chooser(target=self.target, slots_per_executor=self.slots_per_executor, min_executors=self.min_executors)

    @property
    def _decisions(self) -> Decisions:
        return Decisions(self._chooser)

    @property
    def _shortage(self) -> Shortage:
        return Shortage(self._chooser, self._decisions)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        measured = situation.measured()
        if isinstance(measured, Hold):
            return measured, memory
        _, latest = measured
        learned = Learned.of(memory)
        learned.use_target(None if self.target is None else (self.target.seconds, self.target.quantile))
        view = self._view(situation, learned, latest)
        if isinstance(view, Hold):
            return view, {**memory, **learned.memory()}
        verdict = self._learn(view)
        decision = self._decide(view)
        if verdict is not None:
            decision = replace(decision, verdict=verdict)
        if isinstance(decision, Change):
            learned.pending = UnjudgedChange(at_s=situation.now_s, level=view.level)
        return decision, {**memory, **learned.memory()}

    # ---- learning

    def _view(self, situation: Situation, learned: Learned, latest: Window) -> View | Hold:
        if not situation.recorded:  # the rate of the only window
            rate = RecordedRate(latest.start_s, latest.end_s, latest.external_rows_per_s or 0.0)
            situation = replace(situation, recorded=(rate,))
        key = plan_key(situation.plan)
        if learned.plan != key:
            learned.plan, learned.clean, learned.late_in_a_row = key, False, 0
        measured = measured_demand(situation, learned)
        if isinstance(measured, Hold):
            return measured
        if latest.end_s > learned.seen_until_s or latest.end_s < learned.seen_until_s - 3600.0:
            shared = 1.0 if situation.micro_batch else placed_replicas(situation) / situation.plan.slots
            learned.add_operators(latest, latest.end_s - latest.start_s, slowdown=max(1.0, shared))
        present = network_of(measured, learned, situation.plan.cuts)
        if situation.micro_batch and latest.end_s != learned.seen_until_s:
            add_batches(learned, present, situation, latest)
            present = network_of(measured, learned, situation.plan.cuts)
        lead_s = self._chooser.lead_s(situation)
        quantile = None if self.target is None else self.target.quantile
        late_s = None if situation.window is None else latency_s(situation.window.latency, quantile)
        is_late = self.target is not None and late_s is not None and late_s > self.target.seconds
        expected = forecast(situation.recorded, lead_s=lead_s, is_late=is_late)
        later = forecast(situation.recorded, lead_s=lead_s + lasts_s(expected, learned), is_late=is_late)
        window_s = max(_RESULT_S, latest.end_s - latest.start_s)
        rates, later_rates = (
            np.resize(known, max(24, len(known))) for known in (expected.rates_per_s, later.rates_per_s)
        )
        now_rates = rates * (expected.present_per_s / expected.level_per_s if expected.level_per_s > 0 else 1.0)
        if latest.latency is not None:
            learned.out_s = latest.end_s
        # Rows in a batch that has not ended do not wait any more, and have not been processed either.
        in_progress = (latest.external_rows_per_s or 0.0) * max(0.0, latest.end_s - learned.out_s - window_s)
        waiting = max(float(situation.backlog_rows(latest)), in_progress if learned.out_s else 0.0)
        learned.batch_s = max((query.batch_max_s or 0.0 for query in latest.pipelines), default=0.0) or learned.batch_s
        excess = max(0.0, waiting - normal_backlog_rows(situation, latest))
        backlog = learned.add_waiting(latest.end_s, excess, window_s)
        return View(
            situation=situation,
            measured=measured,
            learned=learned,
            latest=latest,
            expected=expected,
            loads=Loads(rates_per_s=rates, step_s=window_s, window_s=window_s),
            later=Loads(rates_per_s=later_rates, step_s=window_s, window_s=window_s),
            now=Loads(rates_per_s=now_rates, step_s=window_s, window_s=window_s),
            level=load_level(expected.level_per_s * measured.work_per_row),
            present=present,
            networks=networks(measured, learned, present),
            backlog_rows=backlog,
        )

    def _learn(self, view: View) -> Verdict | None:
        """Record how the plan did in the latest window; return the verdict on the last change once it is known."""
        learned, latest, situation = view.learned, view.latest, view.situation
        if latest.end_s == learned.seen_until_s:
            return None
        learned.seen_until_s = latest.end_s
        assert situation.window is not None
        if 0.0 <= latest.end_s - learned.result_s < 0.9 * _RESULT_S:
            return None
        result_s, learned.result_s = learned.result_s, latest.end_s
        had_backlog = learned.backlog_rows > 0.0
        grows = learned.grows
        learned.backlog_rows = view.backlog_rows
        measured_s = latency_s(situation.window.latency, None if self.target is None else self.target.quantile)
        is_stuck = measured_s is None and view.backlog_rows > 0.0
        late = is_stuck or (self.target is not None and measured_s is not None and measured_s > self.target.seconds)
        learned.late_in_a_row = learned.late_in_a_row + 1 if late else 0
        learned.add_late(view.loads.window_s * late, latest.end_s - result_s)
        before_s, learned.latency_s = learned.latency_s, measured_s
        improves = before_s is not None and measured_s is not None and measured_s < _IMPROVES * before_s
        learned.clean = learned.clean or (view.backlog_rows == 0.0 and not (late and improves))
        patience = _LATE_IN_A_ROW + math.ceil(_LATE_BATCHES * learned.batch_s / view.loads.window_s)
        counts_as_result = learned.clean and (grows or not had_backlog or not late)
        if counts_as_result or (not learned.clean and late and grows and learned.late_in_a_row >= patience):
            counts = present_counts(view.present, situation.plan)
            now = Loads(
                rates_per_s=np.array([latest.external_rows_per_s or 0.0]),
                step_s=view.loads.step_s,
                window_s=view.loads.window_s,
            )
            predicted = replay(view.present, counts, now, self.target, correction=1.0)
            learned.add_result(
                learned.plan,
                situation.slots,
                level=view.level,
                late=late,
                measured_s=None if view.backlog_rows > 0 else measured_s,
                predicted_s=predicted.latency_s,
                at_s=situation.now_s,
                span_s=view.loads.window_s,
            )
        return self._verdict(view)

    def _verdict(self, view: View) -> Verdict | None:
        learned, pending = view.learned, view.learned.pending
        if pending is None or not view.situation.changes:
            return None
        if abs(view.level - pending.level) > 4:  # a load that differs by more than 20 %
            learned.pending = None
            return "load changed"
        record = learned.plans.get(learned.plan)
        if record is None or sum(windows for windows, _ in record.levels.values()) < _JUDGED_WINDOWS:
            return None
        learned.pending = None
        return "fell short" if learned.has_failed(learned.plan, view.level) else "kept"

    # ---- deciding

    def _decide(self, view: View) -> Decision:
        situation, learned = view.situation, view.learned
        staying = self._chooser.replayed(view, view.present, present_counts(view.present, situation.plan), view.loads)
        if self.target is None:
            return self._fastest(view, staying)
        failed = learned.has_failed(learned.plan, view.level)
        held = learned.has_held(learned.plan, view.level)
        drain_s = self._chooser.drain_s(view)
        beyond = situation.slots > situation.max_slots
        short = (
            beyond
            or failed
            or drain_s > _SLOW_DRAIN_S
            or (staying.late > STAY_LATE and not (held and staying.late < 0.2 and view.expected.slope_per_s2 <= 0.0))
        )
        if short:
            return self._shortage.decide(view, staying, failed=failed)
        if view.backlog_rows > 0.0 and drain_s > 2.0 * view.loads.window_s:
            why = f"{view.backlog_rows:,.0f} rows wait; the current plan processes them in about {drain_s:.0f} s"
            return self._decisions.hold(view, staying, Reason.CATCHING_UP, why)
        if (early := self._shortage.early(view, staying)) is not None:
            return early
        return Release(self._chooser, self._decisions).decide(view, staying)

    def _fastest(self, view: View, staying: ReplayedPlan) -> Decision:
        """Without a target: the plan with the lowest latency within the limit."""
        situation = view.situation
        best: Choice | None = None
        rate = self._chooser.planning_rate(view)
        limiting: str | None = None
        needs = _UNLIMITED
        for network in view.networks:
            path = allocations(network, rate, most_slots=situation.max_slots)
            limiting = limiting or path.unstable
            needs = min(needs, path.slots(0))
            choice = self._chooser.best_within(view, network, path)
            if choice is not None and (best is None or choice.result.latency_s < 0.97 * best.result.latency_s):
                best = choice
        gain = 0.0 if best is None else 1.0 - best.result.latency_s / staying.latency_s
        beyond = situation.slots > situation.max_slots
        if best is None or (gain < _LEAST_GAIN and not beyond):
            if needs > situation.max_slots and limiting is None:
                reason = f"the load needs {slots_text(needs)}, but only {situation.max_slots} are allowed"
                return self._decisions.hold(view, staying, Reason.AT_LIMIT, reason, needs=needs)
            reason = f"no plan within {slots_text(situation.max_slots)} is {_LEAST_GAIN:.0%} faster"
            return self._decisions.hold(view, staying, Reason.BEST, reason, binding=limiting)
        return self._decisions.change(view, staying, best, Reason.RELEASE if beyond else Reason.REALLOCATION, "")
