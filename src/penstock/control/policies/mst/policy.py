"""The decisions of MST.

Source of the idea: Imai, Patterson and Varela (2017), section 6, which orders VMs for the measured load plus a fixed
percentage. Here the capacity of m executors is a cautious bound, from the interval of a fitted model or from observed
windows. The fewest executors are chosen for which

    (forecast + backlog / catch_up_s) x margin  <=  capacity(m)

The forecast is Holt's method over the time that new executors take. The margin is learned (see `margin`). Executors are
added immediately, but removed only after fewer of them have sufficed for `stable_turns` turns. Turns in which the load
falls count twice. A count that was insufficient for a rate is not used for it again, and with a latency target a count
is insufficient if it misses the target (see `insufficient`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.policies.mst.insufficient import is_insufficient, with_insufficient
from penstock.control.policies.mst.load import LEVEL, SLOPE, InputLoad, input_load, with_forecast
from penstock.control.policies.mst.margin import LOW_MOST, LOW_TURNS, MARGIN, with_margin
from penstock.control.policy import Change, Decision, Hold, Inputs, Memory, Reason, Situation
from penstock.dataflow.errors import PenstockError
from penstock.plan import Plan
from penstock.planning.plan_outcome import Alternative, PlanOutcome

_FALLS = 0.05  # relative decrease of the load within the forecast time from which it counts as falling


@dataclass(frozen=True, slots=True, kw_only=True)
class MstSettings:
    """`capacity[m - 1]` is the rows/s that m executors sustain; it never decreases."""

    capacity: tuple[float, ...]
    slots_per_executor: int
    min_executors: int = 1
    max_executors: int
    lead_s: float = 30.0  # forecast time; a decision takes so long until its executors are in use
    catch_up_s: float = 120.0  # time in which a backlog is to be processed
    stable_turns: int = 5  # turns for which fewer executors must have sufficed before a release
    target_s: float | None = None  # latency target; executors are added while it is missed
    quantile: float | None = None  # quantile of the target; None: the mean

    def __post_init__(self) -> None:
        if not 1 <= self.min_executors <= self.max_executors:
            raise PenstockError(
                f"The number of executors is limited to {self.min_executors} to {self.max_executors}; both must be 1 "
                "or more, and the first must not exceed the second."
            )
        if len(self.capacity) < self.max_executors:
            raise PenstockError(
                f"The capacity is known for {len(self.capacity)} executors, but up to {self.max_executors} are allowed."
            )
        if self.slots_per_executor < 1 or self.stable_turns < 1 or not (self.lead_s >= 0 and self.catch_up_s > 0):
            raise PenstockError(
                "slots_per_executor, stable_turns and catch_up_s must be above 0, and lead_s must be 0 or more."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requirement:
    """The load to plan for, and the executors that it needs within the limits."""

    load: InputLoad
    rows_per_s: float  # to be sustained
    fewest: int | None  # executors that sustain it; None: more than allowed
    max_executors: int  # allowed executors
    now: int  # current executors
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class Mst:
    settings: MstSettings
    name: str = field(default="mst", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        load, settings, slots = input_load(situation), self.settings, situation.plan.slots
        if isinstance(load, Hold):
            return load, memory
        capacity = self._capacity(max(1, slots // settings.slots_per_executor))
        margin_before = memory.get(MARGIN, 1.0)
        memory = with_margin(load, memory, slots=slots, capacity=capacity, catch_up_s=settings.catch_up_s)
        memory = with_insufficient(
            memory,
            situation,
            load,
            executors=max(1, slots // settings.slots_per_executor),
            margin_before=margin_before,
            target_s=settings.target_s,
            quantile=settings.quantile,
        )
        memory = with_forecast(memory, load.arriving, load.at_s, settings.lead_s)
        return self._decide(situation, self._requirement(situation, load, memory), memory)

    def _requirement(self, situation: Situation, load: InputLoad, memory: Memory) -> _Requirement:
        settings = self.settings
        forecast = max(load.arriving, memory[LEVEL] + memory[SLOPE] * settings.lead_s)
        margin = memory.get(MARGIN, 1.0)
        rows_per_s = (forecast + load.backlog / settings.catch_up_s) * margin
        max_executors = max(
            settings.min_executors, min(settings.max_executors, situation.max_slots // settings.slots_per_executor)
        )
        allowed = range(settings.min_executors, max_executors + 1)
        now = max(1, situation.plan.slots // settings.slots_per_executor)
        return _Requirement(
            load=load,
            rows_per_s=rows_per_s,
            fewest=next(
                (
                    count
                    for count in allowed
                    if settings.capacity[count - 1] >= rows_per_s and not is_insufficient(memory, count, load.arriving)
                ),
                None,
            ),
            max_executors=max_executors,
            now=now,
            inputs={
                "external_rows_per_s": load.arriving,
                "forecast_rows_per_s": forecast,
                "backlog_rows": load.backlog,
                "margin": margin,
                "wanted_rows_per_s": rows_per_s,
                "capacity_rows_per_s": self._capacity(now),
            },
        )

    def _decide(self, situation: Situation, required: _Requirement, memory: Memory) -> tuple[Decision, Memory]:
        settings, now, load = self.settings, required.now, required.load
        target = required.max_executors if required.fewest is None else required.fewest
        if target < now:
            load_falls = memory[SLOPE] * settings.lead_s < -_FALLS * memory[LEVEL]
            turns, highest = memory.get(LOW_TURNS, 0.0) + 1 + load_falls, max(memory.get(LOW_MOST, 0.0), target)
            memory = {**memory, LOW_TURNS: turns, LOW_MOST: highest}
            if turns < settings.stable_turns or load.backlog > load.ordinary:
                reason = (
                    f"The load has needed only {target} of {now} executors for {turns:g} turns; a release requires "
                    f"{settings.stable_turns} turns and no backlog."
                )
                return Hold(reason_code=Reason.NOT_YET, reason=reason, inputs=required.inputs), memory
            target = min(now, int(highest))
        memory = {**memory, LOW_TURNS: 0.0, LOW_MOST: 0.0} if target >= now else memory
        decision = self._stay(required) if target == now else self._change(situation, required, target)
        return decision, memory

    def _stay(self, required: _Requirement) -> Hold:
        rate = f"{required.rows_per_s:.4g} rows/s"
        if required.fewest is not None:
            reason = f"The current number of executors, {required.fewest}, is the smallest that sustains {rate}."
            return Hold(reason_code=Reason.WITHIN_TARGET, reason=reason, inputs=required.inputs)
        reason = f"The load needs {rate}, which is more than the {required.max_executors} allowed executors sustain."
        needs = self._slots_for(required.rows_per_s)
        return Hold(reason_code=Reason.AT_LIMIT, reason=reason, inputs=required.inputs, needs_slots=needs)

    def _change(self, situation: Situation, required: _Requirement, target: int) -> Change:
        settings, now, arriving = self.settings, required.now, required.load.arriving
        plan = plan_with(situation, target * settings.slots_per_executor)
        limit = "" if required.fewest is not None else f", limited to {required.max_executors} allowed executors"
        smaller = target - 1
        rejected = Alternative(
            replicas=plan.replicas,
            expected=PlanOutcome(
                slots=smaller * settings.slots_per_executor, rows_per_s=self._capacity(max(1, smaller))
            ),
            reason=f"{smaller} executors sustain {self._capacity(max(1, smaller)):.4g} rows/s.",
        )
        return Change(
            plan=plan,
            reason_code=Reason.SHORTAGE if target > now else Reason.RELEASE,
            reason=f"The load needs {required.rows_per_s:.4g} rows/s: {now} -> {target} executors, which sustain "
            f"{settings.capacity[target - 1]:.4g} rows/s{limit}.",
            staying=PlanOutcome(slots=situation.slots, rows_per_s=min(arriving, self._capacity(now))),
            expected=PlanOutcome(
                slots=situation.topology.slots(plan, micro_batch=situation.micro_batch),
                rows_per_s=min(arriving, settings.capacity[target - 1]),
            ),
            inputs=required.inputs,
            alternatives=(rejected,) if smaller >= settings.min_executors else (),
            needs_slots=None if required.fewest is not None else self._slots_for(required.rows_per_s),
        )

    def _capacity(self, executors: int) -> float:
        """Return the capacity; beyond the known counts, the capacity of the largest known one."""
        return self.settings.capacity[min(executors, len(self.settings.capacity)) - 1]

    def _slots_for(self, wanted_per_s: float) -> int | None:
        """Return the slots that sustain a rate, or None if no known number of executors does."""
        known = enumerate(self.settings.capacity, start=1)
        return next((m * self.settings.slots_per_executor for m, rate in known if rate >= wanted_per_s), None)


def plan_with(situation: Situation, slots: int) -> Plan:
    """Return a plan with this number of slots; concurrent queries (row by row: regions) share the replicas."""
    topology = situation.topology
    at_once = len(topology.queries(situation.plan.cuts)) if situation.micro_batch else len(topology.regions)
    replicas = max(1, slots // max(1, at_once))
    counts = {region.name: replicas for region in topology.regions if region.replicable}
    return topology.rescaled(situation.plan, counts).replace(slots=slots)
