"""MST: the fewest executors whose maximum sustainable throughput covers what is to come.

Source of the idea: Imai, Patterson and Varela (2017), section 6, which orders VMs for the load that is seen and some
percent more. Here the capacity of m executors is a careful bound (from the interval of a fitted model, or from what was
seen so far), and what has to be covered is

    (forecast + backlog / catch_up_s) x margin  <=  capacity(m)

with the forecast by Holt's method over the time that new executors take, and a margin that is learned: where a plan
that should have sufficed did not keep up, or did not catch up, it becomes what was missing, and it fades while all is
well, the slower the more often that was too soon. More executors are had at once, fewer only when they have sufficed
for a number of turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.decisions import Change, Decision, Hold, Inputs, Reason
from penstock.control.shares import backlog_from_outside, read_in, shares, visits
from penstock.control.situation import Memory, Situation
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.planning.outcome import Alternative, Outcome

LEVEL, SLOPE, AT_S = "mst.level", "mst.slope", "mst.at_s"
MARGIN, LOW_TURNS, LOW_MOST = "mst.margin", "mst.low_turns", "mst.low_most"
BACKLOG, SLOTS = "mst.backlog", "mst.slots"
TOO_SOON = "mst.too_soon"  # how often the margin was learned again before it had faded
WAITED_S, WAITED_ROWS = "mst.waited_s", "mst.waited_rows"  # for how long rows have waited, and rows taken meanwhile
_ALPHA, _BETA = 0.6, 0.3  # Holt's weights of what is new, in level and in slope
_MOST_MARGIN = 2.0
_GAP_S = 120.0  # between turns: a longer one is a new beginning
_FADES = 0.02  # of the margin above 1, a quiet turn
_FADED = 1.01
_LESS, _MUCH_LESS = 0.05, 0.1  # of what comes: less is noise, and more so where a plan has just begun


@dataclass(frozen=True, slots=True, kw_only=True)
class MstSettings:
    """`capacity[m - 1]` is what m executors sustain, in rows/s, never falling."""

    capacity: tuple[float, ...]
    slots_each: int
    least: int = 1
    most: int
    lead_s: float = 30.0  # from a decision to the use of it, that is looked ahead
    catch_up_s: float = 120.0  # in which a backlog is to be gone
    stable_turns: int = 5  # that fewer executors must have sufficed

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise PenstockError(f"{self.least} to {self.most} executors: give 1 or more, and the least first")
        if len(self.capacity) < self.most:
            raise PenstockError(f"a capacity for up to {len(self.capacity)} executors, and {self.most} may be used")
        if self.slots_each < 1 or self.stable_turns < 1 or not (self.lead_s >= 0 and self.catch_up_s > 0):
            raise PenstockError("slots, turns and the time to catch up are above 0, and the lead is 0 or more")


@dataclass(frozen=True, slots=True)
class Mst:
    settings: MstSettings
    name: str = field(default="mst", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        seen = _seen(situation)
        if isinstance(seen, Hold):
            return seen, memory
        memory = _foreseen(self._learned(situation, seen, memory), seen.arriving, seen.at_s, self.settings.lead_s)
        return self._decide(situation, seen, memory)

    def _decide(self, situation: Situation, seen: _Seen, memory: Memory) -> tuple[Decision, Memory]:
        how = self.settings
        forecast = max(seen.arriving, memory[LEVEL] + memory[SLOPE] * how.lead_s)
        margin = memory.get(MARGIN, 1.0)
        wanted_per_s = (forecast + seen.backlog / how.catch_up_s) * margin
        most = max(how.least, min(how.most, situation.max_slots // how.slots_each))
        needed = next((m for m in range(how.least, most + 1) if how.capacity[m - 1] >= wanted_per_s), None)
        now = max(1, situation.plan.slots // how.slots_each)
        inputs: Inputs = {
            "external_rows_per_s": seen.arriving,
            "forecast_rows_per_s": forecast,
            "backlog_rows": seen.backlog,
            "margin": margin,
            "wanted_rows_per_s": wanted_per_s,
            "capacity_rows_per_s": how.capacity[min(now, len(how.capacity)) - 1],
        }
        target = most if needed is None else needed
        if target < now:
            turns, highest = memory.get(LOW_TURNS, 0.0) + 1, max(memory.get(LOW_MOST, 0.0), target)
            memory = {**memory, LOW_TURNS: turns, LOW_MOST: highest}
            if turns < how.stable_turns or seen.backlog > seen.ordinary:
                why = f"{target} of {now} executors suffice, for {turns:g} turns of {how.stable_turns} that it takes"
                return Hold(reason=Reason.NOT_YET, why=why, inputs=inputs), memory
            target = min(now, int(highest))
        memory = {**memory, LOW_TURNS: 0.0, LOW_MOST: 0.0} if target >= now else memory
        if target == now:
            return self._stay(needed, wanted_per_s, most, inputs), memory
        return self._change(situation, seen, target, now, needed, wanted_per_s, inputs), memory

    def _stay(self, needed: int | None, wanted_per_s: float, most: int, inputs: Inputs) -> Hold:
        if needed is not None:
            why = f"{needed} executors are the fewest for {wanted_per_s:.4g} rows/s"
            return Hold(reason=Reason.WITHIN_TARGET, why=why, inputs=inputs)
        why = f"{wanted_per_s:.4g} rows/s are more than {most} executors sustain, and no more may be used"
        return Hold(reason=Reason.AT_LIMIT, why=why, inputs=inputs, needs_slots=self._slots_for(wanted_per_s))

    def _change(
        self,
        situation: Situation,
        seen: _Seen,
        target: int,
        now: int,
        needed: int | None,
        wanted_per_s: float,
        inputs: Inputs,
    ) -> Change:
        how = self.settings
        plan = plan_with(situation, target * how.slots_each)
        limited = "" if needed is not None else ", as many as may be used"
        word = "fewest" if target > now else "fewest that have sufficed"
        kept_per_s = min(seen.arriving, how.capacity[target - 1])
        rejected = tuple(
            Alternative(
                replicas=plan.replicas,
                expected=Outcome(slots=m * how.slots_each, rows_per_s=how.capacity[m - 1]),
                why=f"{m} executors sustain {how.capacity[m - 1]:.4g} rows/s",
            )
            for m in (target - 1,)
            if m >= how.least
        )
        return Change(
            plan=plan,
            reason=Reason.SHORTAGE if target > now else Reason.RELEASE,
            why=f"{now} -> {target} executors, the {word} for {wanted_per_s:.4g} rows/s{limited}",
            staying=Outcome(slots=situation.slots, rows_per_s=min(seen.arriving, inputs["capacity_rows_per_s"] or 0.0)),
            expected=Outcome(
                slots=situation.shape.slots(plan, micro_batch=situation.micro_batch), rows_per_s=kept_per_s
            ),
            inputs=inputs,
            alternatives=rejected,
            needs_slots=None if needed is not None else self._slots_for(wanted_per_s),
        )

    def _slots_for(self, wanted_per_s: float) -> int | None:
        """As far as the capacity is known."""
        known = enumerate(self.settings.capacity, start=1)
        return next((m * self.settings.slots_each for m, rate in known if rate >= wanted_per_s), None)

    def _learned(self, situation: Situation, seen: _Seen, memory: Memory) -> dict[str, float]:
        """The margin: what was missing where the plan should have sufficed, fading while nothing is missing.

        What piled up while the plan was being changed was no fault of the plan, and neither is what piled up because
        the load stepped above it: it has to fall short of what came in the very window, and of what came before it, or
        rows have to wait for longer than they were to.
        """
        slots = situation.plan.slots
        span_s = seen.at_s - memory.get(AT_S, seen.at_s)
        same = memory.get(SLOTS) == slots and span_s <= _GAP_S
        before = memory.get(BACKLOG, seen.backlog) if same else seen.backlog
        now = max(1, situation.plan.slots // self.settings.slots_each)
        known = self.settings.capacity[min(now, len(self.settings.capacity)) - 1]
        # Of what arrived, that which did not come to wait: a row that was read may still be waiting behind its source.
        taken = seen.latest - (seen.backlog - before) / span_s if span_s > 0 else seen.latest
        fell_behind = seen.backlog > max(before, seen.ordinary) and not seen.within_a_batch
        keeps_short = fell_behind and 0 < taken < min(seen.latest, seen.earlier)
        if not same and seen.worked is not None and seen.backlog > seen.ordinary and not seen.within_a_batch:
            # The first turn under a plan may be its last: there is no backlog to compare with, but what was done.
            taken = seen.worked
            keeps_short = fell_behind = 0 < taken < (1.0 - _MUCH_LESS) * min(seen.latest, seen.earlier)
        waits = same and min(before, seen.backlog) > seen.ordinary
        waited_s = memory.get(WAITED_S, 0.0) + span_s if waits else 0.0
        waited_rows = memory.get(WAITED_ROWS, 0.0) + taken * span_s if waits else 0.0
        if waited_s > self.settings.catch_up_s:  # it was to be gone by now; what just keeps up does not catch up
            taken = (1.0 - _LESS) * waited_rows / waited_s
            keeps_short, waited_s, waited_rows = 0 < taken < known, 0.0, 0.0
        margin, too_soon = memory.get(MARGIN, 1.0), memory.get(TOO_SOON, 0.0)
        if keeps_short and seen.latest <= known:
            missing = min(_MOST_MARGIN, known / taken)
            too_soon += _FADED < margin < missing
            margin = max(margin, missing)
        elif seen.backlog <= seen.ordinary:
            margin = 1.0 + (margin - 1.0) * (1.0 - _FADES / 2.0**too_soon)
            too_soon = too_soon if margin > _FADED else 0.0
        # Fewer have not sufficed while not even these did.
        low = {LOW_TURNS: 0.0, LOW_MOST: 0.0} if fell_behind else {}
        learned = {MARGIN: margin, TOO_SOON: too_soon, BACKLOG: seen.backlog, SLOTS: float(slots)}
        return {**memory, **low, **learned, WAITED_S: waited_s, WAITED_ROWS: waited_rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    at_s: float
    arriving: float  # rows/s
    latest: float  # rows/s that came in the latest window
    earlier: float  # rows/s that came in the windows before it
    worked: float | None  # rows/s that were worked through, in all windows under this plan; None: they do not say
    backlog: float  # rows that wait at sources and cuts, each as so many rows from outside
    within_a_batch: bool  # no batch has ended, and what came meanwhile waits however fast it is
    ordinary: float  # rows that come during a batch, and a second more: they wait for the next one however fast it is


def _seen(situation: Situation) -> _Seen | Hold:
    measured = situation.measured()
    if isinstance(measured, Hold):
        return measured
    window, latest = measured
    arriving = window.external_rows_per_s
    if arriving is None:
        return Hold(reason=Reason.MISSING, why="not known yet: the rows that arrive")
    flow = situation.shape.flow
    if any(one.backlog_rows is None for one in latest.operators if one.operator in situation.shape.sources):
        return Hold(reason=Reason.MISSING, why="not known yet: the rows that wait")
    read = read_in(flow, window)
    known = shares(flow, latest, read) or {}
    ordinary = arriving
    coming = {one.pipeline: one for one in window.pipelines}
    for one in latest.pipelines:
        share = known.get(one.pipeline) or 1.0
        if (mean := coming.get(one.pipeline)) is not None:
            taken = mean.rows_in / share / max(window.end_s - window.start_s, 1e-3)
            ordinary += (mean.batch_s or 0.0) * min(arriving, taken)
    came = arriving if latest.external_rows_per_s is None else latest.external_rows_per_s
    span_s, all_s = latest.end_s - latest.start_s, window.end_s - window.start_s
    return _Seen(
        at_s=latest.end_s,
        arriving=arriving,
        latest=came,
        earlier=(arriving * all_s - came * span_s) / (all_s - span_s) if all_s > span_s else arriving,
        worked=_worked(flow, window, read),
        backlog=backlog_from_outside(flow, latest, read),
        within_a_batch=situation.micro_batch and any(one.backlog_rows and not one.batches for one in latest.pipelines),
        ordinary=ordinary,
    )


def _worked(flow: Dataflow, window: Window, read: Mapping[str, float]) -> float | None:
    """Rows/s from outside, by whoever did the least: in batches by their own time, as a window may cut one in two."""
    by_query, by_operator = shares(flow, window, read), visits(flow, window, read)
    if by_query is None or by_operator is None:
        return None
    span_s = max(window.end_s - window.start_s, 1e-3)
    found = []
    for one in window.pipelines:
        share = by_query.get(one.pipeline, 0.0)
        if one.batches and one.batch_s and share > 0:
            found.append(one.rows_in / (one.batches * one.batch_s) / share)
    if not found:
        rows = {one.operator: one.rows_in for one in window.operators}
        found = [(rows.get(name) or 0) / visited / span_s for name, visited in by_operator.items() if visited > 0]
    return min(found, default=None)


def _foreseen(memory: Mapping[str, float], rate: float, now_s: float, lead_s: float) -> dict[str, float]:
    """Holt's two equations, for turns that are not evenly apart; over a gap no slope reaches."""
    if LEVEL not in memory or now_s - memory[AT_S] > max(_GAP_S, 4 * lead_s):
        return {**memory, LEVEL: rate, SLOPE: 0.0, AT_S: now_s}
    span_s = max(now_s - memory[AT_S], 1e-3)
    level = _ALPHA * rate + (1.0 - _ALPHA) * (memory[LEVEL] + memory[SLOPE] * min(span_s, max(lead_s, 1e-3)))
    slope = _BETA * (level - memory[LEVEL]) / span_s + (1.0 - _BETA) * memory[SLOPE]
    return {**memory, LEVEL: level, SLOPE: slope, AT_S: now_s}


def plan_with(situation: Situation, slots: int) -> Plan:
    """So many slots, and as many replicas, shared by what runs at once: queries, or where there are none regions."""
    shape = situation.shape
    at_once = len(shape.queries(situation.plan.cuts)) if situation.micro_batch else len(shape.regions)
    each = max(1, slots // max(1, at_once))
    counts = {region.name: each for region in shape.regions if region.replicable}
    return shape.rescaled(situation.plan, counts).replace(slots=slots)
