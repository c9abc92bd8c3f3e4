"""One turn of the loop: monitor, analyse, plan, execute. What it does is in the store, row by row."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from penstock.control.carry_out import change_plan, described
from penstock.control.correction import measured_s
from penstock.control.decisions import Change, Decision, Hold, Reason
from penstock.control.demand import load_of
from penstock.control.guards import forbidden
from penstock.control.promise import draining, kept, left_over, observed_outcome, outgrown, overrun
from penstock.control.shape import Shape
from penstock.control.situation import Memory, PastChange, Policy, Situation
from penstock.engines.ports import Engine
from penstock.measure.load import Load
from penstock.measure.smoothing import MovingAverage, Smoothing
from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import DecisionRecord, InvalidRecordError, Store

Mode = Literal["off", "recommend", "active"]
Verdict = Literal["kept", "fell short", "rolled back", "load changed", "superseded"]
_PATIENCE, _COLD = 6, 2  # warm-ups
_TRIES = 3  # of a roll-back that fails
_BETTER = 0.95  # of the latency before


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    mode: Mode = "recommend"
    smoothing: Smoothing = field(default_factory=MovingAverage)
    micro_batch: bool = False  # whether stages of a query run one after another, as on Spark
    warm_up_s: float = 10.0  # after a change, that is not measured
    stale_after_s: float = 60.0
    tolerance: float = 0.5  # of the promised step, that may be missing
    load_change: float = 0.2  # from which on another load is another load
    max_slots: int | None = None  # that may be had; None: those of the plan in force, where they cannot be changed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    """A change that was carried out and is not judged yet."""

    number: int  # of its row
    row: DecisionRecord
    load: Load
    at_s: float


class Controller:
    """Give it to the loop; its `turn` is called for each window. All it remembers is in its fields and in the store."""

    def __init__(self, policy: Policy, settings: Settings, engine: Engine, store: Store) -> None:
        self.policy, self.settings = policy, settings
        self._engine, self._store = engine, store
        self._shape = Shape.of(engine.flow)
        self._plan: Plan | None = None  # None until the first turn
        self._generation = 0  # windows of an earlier one are not of this plan
        self._warm_s = 0.0  # windows that began before this moment do not count
        self._started = False  # whether rows have come out that came when it was warm
        self._windows: deque[Window] = deque(maxlen=settings.smoothing.reach)
        self._latest: Window | None = None
        self._previous: Window | None = None
        self._undoing: PlanOutcome | None = None  # what was observed of a change that is being rolled back
        self._failures = 0  # of engines to apply, one after another
        self._looked_s: float | None = None  # the latency when it was last looked whether it is kept
        rows, last = store.applied_changes(), store.last_decision(policy.name)
        self._promise: _Promise | None = _open_promise(rows)
        self._refuted: list[tuple[Plan, Load]] = _refuted(rows)
        self._changes = _made(rows)
        self._memory: Memory = {} if last is None else last.memory

    def turn(self, window: Window | None, *, number: int | None, at_s: float) -> DecisionRecord | None:
        """`window` is None where the engine could not say what happened."""
        mode = self.settings.mode
        if mode == "off":
            return None
        self._monitor(window, at_s)
        situation = self._situation(at_s)
        decision = self._analyse(situation, fresh=window is not None)
        if decision is None:
            decision = self._again(self._policy(situation))
        try:
            row = self._row(decision, situation, number, mode)
            row_number = self._store.add_decision(row)  # before it is done: a crash leaves what was intended
        except InvalidRecordError as error:
            decision, self._memory = self._failed(error, situation), {}
            row = self._row(decision, situation, number, mode)
            row_number = self._store.add_decision(row)
        if isinstance(decision, Change) and mode == "active":
            return self._execute(decision, situation, row_number, row)
        return row

    # ---- monitor

    def _monitor(self, window: Window | None, at_s: float) -> None:
        if self._plan is None:
            self._plan = self._engine.plan
            if self._promise is not None and self._promise.row.new != self._plan:
                self._close_promise("superseded", None, at_s)
            self._warm_s = (at_s if window is None else window.start_s) + self.settings.warm_up_s
        elif self._engine.plan != self._plan:  # somebody else changed it
            self._changed(PastChange(at_s=at_s, old=self._plan, new=self._engine.plan), generation=0)
            self._close_promise("superseded", None, at_s)
        if window is None:
            return
        if self._latest is not None and window.start_s > self._latest.end_s + self.settings.stale_after_s:
            self._latest = None  # what was before a gap is stale, and is no part of what is measured after it
            self._windows.clear()
        self._previous, self._latest = self._latest, window
        self._generation = max(self._generation, window.generation)
        if window.start_s >= self._warm_s and window.generation >= self._generation:
            self._windows.append(window)

    def _changed(self, change: PastChange, *, generation: int) -> None:
        self._plan = change.new
        self._generation = max(self._generation, generation)
        self._changes = (*self._changes, change)
        self._warm_s = change.at_s + self.settings.warm_up_s
        self._windows.clear()

    def _situation(self, at_s: float) -> Situation:
        plan = self._engine.plan
        return Situation(
            now_s=at_s,
            shape=self._shape,
            plan=plan,
            window=self.settings.smoothing.smoothed(tuple(self._windows)),
            latest=self._latest,
            changes=self._changes,
            max_slots=self.settings.max_slots or plan.slots,
            micro_batch=self.settings.micro_batch,
            stale_after_s=self.settings.stale_after_s,
        )

    # ---- analyse

    def _analyse(self, situation: Situation, *, fresh: bool) -> Decision | None:
        """None: nothing speaks against asking the policy."""
        latest, now_s = situation.latest, situation.now_s
        if not fresh or latest is None:
            return Hold(reason=Reason.MISSING, why="the engine could not be observed")
        if (age_s := now_s - latest.end_s) > situation.stale_after_s:
            return Hold(reason=Reason.STALE, why=f"the last window ended {age_s:.0f} s ago")
        if latest.start_s < self._warm_s:
            why = f"{self.settings.warm_up_s:g} s after a start or a change are not measured"
            return Hold(reason=Reason.WARMING_UP, why=why)
        if situation.window is None:
            why = f"{len(self._windows)} windows under this plan; {self.settings.smoothing.reach} make a measurement"
            return Hold(reason=Reason.SETTLING, why=why)
        if not self._started and (stay := situation.window.latency) is not None:
            cold = latest.start_s < self._warm_s + _COLD * self.settings.warm_up_s
            if cold and latest.end_s - stay.mean_s < self._warm_s:
                self._windows.clear()
                return Hold(reason=Reason.SETTLING, why="rows that came before it was warm are still on their way")
            self._started = True
        self._refuted = [(plan, load) for plan, load in self._refuted if self._same_load(load, situation)]
        return None if self._promise is None else self._judged(self._promise, situation)

    def _judged(self, promise: _Promise, situation: Situation) -> Decision | None:
        """What became of the last change: kept, or back to what was before it."""
        row, now_s = promise.row, situation.now_s
        assert situation.window is not None and situation.latest is not None
        assert row.expected is not None and row.before is not None
        # However long it takes: the plan before let the backlog grow, and going back to it would be worse.
        if draining(situation, self._first()):
            self._windows.clear()
            return Hold(reason=Reason.CATCHING_UP, why="the backlog from before the change is still draining")
        observed = observed_outcome(situation, row.expected.quantile)
        patient = now_s < promise.at_s + _PATIENCE * self.settings.warm_up_s
        if patient and left_over(row.before, observed, now_s=now_s, since_s=promise.at_s):
            self._windows.clear()
            return Hold(reason=Reason.CATCHING_UP, why="rows that came before the change are still on their way")
        if not self._same_load(promise.load, situation):
            self._close_promise("load changed", observed, now_s)
            return None
        as_promised = row.reason == Reason.ROLL_BACK or kept(
            row.before,
            row.expected,
            observed,
            tolerance=self.settings.tolerance,
            comes_per_s=situation.window.external_rows_per_s,
        )
        if not (as_promised and row.expected.met_by(observed)) and self._gets_better(observed):
            self._windows.clear()
            return Hold(reason=Reason.CATCHING_UP, why="it still gets better after the change")
        if as_promised:
            self._close_promise("kept", observed, now_s)
            return None
        too_little = overrun(row.before, observed, situation.window.external_rows_per_s)
        if too_little or outgrown(situation, row.old, row.before, observed):
            self._close_promise("fell short", observed, now_s)
            return None
        if row.before.slots < row.expected.slots and promise.load.exceeded_by(load_of(situation)):
            self._close_promise("load changed", observed, now_s)  # fewer slots would not do better with more to do
            return None
        back = Change(
            plan=row.old,
            reason=Reason.ROLL_BACK,
            why=f"the change {now_s - promise.at_s:.0f} s ago ({row.reason}) did not bring what it promised",
            staying=observed,
            expected=PlanOutcome(
                slots=row.before.slots, latency_s=row.before.latency_s, quantile=row.expected.quantile
            ),
        )
        # What was allowed before need not be allowed now, or was started with and never was.
        if (why := forbidden(self.policy, back.plan, situation)) is not None:
            self._close_promise("fell short", observed, now_s)
            return back.held(Reason.OUT_OF_BOUNDS, why)
        self._undoing = observed
        return back

    def _gets_better(self, observed: PlanOutcome) -> bool:
        """Since the last look; at the first one, since the first of the windows that it is made of."""
        before_s, self._looked_s = self._looked_s, observed.latency_s
        if before_s is None:
            first, last = self._first(), self._latest
            assert last is not None
            before_s = None if first is None else measured_s(first.latency, observed.quantile)
            now_s = measured_s(last.latency, observed.quantile)
        else:
            now_s = observed.latency_s
        return before_s is not None and now_s is not None and now_s < _BETTER * before_s

    def _first(self) -> Window | None:
        """That the last one can be compared to: of those that count, or the one before it."""
        return self._windows[0] if len(self._windows) > 1 else self._previous

    def _close_promise(self, verdict: Verdict, observed: PlanOutcome | None, at_s: float) -> None:
        if self._promise is not None:
            row = msgspec.structs.replace(self._promise.row, verdict=verdict, observed=observed, observed_at_s=at_s)
            self._store.update_decision(self._promise.number, row)
            self._promise = self._looked_s = None

    def _same_load(self, load: Load, situation: Situation) -> bool:
        return load.near(load_of(situation), within=self.settings.load_change)

    # ---- plan

    def _policy(self, situation: Situation) -> Decision:
        try:
            decision, memory = self.policy.decide(situation, self._memory)
            if not isinstance(decision, Hold | Change):
                raise TypeError(f"it decided {decision!r}, which is neither Hold nor Change")
        except Exception as error:  # a policy may be anybody's; the run goes on without it
            return self._failed(error, situation)
        self._memory = memory
        return decision

    def _failed(self, error: Exception, situation: Situation) -> Hold:
        self._store.add_error(described(error, where=f"policy {self.policy.name}", at_s=situation.now_s))
        return Hold(reason=Reason.POLICY_FAILED, why=f"{type(error).__name__}: {error}")

    def _again(self, decision: Decision) -> Decision:
        """Not what failed under this load before."""
        if isinstance(decision, Change) and any(decision.plan == plan for plan, _ in self._refuted):
            return decision.held(Reason.REFUTED, "this plan failed under this load before")
        return decision

    # ---- execute

    def _execute(self, change: Change, situation: Situation, number: int, row: DecisionRecord) -> DecisionRecord:
        load = load_of(situation)
        asked = f"{self.policy.name}: {change.reason}"
        answer = change_plan(self._engine, self._store, change.plan, asked=asked, at_s=situation.now_s)
        row = msgspec.structs.replace(row, applied="ok" if answer.ok else "failed", applied_why=answer.text)
        if (applied := answer.applied) is not None:
            row = msgspec.structs.replace(row, pause_s=applied.pause_s, took_s=applied.took_s)
        self._store.update_decision(number, row)
        undoing = change.reason is Reason.ROLL_BACK
        if not answer.ok:
            self._failures += 1
            if not undoing:
                self._refuted.append((change.plan, load))
            elif self._failures >= _TRIES:  # the way back is closed as well
                self._close_promise("fell short", self._undoing, situation.now_s)
            return row
        self._failures = 0
        if undoing:
            self._close_promise("rolled back", self._undoing, situation.now_s)
            self._refuted.append((situation.plan, load))
        done_s = _done_s(row)
        if self._engine.plan != change.plan:  # it settled on less: asking again would bring no more
            self._refuted.append((change.plan, load))
        past = PastChange(at_s=done_s, old=situation.plan, new=self._engine.plan, pause_s=row.pause_s)
        self._changed(past, generation=0 if applied is None else applied.generation)
        self._promise = _Promise(number=number, row=row, load=load, at_s=done_s)
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
            reason=decision.reason.value,
            why=decision.why,
            inputs=decision.inputs,
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


def _made(rows: Sequence[tuple[int, DecisionRecord]]) -> tuple[PastChange, ...]:
    """Changes of earlier starts of this run."""
    return tuple(
        PastChange(at_s=_done_s(row), old=row.old, new=row.new, pause_s=row.pause_s)
        for _, row in rows
        if row.applied == "ok" and row.new is not None
    )


def _refuted(rows: Sequence[tuple[int, DecisionRecord]]) -> list[tuple[Plan, Load]]:
    """Plans that failed before the run was ended; under another load they are forgotten."""
    return [
        (row.new, row.load)
        for _, row in rows
        if row.new is not None and row.load is not None and (row.verdict == "rolled back" or row.applied == "failed")
    ]


def _open_promise(rows: Sequence[tuple[int, DecisionRecord]]) -> _Promise | None:
    """The last change, if the run was ended before it was judged."""
    done = [(number, row) for number, row in rows if row.applied == "ok"]
    if not done or (last := done[-1][1]).verdict is not None or last.load is None or last.expected is None:
        return None
    return _Promise(number=done[-1][0], row=last, load=last.load, at_s=_done_s(last))


def _done_s(row: DecisionRecord) -> float:
    return row.at_s + (row.took_s or row.pause_s or 0.0)
