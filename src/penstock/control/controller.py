"""The controller: monitor, analyse, plan and execute once per window. The store has a row for every decision.

- monitor: collect the windows of the current plan, and notice plan changes that others made;
- analyse: hold while measurements are missing; evaluate the last change, and roll it back if it did not help;
- plan: ask the policy and its guards;
- execute: apply the plan, in mode "active".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from penstock.control.change_history import ChangeHistory, PendingChange, finished_s
from penstock.control.demand import load_of
from penstock.control.evaluation import (
    backlog_is_draining,
    measures_earlier_rows,
    needs_its_resources,
    observed_outcome,
    old_plan_was_insufficient,
    outcome_bounds,
    outcome_comparison,
    reverses,
)
from penstock.control.evidence import Evidence
from penstock.control.guards import evaluates_changes, forbidden
from penstock.control.plan_changes import change_plan, error_record
from penstock.control.policy import (
    Change,
    Decision,
    Hold,
    Memory,
    PastChange,
    Policy,
    Reason,
    Situation,
    Verdict,
    latency_s,
    stale_sentence,
)
from penstock.control.recorded_load import LoadRecord
from penstock.control.topology import Topology
from penstock.engines.ports import Engine
from penstock.measure.load import Load
from penstock.measure.smoothing import MovingAverage, Smoothing
from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import DecisionRecord, InvalidRecordError, Store

Mode = Literal["off", "recommend", "active"]
_PATIENCE, _COLD = 6, 2  # in warm-up times
_ROLL_BACK_ATTEMPTS = 3
_IMPROVEMENT = 0.95  # a latency below this share of the previous one is still improving


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a controller."""

    mode: Mode = "recommend"
    smoothing: Smoothing = field(default_factory=MovingAverage)
    micro_batch: bool = False  # True: the stages of a query run one after another, as on Spark
    warm_up_s: float = 10.0  # time after a change that is not measured
    stale_after_s: float = 60.0  # older measurements are not used
    tolerance: float = 0.5  # share of the expected improvement that may be missing
    load_change: float = 0.2  # relative difference from which a load counts as another load
    max_slots: int | None = None  # slots that can be acquired; None: the number of slots is fixed


