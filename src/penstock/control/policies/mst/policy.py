"""MST: the fewest executors whose maximum sustainable throughput covers what is to come.

Source of the idea: Imai, Patterson and Varela (2017), section 6, which orders VMs for the load that is seen and some
percent more. Here the capacity of m executors is a careful bound (from the interval of a fitted model, or from what was
seen so far), and what has to be covered is

    (forecast + backlog / catch_up_s) x margin  <=  capacity(m)

with the forecast by Holt's method over the time that new executors take, and a margin that is learned (`mst_margin`).
More executors are had at once, fewer only when they have sufficed for a number of turns. Turns in which the load falls
count twice, as it leaves more to spare each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.policies.mst.load import LEVEL, SLOPE, InputLoad, input_load, with_forecast
from penstock.control.policies.mst.margin import LOW_MOST, LOW_TURNS, MARGIN, with_margin
from penstock.control.policy import Change, Decision, Hold, Inputs, Memory, Reason, Situation
from penstock.dataflow.errors import PenstockError
from penstock.plan import Plan
from penstock.planning.plan_outcome import Alternative, PlanOutcome

_FALLS = 0.05  # of the load, in the time that is looked ahead: less is noise


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
        load, how, slots = input_load(situation), self.settings, situation.plan.slots
        if isinstance(load, Hold):
            return load, memory
        capacity = self._capacity(max(1, slots // how.slots_each))
        memory = with_margin(load, memory, slots=slots, capacity=capacity, catch_up_s=how.catch_up_s)
        return self._decide(situation, load, with_forecast(memory, load.arriving, load.at_s, how.lead_s))

    def _decide(self, situation: Situation, load: InputLoad, memory: Memory) -> tuple[Decision, Memory]:
        how = self.settings
        forecast = max(load.arriving, memory[LEVEL] + memory[SLOPE] * how.lead_s)
        margin = memory.get(MARGIN, 1.0)
        wanted_per_s = (forecast + load.backlog / how.catch_up_s) * margin
        most = max(how.least, min(how.most, situation.max_slots // how.slots_each))
        needed = next((m for m in range(how.least, most + 1) if how.capacity[m - 1] >= wanted_per_s), None)
        now = max(1, situation.plan.slots // how.slots_each)
        inputs: Inputs = {
            "external_rows_per_s": load.arriving,
            "forecast_rows_per_s": forecast,
            "backlog_rows": load.backlog,
            "margin": margin,
            "wanted_rows_per_s": wanted_per_s,
            "capacity_rows_per_s": self._capacity(now),
        }
        target = most if needed is None else needed
        if target < now:
            falls = memory[SLOPE] * how.lead_s < -_FALLS * memory[LEVEL]
            turns, highest = memory.get(LOW_TURNS, 0.0) + 1 + falls, max(memory.get(LOW_MOST, 0.0), target)
            memory = {**memory, LOW_TURNS: turns, LOW_MOST: highest}
            if turns < how.stable_turns or load.backlog > load.ordinary:
                why = f"{target} of {now} executors suffice, for {turns:g} turns of {how.stable_turns} that it takes"
                return Hold(reason=Reason.NOT_YET, why=why, inputs=inputs), memory
            target = min(now, int(highest))
        memory = {**memory, LOW_TURNS: 0.0, LOW_MOST: 0.0} if target >= now else memory
        if target == now:
            return self._stay(needed, wanted_per_s, most, inputs), memory
        return self._change(situation, load, target, now, needed, wanted_per_s, inputs), memory

    def _stay(self, needed: int | None, wanted_per_s: float, most: int, inputs: Inputs) -> Hold:
        if needed is not None:
            why = f"{needed} executors are the fewest for {wanted_per_s:.4g} rows/s"
            return Hold(reason=Reason.WITHIN_TARGET, why=why, inputs=inputs)
        why = f"{wanted_per_s:.4g} rows/s are more than {most} executors sustain, and no more may be used"
        return Hold(reason=Reason.AT_LIMIT, why=why, inputs=inputs, needs_slots=self._slots_for(wanted_per_s))

    def _change(
        self,
        situation: Situation,
        load: InputLoad,
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
        kept_per_s = min(load.arriving, how.capacity[target - 1])
        rejected = tuple(
            Alternative(
                replicas=plan.replicas,
                expected=PlanOutcome(slots=m * how.slots_each, rows_per_s=how.capacity[m - 1]),
                why=f"{m} executors sustain {how.capacity[m - 1]:.4g} rows/s",
            )
            for m in (target - 1,)
            if m >= how.least
        )
        return Change(
            plan=plan,
            reason=Reason.SHORTAGE if target > now else Reason.RELEASE,
            why=f"{now} -> {target} executors, the {word} for {wanted_per_s:.4g} rows/s{limited}",
            staying=PlanOutcome(
                slots=situation.slots, rows_per_s=min(load.arriving, inputs["capacity_rows_per_s"] or 0.0)
            ),
            expected=PlanOutcome(
                slots=situation.topology.slots(plan, micro_batch=situation.micro_batch), rows_per_s=kept_per_s
            ),
            inputs=inputs,
            alternatives=rejected,
            needs_slots=None if needed is not None else self._slots_for(wanted_per_s),
        )

    def _capacity(self, executors: int) -> float:
        """Of more than are known, that of the most that are."""
        return self.settings.capacity[min(executors, len(self.settings.capacity)) - 1]

    def _slots_for(self, wanted_per_s: float) -> int | None:
        """As far as the capacity is known."""
        known = enumerate(self.settings.capacity, start=1)
        return next((m * self.settings.slots_each for m, rate in known if rate >= wanted_per_s), None)


def plan_with(situation: Situation, slots: int) -> Plan:
    """So many slots, and as many replicas, shared by what runs at once: queries, or where there are none regions."""
    topology = situation.topology
    at_once = len(topology.queries(situation.plan.cuts)) if situation.micro_batch else len(topology.regions)
    each = max(1, slots // max(1, at_once))
    counts = {region.name: each for region in topology.regions if region.replicable}
    return topology.rescaled(situation.plan, counts).replace(slots=slots)
