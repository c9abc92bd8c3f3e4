"""The decisions of policy auto.

1. Learn from the latest window: costs, batch times, and whether the plan met the target at this load.
2. Stay if the plan meets the target under the expected load. Measurements override the model: a plan that held at
   this load for long enough stays, and a plan that failed at this load or a lower one does not.
3. Otherwise change to the cheapest plan that meets the target under the expected load, with costs at the unfavourable
   ends of their intervals. Without such a plan within the limit, use the best one within it.
4. Release slots if a cheaper plan would also have held over the recorded load. The smaller the saving, the longer the
   recorded time that is required: a change interrupts processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control.evaluation import normal_backlog_rows
from penstock.control.forecast import forecast
from penstock.control.policies.auto.allocations import Allocations, allocations
from penstock.control.policies.auto.choices import Choice, Chooser, View
from penstock.control.policies.auto.learned import Learned, UnjudgedChange, load_level, plan_key
from penstock.control.policies.auto.learning import (
    add_batches,
    measured_demand,
    network_of,
    networks,
    placed_replicas,
    present_counts,
)
from penstock.control.policies.auto.network import QueueNetwork
from penstock.control.policies.auto.replay import Loads, ReplayedPlan, Target, replay
from penstock.control.policies.auto.sentences import bottleneck, interval, limit_text, observed
from penstock.control.policy import Change, Decision, Hold, Memory, Reason, Situation, Verdict, latency_s
from penstock.control.recorded_load import RecordedRate, rates_of
from penstock.measure.window import Window
from penstock.plan.counts import slots_text
from penstock.planning.plan_outcome import Alternative, PlanOutcome

_STAY_LATE = 0.03  # a plan is left from this share of late windows on; one is chosen with less
_LEAD_S = 120.0  # time from a decision until the new plan has an effect, besides the pause
_LASTS_S = 240.0  # a plan for a rising load is to last for this time
_SLOW_DRAIN_S = 150.0
# A release with the saving x (a share) requires that the plan had held for this time / x: a constant, and a multiple
# of the time in which its windows are late.
_INTERRUPTION_S = 100.0
_LATE_WEIGHT = 10.0
_LATE_ALLOWANCE_S = 36.0  # time in late windows per hour from which further ones count twice
_IMPROVES = 0.97  # latency relative to the one before it, under a plan that still processes the rows of its pause
_RECORDED = 1.3  # a plan may be said to have held for this multiple of the record
_HORIZONS_S = (300.0, 420.0, 600.0, 900.0, 1350.0, 1800.0, 2700.0, 3600.0)
_SETTLED_S = 600.0  # longest time without a change that a release requires
_LEAST_SAVING = 0.04
_LEAST_GAIN = 0.15  # smallest relative gain of latency, without a target
_LATE_IN_A_ROW = 3  # windows after which a plan with a growing backlog counts as insufficient
_LATE_BATCHES = 3.0  # in micro-batches, as many batches more
_JUDGED_WINDOWS = 3
_UNLIMITED = 10_000
_SHORT_RECORD_S = 240.0
_RESULT_S = 10.0  # results of shorter windows are not independent
_RECOVERY_S = 30.0  # time in which the rows of the pause of a change are to be processed


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
        lead_s = _LEAD_S + self._chooser.pause_s(situation)
        quantile = None if self.target is None else self.target.quantile
        late_s = None if situation.window is None else latency_s(situation.window.latency, quantile)
        is_late = self.target is not None and late_s is not None and late_s > self.target.seconds
        expected = forecast(situation.recorded, lead_s=lead_s, is_late=is_late)
        later = forecast(situation.recorded, lead_s=lead_s + _LASTS_S, is_late=is_late)
        window_s = max(_RESULT_S, latest.end_s - latest.start_s)
        rates, later_rates = (
            np.resize(known, max(24, len(known))) for known in (expected.rates_per_s, later.rates_per_s)
        )
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
            level=load_level(expected.level_per_s * measured.work_per_row),
            present=present,
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
            or (staying.late > _STAY_LATE and not (held and staying.late < 0.2))
        )
        if short:
            return self._shortage(view, staying, failed=failed)
        if view.backlog_rows > 0.0 and drain_s > 2.0 * view.loads.window_s:
            why = f"{view.backlog_rows:,.0f} rows wait; the current plan processes them in about {drain_s:.0f} s"
            return self._hold(view, staying, Reason.CATCHING_UP, why)
        return self._release(view, staying)

    def _shortage(self, view: View, staying: ReplayedPlan, *, failed: bool) -> Decision:
        """Change to the cheapest plan that meets the target, or to the best one within the limit."""
        situation = view.situation
        # If the model finds the current plan sufficient and measurements do not, it takes more than the current slots.
        fewest = math.ceil(1.08 * situation.slots) if failed and situation.slots <= situation.max_slots else 0
        different = networks(view.measured, view.learned)
        wanted = self._chooser.planning_rate(view) * (1.0 + self._chooser.pause_s(situation) / _RECOVERY_S)
        for rate in (wanted, self._chooser.steady_rate(view)):  # without the backlog if that is too much for the limit
            paths = [allocations(network.cautious(), rate, most_slots=situation.max_slots) for network in different]
            choices = [
                (choice, path)
                for network, path in zip(different, paths, strict=True)
                if (choice := self._chooser.cheapest(view, network, path, [view.later], fewest=fewest)) is not None
            ]
            if choices:
                cheapest, path = min(choices, key=lambda known: known[0].slots)
                best = self._chooser.settling_sooner(view, path, cheapest, most=situation.max_slots, grows=True)
                reason_code = Reason.SHORTAGE if best.slots > self._chooser.paid(situation) else Reason.REALLOCATION
                return self._change(view, staying, best, reason_code, "")
        return self._beyond_limit(view, staying, list(zip(different, paths, strict=True)))

    def _beyond_limit(
        self, view: View, staying: ReplayedPlan, known: list[tuple[QueueNetwork, Allocations]]
    ) -> Decision:
        """Use the best plan within the limit, and report what limits it and what would meet the target."""
        situation = view.situation
        fallback: Choice | None = None
        for network, path in known:
            within = self._chooser.best_within(view, network, path)
            if within is not None and (fallback is None or within.result.late < fallback.result.late - 0.01):
                fallback = within
        unstable = [path.unstable for _, path in known]
        limiting = unstable[0] if None not in unstable else None
        needed = [self._chooser.needed_slots(view, network) for network, _ in known]
        needs = min((slots for slots in needed if slots is not None), default=None)
        reachable_s = None if fallback is None else self._chooser.reachable_s(view, fallback)
        limit = limit_text(view, needs, limiting, reachable_s)
        gain = fallback is not None and (
            fallback.result.late < staying.late - 0.02
            or fallback.result.latency_s < 0.9 * staying.latency_s
            or situation.slots > situation.max_slots
        )
        if fallback is None or not gain:
            return self._hold(view, staying, Reason.AT_LIMIT, limit, needs=needs, binding=limiting)
        return self._change(view, staying, fallback, Reason.SHORTAGE, limit, needs=needs, binding=limiting)

    def _release(self, view: View, staying: ReplayedPlan) -> Decision:
        """Release slots if a cheaper plan would have held over the recorded load."""
        situation = view.situation
        paid = self._chooser.paid(situation)
        since_s = situation.changes[-1].at_s if situation.changes else -math.inf
        recorded_s = situation.recorded[-1].end_s - situation.recorded[0].start_s
        if view.expected.slope_per_s2 > 0:
            return self._hold(view, staying, Reason.WITHIN_TARGET, "the load is rising, so no slot is released")
        if recorded_s < _SHORT_RECORD_S:
            return self._hold(view, staying, Reason.WITHIN_TARGET, "the record is too short to release slots")
        smallest = 0
        for horizon_s in _HORIZONS_S:
            start_s = situation.now_s - horizon_s
            if situation.now_s - since_s < min(horizon_s, _SETTLED_S) or horizon_s > _RECORDED * recorded_s:
                break
            rates, step_s = rates_of(situation.recorded, since_s=start_s)
            past = Loads(rates_per_s=rates, step_s=step_s, window_s=view.loads.window_s)
            planning = max(self._chooser.planning_rate(view), float(np.quantile(rates, 0.97)))
            best: Choice | None = None
            best_path: Allocations | None = None
            for network in networks(view.measured, view.learned):
                path = allocations(network.cautious(), planning, most_slots=max(0, paid))
                choice = self._chooser.cheapest(view, network, path, [view.later, past], fewest=smallest)
                is_current = network.cuts == situation.plan.cuts
                if choice is not None and (best is None or choice.slots < best.slots - (0 if is_current else 1)):
                    best, best_path = choice, path
            if best is None or best_path is None:
                break
            smallest = best.slots
            best = self._chooser.settling_sooner(view, best_path, best, most=paid - 1, grows=False)
            saving = 1.0 - best.slots / paid
            if saving < _LEAST_SAVING:
                break
            late_s = self._chooser.interruption_s(view, best)
            spent = view.learned.late_s / _LATE_ALLOWANCE_S
            interruption_s = _INTERRUPTION_S + _LATE_WEIGHT * late_s * (1.0 + spent)
            if saving * horizon_s >= interruption_s:
                held = f"It would also have held for the last {min(horizon_s, recorded_s) / 60:.0f} minutes"
                return self._change(view, staying, best, Reason.RELEASE, held)
        why = "no cheaper plan would have held long enough to pay for the interruption"
        return self._hold(view, staying, Reason.WITHIN_TARGET, why)

    def _fastest(self, view: View, staying: ReplayedPlan) -> Decision:
        """Without a target: the plan with the lowest latency within the limit."""
        situation = view.situation
        best: Choice | None = None
        rate = self._chooser.planning_rate(view)
        limiting: str | None = None
        needs = _UNLIMITED
        for network in networks(view.measured, view.learned):
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
                return self._hold(view, staying, Reason.AT_LIMIT, reason, needs=needs)
            reason = f"no plan within {slots_text(situation.max_slots)} is {_LEAST_GAIN:.0%} faster"
            return self._hold(view, staying, Reason.BEST, reason, binding=limiting)
        return self._change(view, staying, best, Reason.RELEASE if beyond else Reason.REALLOCATION, "")

    # ---- decisions in words

    def _change(
        self,
        view: View,
        staying: ReplayedPlan,
        choice: Choice,
        reason_code: Reason,
        more: str,
        *,
        needs: int | None = None,
        binding: str | None = None,
    ) -> Decision:
        situation = view.situation
        plan = self._chooser.plan_of(view, choice.network, choice.counts)
        if plan == situation.plan:
            return self._hold(view, staying, Reason.BEST, more or "no better plan is known", needs=needs)
        expected = self._outcome(choice.slots, choice.result)
        paid = self._chooser.paid(situation)
        text = (
            f"{observed(view, self.target, paid)}; {slots_text(choice.slots)} instead of {paid} should give "
            f"{interval(choice.result)}."
        )
        return Change(
            plan=plan,
            reason_code=reason_code,
            reason=f"{text} {more}." if more else text,
            staying=self._outcome(self._chooser.paid(situation), staying),
            expected=expected,
            inputs=view.inputs,
            binding=binding or bottleneck(view),
            alternatives=(
                Alternative(
                    replicas=situation.plan.replicas,
                    expected=self._outcome(situation.slots, staying),
                    reason=f"The current plan would be late in {staying.late:.1%} of the windows.",
                ),
            ),
            needs_slots=needs,
        )

    def _hold(
        self,
        view: View,
        staying: ReplayedPlan,
        reason_code: Reason,
        why: str,
        *,
        needs: int | None = None,
        binding: str | None = None,
    ) -> Hold:
        seen = observed(view, self.target, self._chooser.paid(view.situation))
        return Hold(
            reason_code=reason_code,
            reason=f"{seen}; {why}. Expected: {interval(staying)}.",
            inputs=view.inputs,
            binding=binding or bottleneck(view),
            needs_slots=needs,
        )

    def _outcome(self, slots: int, result: ReplayedPlan) -> PlanOutcome:
        target = self.target
        return PlanOutcome(
            slots=slots,
            latency_s=result.latency_s,
            low_s=result.low_s,
            high_s=result.high_s,
            quantile=None if target is None else target.quantile,
            at_most_s=None if target is None else target.seconds,
        )