class Controller:
    """Decides once per window. Its state is in its fields and in the store, so that a resumed run continues with it."""

    def __init__(self, policy: Policy, settings: Settings, engine: Engine, store: Store) -> None:
        self.policy, self.settings = policy, settings
        self._policy_evaluates = evaluates_changes(policy)
        self._changed_settings: dict[str, float | None] = {}  # settings that requests changed during the run
        self._engine, self._store = engine, store
        self._topology = Topology.of(engine.flow)
        self._plan: Plan | None = None  # None before the first turn
        self._generation = 0  # windows of earlier generations belong to another plan
        self._started_s: float | None = None  # start of the first window, after a resume that of this process
        self._warm_s = 0.0  # windows that began before this time are not used
        self._warmed_up = False  # rows have come out that arrived after the warm-up
        self._windows: deque[Window] = deque(maxlen=settings.smoothing.reach)
        self._evidence = Evidence(settings.smoothing.required)
        self._latest: Window | None = None
        self._previous: Window | None = None
        self._rejected_outcome: PlanOutcome | None = None  # observed under the change that is being rolled back
        self._failures = 0  # consecutive failures of engine.apply
        self._evaluated_latency_s: float | None = None  # at the previous evaluation of the pending change
        self._history = ChangeHistory(store)
        self._load_record = LoadRecord.of(store)
        last = store.last_decision(policy.name)
        self._memory: Memory = {} if last is None else last.memory

    def decide(self, window: Window | None, *, number: int | None, at_s: float) -> DecisionRecord | None:
        """Decide on a window, apply the decision in mode "active", and return its row; None in mode "off".

        `window` is None if the engine could not be observed. `number` is the window's number in the store.
        """
        mode = self.settings.mode
        if mode == "off":
            return None
        self._monitor(window, at_s)
        situation = self._situation(at_s)
        decision = self._analyse(situation, observed=window is not None)
        if decision is None:
            decision = self._unless_refuted(self._ask_policy(situation))
            if decision.verdict is not None:
                self._close_pending(decision.verdict, observed_outcome(situation, self._pending_quantile()), at_s)
        try:
            row = self._row(decision, situation, number, mode)
            row_number = self._store.add_decision(row)  # before it is applied: a crash leaves the intent
        except InvalidRecordError as error:
            decision, self._memory = self._policy_failed(error, situation), {}
            row = self._row(decision, situation, number, mode)
            row_number = self._store.add_decision(row)
        if isinstance(decision, Change) and mode == "active":
            return self._execute(decision, situation, row_number, row)
        return row

    @property
    def available_slots(self) -> int:
        """Return the slots that exist, or that can be acquired."""
        return self.settings.max_slots or self._engine.plan.slots

    def use(self, policy: Policy, changed_settings: Mapping[str, float]) -> None:
        """Replace the policy by one with other settings. Later decisions record these settings as inputs."""
        self.policy = policy
        self._changed_settings |= changed_settings

    # ---- monitor

    def _monitor(self, window: Window | None, at_s: float) -> None:
        if self._plan is None:
            self._plan = self._engine.plan
            pending = self._history.pending
            if pending is not None and pending.row.new != self._plan:
                self._close_pending("superseded", None, at_s)
            self._started_s = at_s if window is None else window.start_s
            self._warm_s = self._started_s + self.settings.warm_up_s
        elif self._engine.plan != self._plan:  # changed by somebody else
            self._plan_changed(PastChange(at_s=at_s, old=self._plan, new=self._engine.plan), generation=0)
            self._close_pending("superseded", None, at_s)
        if window is None:
            return
        if self._latest is not None and window.start_s > self._latest.end_s + self.settings.stale_after_s:
            self._latest = None  # windows from before a gap are stale
            self._forget_windows()
        self._load_record.add(window)
        self._previous, self._latest = self._latest, window
        self._generation = max(self._generation, window.generation)
        if window.start_s >= self._warm_s and window.generation >= self._generation:
            self._windows.append(window)
            self._evidence.add(window)

    def _forget_windows(self) -> None:
        self._windows.clear()
        self._evidence.forget_plan()

    def _plan_changed(self, change: PastChange, *, generation: int) -> None:
        self._plan = change.new
        self._generation = max(self._generation, generation)
        self._history.add(change)
        self._warm_s = change.at_s + self.settings.warm_up_s
        self._windows.clear()
        self._evidence.plan_changed()

    def _situation(self, at_s: float) -> Situation:
        plan = self._engine.plan
        return Situation(
            now_s=at_s,
            topology=self._topology,
            plan=plan,
            window=self.settings.smoothing.smoothed(tuple(self._windows)),
            latest=self._latest,
            changes=self._history.past,
            started_s=self._started_s,
            max_slots=self.available_slots,
            micro_batch=self.settings.micro_batch,
            stale_after_s=self.settings.stale_after_s,
            recorded=self._load_record.rates,
            refuted=self._history.refuted,
        )

    # ---- analyse

    def _analyse(self, situation: Situation, *, observed: bool) -> Decision | None:
        """Return a decision that needs no policy, or None if the policy is to decide."""
        latest, now_s = situation.latest, situation.now_s
        if not observed or latest is None:
            return Hold(reason_code=Reason.MISSING, reason="The engine could not be observed.")
        if (age_s := now_s - latest.end_s) > situation.stale_after_s:
            return Hold(reason_code=Reason.STALE, reason=stale_sentence(age_s, situation.stale_after_s))
        if latest.start_s < self._warm_s:
            reason = f"The first {self.settings.warm_up_s:g} s after a start or a change are not measured."
            return Hold(reason_code=Reason.WARMING_UP, reason=reason)
        if situation.window is None:
            required = self.settings.smoothing.required
            reason = f"{len(self._windows)} of the {required} required windows of the current plan are complete."
            return Hold(reason_code=Reason.SETTLING, reason=reason)
        if not self._warmed_up and (latency := situation.window.latency) is not None:
            cold = latest.start_s < self._warm_s + _COLD * self.settings.warm_up_s
            if cold and latest.end_s - latency.mean_s < self._warm_s:
                self._forget_windows()
                return Hold(
                    reason_code=Reason.SETTLING, reason="Rows that arrived during the warm-up are still in progress."
                )
            self._warmed_up = True
        self._history.forget_refuted_unless(lambda load: self._same_load(load, situation))
        pending = self._history.pending
        return None if pending is None or self._policy_evaluates else self._evaluate(pending, situation)

    def _evaluate(self, pending: PendingChange, situation: Situation) -> Decision | None:
        """Evaluate the last change: return Hold to wait, Change to roll it back, or None once it is evaluated."""
        row, now_s = pending.row, situation.now_s
        assert situation.window is not None and situation.latest is not None
        assert row.expected is not None and row.before is not None
        # Wait without a time limit: the backlog grew under the old plan, so a roll-back would be worse.
        if backlog_is_draining(situation, self._baseline()):
            return self._wait("The backlog from before the last change is still draining.")
        observed = observed_outcome(situation, row.expected.quantile)
        is_recent = now_s < pending.at_s + _PATIENCE * self.settings.warm_up_s
        if is_recent and measures_earlier_rows(row.before, observed, now_s=now_s, since_s=pending.at_s):
            return self._wait("Rows that arrived before the last change are still in progress.")
        if not self._same_load(pending.load, situation):
            self._close_pending("load changed", observed, now_s)
            return None
        input_per_s = situation.window.external_rows_per_s
        required = outcome_bounds(row.before, row.expected, tolerance=self.settings.tolerance, input_per_s=input_per_s)
        quantile = row.expected.quantile
        missed = [bound for bound in required if not self._evidence.met(bound, situation, quantile)]
        met = row.reason_code == Reason.ROLL_BACK or not missed
        if not (met and row.expected.met_by(observed)) and self._is_improving(observed):
            return self._wait("The latency is still improving after the last change.")
        if met:
            self._close_pending("kept", observed, now_s)
            return None
        if old_plan_was_insufficient(row.before, observed, input_per_s) or needs_its_resources(
            situation, row.old, row.before, observed
        ):
            self._close_pending("fell short", observed, now_s)
            return None
        if row.before.slots < row.expected.slots and pending.load.exceeded_by(load_of(situation)):
            self._close_pending("load changed", observed, now_s)  # the load grew: fewer slots would not help
            return None
        if not self._evidence.refutes(missed, situation, quantile):
            if self._evidence.is_complete:  # the difference is within the noise
                self._close_pending("kept", observed, now_s)
            return None  # the policy may act; its next change ends the evaluation
        return self._roll_back(pending, situation, observed)

    def _roll_back(self, pending: PendingChange, situation: Situation, observed: PlanOutcome) -> Decision:
        row, now_s = pending.row, situation.now_s
        assert row.expected is not None and row.before is not None
        change = Change(
            plan=self._topology.successor(situation.plan, row.old),
            reason_code=Reason.ROLL_BACK,
            reason=f"The change {now_s - pending.at_s:.0f} s ago ({row.reason_code}) did not have the expected effect"
            f"{outcome_comparison(row.expected, observed)}.",
            staying=observed,
            expected=PlanOutcome(
                slots=row.before.slots, latency_s=row.before.latency_s, quantile=row.expected.quantile
            ),
        )
        # The limits may have changed since, or the run may have started with a plan beyond them.
        if (veto := forbidden(self.policy, change.plan, situation)) is not None:
            self._close_pending("fell short", observed, now_s)
            return change.vetoed(*veto)
        self._rejected_outcome = observed
        return change

    def _wait(self, reason: str) -> Hold:
        """Hold, and discard the windows that describe the past."""
        self._forget_windows()
        return Hold(reason_code=Reason.CATCHING_UP, reason=reason)

    def _is_improving(self, observed: PlanOutcome) -> bool:
        """Return whether the latency is lower than at the previous evaluation, or than in the baseline window."""
        before_s, self._evaluated_latency_s = self._evaluated_latency_s, observed.latency_s
        now_s = observed.latency_s
        if before_s is None:
            baseline, last = self._baseline(), self._latest
            assert last is not None
            before_s = None if baseline is None else latency_s(baseline.latency, observed.quantile)
            now_s = latency_s(last.latency, observed.quantile)
        return before_s is not None and now_s is not None and now_s < _IMPROVEMENT * before_s

    def _baseline(self) -> Window | None:
        """Return the window to compare the latest one with: the first one in use, or the previous one."""
        return self._windows[0] if len(self._windows) > 1 else self._previous

    def _close_pending(self, verdict: Verdict, observed: PlanOutcome | None, at_s: float) -> None:
        self._history.close_pending(verdict, observed, at_s)
        self._evaluated_latency_s = None

    def _pending_quantile(self) -> float | None:
        """Return the statistic of the latency that the pending change was expected to have."""
        pending = self._history.pending
        return None if pending is None or pending.row.expected is None else pending.row.expected.quantile

    def _same_load(self, load: Load, situation: Situation) -> bool:
        return load.near(load_of(situation), within=self.settings.load_change)

    # ---- plan

    def _ask_policy(self, situation: Situation) -> Decision:
        try:
            decision, memory = self.policy.decide(situation, self._memory)
            if not isinstance(decision, Hold | Change):
                raise TypeError(f"The policy returned {decision!r}; it must return Hold or Change.")
            if isinstance(decision, Change):
                decision = replace(decision, plan=self._topology.successor(situation.plan, decision.plan))
        except Exception as error:  # a faulty policy must not stop the run
            return self._policy_failed(error, situation)
        self._memory = memory
        return decision

    def _policy_failed(self, error: Exception, situation: Situation) -> Hold:
        self._store.add_error(error_record(error, where=f"policy {self.policy.name}", at_s=situation.now_s))
        return Hold(reason_code=Reason.POLICY_FAILED, reason=f"{type(error).__name__}: {error}")

    def _unless_refuted(self, decision: Decision) -> Decision:
        """Veto a plan that has failed under the same load before."""
        if isinstance(decision, Change) and self._history.is_refuted(decision.plan):
            return decision.vetoed(Reason.REFUTED, "This plan has failed under the same load before.")
        return decision

    # ---- execute

    def _execute(self, change: Change, situation: Situation, number: int, row: DecisionRecord) -> DecisionRecord:
        load = load_of(situation)
        requester = f"{self.policy.name}: {change.reason_code}"
        result = change_plan(self._engine, self._store, change.plan, requester=requester, at_s=situation.now_s)
        row = msgspec.structs.replace(row, applied="ok" if result.ok else "failed", failure=result.text)
        if (applied := result.applied) is not None:
            row = msgspec.structs.replace(
                row,
                pause_s=applied.pause_s,
                took_s=applied.took_s,
                moved_rows=applied.moved_rows,
                moved_bytes=applied.moved_bytes,
            )
        self._store.update_decision(number, row)
        is_roll_back = change.reason_code is Reason.ROLL_BACK
        if not result.ok:
            self._failures += 1
            if not is_roll_back:
                self._history.refute(change.plan, load)
            elif self._failures >= _ROLL_BACK_ATTEMPTS:
                self._close_pending("fell short", self._rejected_outcome, situation.now_s)
            return row
        self._failures = 0
        if is_roll_back:
            self._close_pending("rolled back", self._rejected_outcome, situation.now_s)
            if not self._policy_evaluates:  # otherwise the policy remembers what has failed
                self._history.refute(situation.plan, load)
        end_s = finished_s(row)
        if self._engine.plan != change.plan:  # the engine could acquire only part of it: do not ask again
            self._history.refute(change.plan, load)
        if (pending := self._history.pending) is not None and not self._policy_evaluates:
            # It has missed its expectation, but not by more than noise.
            self._close_pending("fell short", observed_outcome(situation, self._pending_quantile()), situation.now_s)
            if reverses(pending.row, change.plan, change.expected):
                self._history.refute(situation.plan, load)
        past = PastChange(at_s=end_s, old=situation.plan, new=self._engine.plan, pause_s=row.pause_s, took_s=row.took_s)
        self._plan_changed(past, generation=0 if applied is None else applied.generation)
        self._history.pending = PendingChange(number=number, row=row, load=load, at_s=end_s)
        if is_roll_back and self._policy_evaluates:  # the policy has evaluated this plan before
            self._close_pending("kept", None, end_s)
        return row

    def _row(
        self, decision: Decision, situation: Situation, number: int | None, mode: Literal["recommend", "active"]
    ) -> DecisionRecord:
        change = decision if isinstance(decision, Change) else None
        expected = None if change is None else change.expected
        quantile = None if expected is None else expected.quantile
        carried_out: Literal["begun", "recommended"] = "begun" if mode == "active" else "recommended"
        return DecisionRecord(
            at_s=situation.now_s,
            window=number,
            policy=self.policy.name,
            mode=mode,
            kind="hold" if change is None else "change",
            reason_code=decision.reason_code.value,
            reason=decision.reason,
            inputs=decision.inputs | self._changed_settings,
            binding=decision.binding,
            alternatives=decision.alternatives,
            needs_slots=decision.needs_slots,
            old=situation.plan,
            new=None if change is None else change.plan,
            before=None if situation.window is None else observed_outcome(situation, quantile),
            expected=expected,
            applied=None if change is None else carried_out,
            memory=dict(self._memory),
            load=None if change is None or situation.window is None else load_of(situation),
        )
