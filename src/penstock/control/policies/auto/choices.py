"""Candidates: the cheapest plan that meets the target, and the best one within the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from penstock.control.forecast import Forecast
from penstock.control.policies.auto.allocations import Allocations, allocations
from penstock.control.policies.auto.learned import Learned, plan_key
from penstock.control.policies.auto.learning import LearnedDemand, present_counts
from penstock.control.policies.auto.network import Floats, QueueNetwork
from penstock.control.policies.auto.replay import Loads, ReplayedPlan, Target, replay
from penstock.control.policy import Inputs, Situation
from penstock.measure.window import Window
from penstock.plan.plan import Plan

_LEAD_S = 120.0  # time from a decision until the new plan has an effect, besides the pause and the wait for executors
STAY_LATE = 0.03  # a plan is left from this share of late windows on
NOTICED_S = 10.0  # time in late windows until a shortage is noticed
# A change costs as much as all slots in this time, and a multiple of the time in which it makes windows late.
_INTERRUPTION_S = 100.0
_LATE_WEIGHT = 10.0
_LATE_ALLOWANCE_S = 36.0  # time in late windows within about an hour from which further ones count twice
_CHOOSE_LATE = 0.005  # a plan is chosen with at most this share of late windows
_INSUFFICIENT = 0.5  # share of late windows from which a plan does not suffice for a load
_CATCH_UP_S = 30.0  # time in which a backlog is to be processed
_NEXT_BATCH = 1.5  # a batch under a growing backlog relative to the one before it
_BATCHES_IN_LATENCY = 1.5  # mean latency relative to the duration of a batch
_SIZES = 8  # larger plans that are considered because they process waiting rows sooner
_EXTRA_SLOTS_S = 600.0  # time until extra slots are released
_LATE_COST = 6.0  # a second in which windows are late costs as much as so many seconds of all slots
_LONGEST_TARGET_S = 600.0
_LONG_LATE = 12  # consecutive late windows after which a growing backlog counts as unbounded
_UNLIMITED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Replica counts with their expected result."""

    network: QueueNetwork
    counts: Floats
    result: ReplayedPlan
    slots: int  # paid slots


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One decision: the situation, what is known, and the expected load."""

    situation: Situation
    measured: LearnedDemand
    learned: Learned
    latest: Window
    expected: Forecast
    loads: Loads
    later: Loads  # the load to choose a plan for, so that it lasts for some minutes if the load rises
    now: Loads  # the load without its growth
    level: int
    present: QueueNetwork  # with the cuts of the plan
    networks: tuple[QueueNetwork, ...]  # of the plans that are considered
    backlog_rows: float  # external rows more than a healthy run has
    _paths: dict[float, list[Allocations]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def paths(self, rate_per_s: float) -> list[Allocations]:
        """Return the allocations of each network for a rate, with costs at the unfavourable ends of their intervals."""
        if rate_per_s not in self._paths:
            self._paths[rate_per_s] = [
                allocations(network.cautious(), rate_per_s, most_slots=self.situation.max_slots)
                for network in self.networks
            ]
        return self._paths[rate_per_s]

    @property
    def inputs(self) -> Inputs:
        assert self.situation.window is not None
        inputs = self.measured.demand.inputs(self.latest)
        return {**inputs, "expected_rows_per_s": self.expected.level_per_s, "backlog_rows": self.backlog_rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """Finds plans for a target (None: the lowest latency); slots are paid per executor."""

    target: Target | None
    slots_per_executor: int
    min_executors: int

    def cheapest(
        self, view: View, network: QueueNetwork, path: Allocations, loads: list[Loads], *, fewest: int
    ) -> Choice | None:
        """Return the cheapest counts within the limit, from `fewest` slots on, that meet the target under all loads."""
        expected = view.now if any(load is view.now for load in loads) else view.loads
        cautious = network.cautious()
        last = path.within(view.situation.max_slots)

        def fits(counts: Floats) -> bool:
            return network.slots(counts) >= fewest and all(
                self.replayed(view, cautious, counts, load).late <= _CHOOSE_LATE for load in loads
            )

        step = None if last < 0 or path.unstable is not None else path.first(fits, last=last)
        while step is not None and step <= last:
            counts = path.counts(step)
            plan = self.plan_of(view, network, counts)
            if plan not in view.situation.refuted and not view.learned.has_failed(plan_key(plan), view.level):
                return self.choice(view, network, counts, expected)
            step += 1
        return None

    def needed_slots(self, view: View, network: QueueNetwork) -> int | None:
        """Return the slots that would meet the target under the expected load; None if no number does."""
        cautious = replace(network.cautious(), available_slots=_UNLIMITED)
        path = allocations(cautious, steady_rate(view.loads), most_slots=2 * view.situation.max_slots + 32, beyond=True)
        step = path.first(lambda counts: self.replayed(view, cautious, counts, view.loads).late <= _CHOOSE_LATE)
        return None if step is None or path.unstable is not None else path.slots(step)

    def best_within(self, view: View, network: QueueNetwork, path: Allocations) -> Choice | None:
        """Return the largest allocation within the limit that is not known to have been refused by the engine."""
        step = path.within(view.situation.max_slots)
        if step < 0:  # the load needs more: distribute what is there in proportion to the work
            counts = _proportional(network, view.situation.max_slots, self.planning_rate(view))
            return None if counts is None else self.choice(view, network, counts)
        while step >= 0:
            counts = path.counts(step)
            if self.plan_of(view, network, counts) not in view.situation.refuted:
                return self.choice(view, network, counts)
            step -= 1
        return None

    def choice(self, view: View, network: QueueNetwork, counts: Floats, load: Loads | None = None) -> Choice:
        plan = self.plan_of(view, network, counts)
        slots = view.situation.topology.slots(plan, micro_batch=view.situation.micro_batch)
        if self.slots_per_executor > 1:
            slots = max(self.min_executors, math.ceil(slots / self.slots_per_executor)) * self.slots_per_executor
        result = self.replayed(view, network, counts, load or view.loads)
        return Choice(network=network, counts=counts, result=result, slots=slots)

    def replayed(self, view: View, network: QueueNetwork, counts: Floats, loads: Loads) -> ReplayedPlan:
        key = plan_key(self.plan_of(view, network, counts))
        return replay(network, counts, loads, self.target, correction=view.learned.correction(key))

    def plan_of(self, view: View, network: QueueNetwork, counts: Floats) -> Plan:
        plan = view.situation.plan
        replicas = network.replicas(counts)
        if view.situation.micro_batch:
            single = {region.name for region in view.situation.topology.regions if not region.replicable}
            replicas = {name: 1 if name in single else count for name, count in replicas.items()}
            if np.array_equal(counts, present_counts(network, plan)) and network.cuts == plan.cuts:
                return plan
        return view.situation.topology.rescaled(plan.replace(cuts=network.cuts), replicas)

    def planning_rate(self, view: View) -> float:
        """Return the rate to plan for: a high one of those expected, and enough to process the backlog.

        While windows are late in micro-batches, the rows of the batch in progress and those that arrive until the next
        one are a backlog too: that batch is begun again after the change.
        """
        backlog = view.backlog_rows
        if view.situation.micro_batch and view.learned.late_in_a_row and self.target is not None:
            next_s = _NEXT_BATCH * view.learned.batch_s + self.pause_s(view.situation)
            backlog = max(backlog, view.expected.level_per_s * (next_s - self.target.seconds / _BATCHES_IN_LATENCY))
        return steady_rate(view.later) + backlog / _CATCH_UP_S

    def reachable_s(self, view: View, choice: Choice) -> float | None:
        """Return the lowest target that these counts meet under the expected load; None if none is below ten minutes.

        It is rounded up to two digits.
        """
        assert self.target is not None
        cautious = choice.network.cautious()
        key = plan_key(self.plan_of(view, choice.network, choice.counts))
        correction = view.learned.correction(key)

        def late(seconds: float) -> float:
            target = Target(seconds=seconds, quantile=self.target.quantile if self.target else None)
            return replay(cautious, choice.counts, view.loads, target, correction=correction).late

        low, high = self.target.seconds, _LONGEST_TARGET_S
        if (
            float(cautious.utilisation(choice.counts, view.expected.level_per_s).max()) >= 1.0
            or late(high) > _CHOOSE_LATE
        ):
            return None
        while high > 1.02 * low:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if late(middle) <= _CHOOSE_LATE else (middle, high)
        digit = 10.0 ** (math.floor(math.log10(high)) - 1)
        return math.ceil(high / digit) * digit

    def drain_s(self, view: View) -> float:
        """Return the time until the current plan has processed the backlog; infinite if it grows."""
        if view.backlog_rows <= 0.0:
            return 0.0
        network, counts = view.present, present_counts(view.present, view.situation.plan)
        busy = float(network.utilisation(counts, view.expected.level_per_s).max())
        if busy >= 1.0 or (view.learned.late_in_a_row >= _LONG_LATE and view.learned.grows):
            return math.inf
        return view.backlog_rows / max(1e-9, view.expected.level_per_s / max(busy, 1e-9) * (1.0 - busy))

    def settling_sooner(
        self, view: View, path: Allocations, choice: Choice, *, most: int, grows: bool, load: Loads | None = None
    ) -> Choice:
        """Return the choice, or one of up to `most` slots that processes the rows that wait after the change sooner.

        Slots that are not needed later are paid for until they can be released.
        """
        first, last = path.within(choice.slots), path.within(most)
        if self.slots_per_executor > 1 or not 0 <= first <= last:
            return choice
        best, least = choice, math.inf
        for step in sorted({round(first + (last - first) * part / _SIZES) for part in range(_SIZES + 1)}):
            larger = choice if step == first else self.choice(view, choice.network, path.counts(step), load)
            if larger.slots > most or self.is_refuted(view, larger) or larger.result.late > choice.result.late + 1e-3:
                continue  # more tasks make a batch longer
            late_s = self.interruption_s(view, larger, grows=grows)
            cost = larger.slots / choice.slots * _EXTRA_SLOTS_S + _LATE_COST * late_s
            if cost < least - 1.0:
                best, least = larger, cost
        return best

    def lasting_s(self, view: View, choice: Choice, record: Loads, *, apart_s: float) -> float:
        """Return how long the counts would have sufficed on average, over the record; infinite if always.

        After a time in which they do not suffice, a larger plan is kept for `apart_s`. The present time in which they
        suffice is taken to be half over.
        """
        cautious = choice.network.cautious()
        late = self.replayed(view, cautious, choice.counts, record).late_steps > _INSUFFICIENT
        if not late.any():
            return math.inf
        apart = math.ceil(apart_s / record.step_s)
        episodes = quiet = present = left = 0
        for is_late in late:
            episodes += bool(is_late) and left == 0
            left = apart if is_late else max(0, left - 1)
            present = 0 if left else present + 1
            quiet += left == 0
        return (quiet + present) * record.step_s / episodes

    def is_refuted(self, view: View, choice: Choice) -> bool:
        """Return whether this plan could not be applied, or has failed under this load."""
        plan = self.plan_of(view, choice.network, choice.counts)
        return plan in view.situation.refuted or view.learned.has_failed(plan_key(plan), view.level)

    def interruption_s(self, view: View, choice: Choice, *, grows: bool = False, batch_s: float | None = None) -> float:
        """Return the time in which windows are late because of the pause of a change to these counts.

        `grows`: the current plan does not suffice, so more rows than usual wait. `batch_s` is the duration of the batch
        in progress, by default the longest one of the latest window.
        """
        if self.target is None:
            return 0.0
        network, counts, rate = choice.network, choice.counts, view.expected.level_per_s
        pause_s = self.pause_s(view.situation)
        slack_s = max(0.0, self.target.seconds - choice.result.latency_s)
        if not view.situation.micro_batch:
            free = max(0.02, 1.0 - float(network.utilisation(counts, rate).max()))
            waited_s = pause_s + (view.backlog_rows / max(rate, 1e-9) if grows else 0.0)
            mean_s = waited_s**2 / (2.0 * view.loads.window_s * free)  # of all rows of a window
            return 0.0 if mean_s <= slack_s else max(view.loads.window_s, (waited_s - slack_s) / free)
        correction = view.learned.correction(plan_key(self.plan_of(view, network, counts)))
        if batch_s is None:
            batch_s = view.learned.batch_s * (_NEXT_BATCH if grows else 1.0)
        waited_s = batch_s + pause_s + (view.backlog_rows / max(rate, 1e-9) if grows else 0.0)
        modelled_s = network.settling_s(counts, rate, waited_s=waited_s, latency_s=self.target.seconds / correction)
        return modelled_s * max(1.0, correction)

    def paid(self, situation: Situation) -> int:
        return situation.plan.slots if self.slots_per_executor > 1 else situation.slots

    def lead_s(self, situation: Situation) -> float:
        """Return the time from a decision until the new plan has an effect; executors may take as long as before."""
        waits = [change.took_s - (change.pause_s or 0.0) for change in situation.changes if change.took_s is not None]
        return _LEAD_S + self.pause_s(situation) + max(0.0, *waits, 0.0)

    def pause_s(self, situation: Situation) -> float:
        pauses = [change.pause_s for change in situation.changes if change.pause_s is not None]
        return median(pauses) if pauses else 3.0


def change_cost_s(late_s: float, *, recent_late_s: float = 0.0) -> float:
    """Return the cost of a change that makes windows late for a time, in seconds of all slots.

    Late windows cost up to twice as much if there have been others within about an hour.
    """
    return _INTERRUPTION_S + _LATE_WEIGHT * late_s * (1.0 + min(1.0, recent_late_s / _LATE_ALLOWANCE_S))


def steady_rate(load: Loads) -> float:
    """Return a high rate of those expected."""
    return float(np.quantile(load.rates_per_s, 0.9))


def _proportional(network: QueueNetwork, slots: int, rate_per_s: float) -> Floats | None:
    """Distribute slots in proportion to the work, with at least one slot per node."""
    free = slots - network.slots(np.ones(len(network.names)))
    if free < 0:
        return None
    work = np.zeros(len(network.names))
    np.maximum.at(work, network.node, network.load(rate_per_s))
    work = np.where(network.limit > 1.0, work, 0.0)
    exact = free * work / max(1e-12, float(work @ network.width))
    counts = np.floor(exact)
    free -= network.slots(counts)
    for at in np.argsort(counts - exact, kind="stable"):
        if work[at] > 0 and network.width[at] <= free:
            counts[at] += 1.0
            free -= int(network.width[at])
    return np.asarray(np.minimum(network.limit, counts + 1.0))
