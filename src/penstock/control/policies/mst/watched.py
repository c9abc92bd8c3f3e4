"""MST for a watched program: decisions from the estimated capacities of its queries, each of which is an interval.

The engine estimates what each query sustains with 1, 2, ... executors. The policy acts on certain statements only:

- it adds executors if the waiting rows of a query grow, or if the load exceeds the upper end of the capacity;
- it releases executors if the load is below the lower end of the capacity of fewer executors for some turns;
- otherwise it holds, and says what is unknown.

Queries share the slots, so that the task time of all queries must fit as well. On a local master the number of
executors is fixed, and the decision states the sustainable rate and the bottleneck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.control.policies.mst.load import LEVEL, SLOPE, with_forecast
from penstock.control.policies.mst.policy import plan_with
from penstock.control.policy import Change, Decision, Hold, Inputs, Memory, Reason, Situation
from penstock.measure.window import Estimate, PipelineWindow
from penstock.planning.plan_outcome import Alternative, PlanOutcome

LOW_TURNS, LOW_MOST = "mst.low_turns", "mst.low_most"  # turns in which fewer executors sufficed; their largest number
FINITE = ("availableNow", "oneTime")  # triggers of queries that end by themselves
_CARE = 0.05  # relative reserve of a release, and relative error of the measured task time
_GROWTH = 0.1  # smallest relative growth of the forecast that counts
_NEAR = 0.05  # relative difference of two capacities that counts as none
_GAIN = 0.15  # smallest relative gain for which executors are added if no number of them suffices
_ORDINARY_S = 2.0  # rows of this time and two batches always wait


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """The rows/s that each query has to sustain, and their estimated capacities."""

    queries: Sequence[PipelineWindow]
    rates: Sequence[float]  # arriving rows/s
    needs: Sequence[float]  # rates including forecast and backlog
    slots_per_executor: int

    def factor(self, executors: int, end: Literal["low", "value", "high"]) -> float | None:
        """Return by how much the load may grow with these executors; None: without a known limit."""
        factors = []
        for query, need in zip(self.queries, self.needs, strict=True):
            if need > 0:
                estimate = self.estimate(query, executors)
                rate = _best(estimate) if end == "value" else estimate.low if end == "low" else estimate.high
                if rate is not None:
                    factors.append(rate / need)
        if (work := self._slots_needed()) > 0:
            slots = executors * self.slots_per_executor
            if end != "high":
                factors.append(slots / work)
            elif len(self.queries) > 1:  # the estimate of a single query already includes its own tasks
                factors.append((1.0 + _CARE) * slots / work)
        return min(factors, default=None)

    def estimate(self, query: PipelineWindow, executors: int) -> Estimate:
        return query.capacity[min(max(1, executors), len(query.capacity)) - 1]

    def _slots_needed(self) -> float:
        return sum(need * (query.task_s_per_row or 0.0) for query, need in zip(self.queries, self.needs, strict=True))

    def suffices(self, executors: int) -> bool:
        factor = self.factor(executors, "low")
        return factor is None or factor >= 1.0 + _CARE

    def is_too_few(self, executors: int) -> bool:
        factor = self.factor(executors, "high")
        return factor is not None and factor < 1.0

    def limiting(self, executors: int) -> PipelineWindow:
        """Return the query with the smallest reserve."""
        pairs = [pair for pair in zip(self.queries, self.needs, strict=True) if pair[1] > 0]
        if not pairs:
            return self.queries[0]
        return min(pairs, key=lambda pair: _best(self.estimate(pair[0], executors)) / pair[1])[0]

    def total(self, executors: int) -> Estimate:
        """Return the sustained total rate of the queries if their rates keep the proportion of their needs."""
        needed = sum(self.needs)
        if needed <= 0:
            parts = [self.estimate(query, executors) for query in self.queries]
            return Estimate(low=sum(part.low for part in parts), value=None, high=None)
        low, high = self.factor(executors, "low"), self.factor(executors, "high")
        is_known = all(self.estimate(query, executors).value is not None for query in self.queries)
        value = self.factor(executors, "value") if is_known else None
        return Estimate(
            low=(low or 0.0) * needed,
            value=None if value is None else value * needed,
            high=None if high is None else high * needed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMst:
    slots_per_executor: int
    min_executors: int = 1
    max_executors: int
    is_local: bool = False  # the program is a single process: report the sustainable rate only
    lead_s: float = 30.0
    catch_up_s: float = 120.0
    stable_turns: int = 3
    name: str = field(default="mst", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        measured = situation.measured()
        if isinstance(measured, Hold):
            return measured, memory
        running = [query for query in measured[1].pipelines if query.state == "running"]
        queries = [query for query in running if query.trigger not in FINITE]
        if (unknown := _unknown(running, queries)) is not None:
            return unknown, memory
        rates = [query.input_rows_per_s or 0.0 for query in queries]
        memory = with_forecast(memory, sum(rates), situation.now_s, self.lead_s)
        demand = self._demand(queries, rates, memory)
        now = max(1, situation.plan.slots // self.slots_per_executor)
        inputs = self._inputs(demand, now)
        if self.is_local:
            return self._local(demand, inputs), memory
        decision, turns = self._decide(situation, demand, memory, now, inputs, may_release=len(queries) == len(running))
        return decision, {**memory, **turns}

    def _demand(self, queries: Sequence[PipelineWindow], rates: Sequence[float], memory: Memory) -> _Demand:
        total = sum(rates)
        growth = (memory[LEVEL] + memory[SLOPE] * self.lead_s) / total if total > 0 else 1.0
        growth = growth if growth > 1.0 + _GROWTH else 1.0
        needs = []
        for query, rate in zip(queries, rates, strict=True):
            waiting = query.backlog_rows or 0
            ordinary = rate * (_ORDINARY_S + 2.0 * (query.batch_max_s or 0.0))
            needs.append(rate * growth + (waiting / self.catch_up_s if waiting > ordinary else 0.0))
        return _Demand(queries=queries, rates=rates, needs=needs, slots_per_executor=self.slots_per_executor)

    def _inputs(self, demand: _Demand, now: int) -> Inputs:
        capacity = demand.total(now)
        backlogs = [query.backlog_rows for query in demand.queries]
        known = [rows for rows in backlogs if rows is not None]
        return {
            "external_rows_per_s": sum(demand.rates),
            "wanted_rows_per_s": sum(demand.needs),
            "backlog_rows": sum(known) if len(known) == len(backlogs) else None,
            "capacity_rows_per_s": capacity.value,
            "capacity_low_rows_per_s": capacity.low,
            "capacity_high_rows_per_s": capacity.high,
        }

    def _local(self, demand: _Demand, inputs: Inputs) -> Hold:
        query = demand.limiting(1)
        rate, load = interval_text(demand.total(1)), f"{sum(demand.rates):.4g} rows/s arrive"
        cause = (
            "" if query.bottleneck is None else f" The bottleneck is {query.bottleneck}, in query '{query.pipeline}'."
        )
        is_saturated = any(query.saturated for query in demand.queries) or demand.is_too_few(1)
        is_unknown = any(query.saturated is None for query in demand.queries) and not demand.suffices(1)
        if is_saturated:
            code, text = Reason.AT_LIMIT, f"{load}, and the waiting rows grow; the program sustains {rate}."
        elif is_unknown:
            text = (
                f"{load}, and the estimated capacity is {rate}. Whether it suffices is unknown until more batches end."
            )
            code = Reason.MISSING
        else:
            code, text = Reason.WITHIN_TARGET, f"{load}, and the program sustains {rate}."
        return Hold(reason_code=code, reason=f"{text}{cause}", inputs=inputs, binding=query.bottleneck)

    def _decide(
        self, situation: Situation, demand: _Demand, memory: Memory, now: int, inputs: Inputs, *, may_release: bool
    ) -> tuple[Decision, Memory]:
        max_executors = max(self.min_executors, min(self.max_executors, situation.max_slots // self.slots_per_executor))
        no_turns = {LOW_TURNS: 0.0, LOW_MOST: 0.0}
        is_saturated = any(query.saturated for query in demand.queries)
        if is_saturated or demand.is_too_few(now) or now < self.min_executors:
            return self._add(situation, demand, now, max_executors, inputs, is_saturated=is_saturated), no_turns
        allowed = range(self.min_executors, min(now, max_executors + 1))
        fewest = next((count for count in allowed if demand.suffices(count)), None)
        if fewest is None and now <= max_executors:
            return self._stay(demand, now, inputs), no_turns
        if not may_release:
            reason = (
                "A query that reads the available rows and then ends is running; no executor is released meanwhile."
            )
            return Hold(reason_code=Reason.NOT_YET, reason=reason, inputs=inputs), no_turns
        fewest = max_executors if fewest is None else fewest
        turns, most = memory.get(LOW_TURNS, 0.0) + 1.0, max(memory.get(LOW_MOST, 0.0), float(fewest))
        kept = {LOW_TURNS: turns, LOW_MOST: most}
        if turns < self.stable_turns:
            reason = (
                f"{fewest} of {now} executors have sufficed for {turns:g} turns; a release requires "
                f"{self.stable_turns}."
            )
            return Hold(reason_code=Reason.NOT_YET, reason=reason, inputs=inputs), kept
        return self._change(situation, demand, now, int(most), Reason.RELEASE, inputs), kept

    def _stay(self, demand: _Demand, now: int, inputs: Inputs) -> Hold:
        query, load = demand.limiting(now), f"{sum(demand.needs):.4g} rows/s"
        if not demand.suffices(now) and any(query.saturated is None for query in demand.queries):
            reason = (
                f"The load needs {load}. Whether {_executors(now)} suffice is unknown until more batches have ended: "
                f"their estimated capacity is {interval_text(demand.total(now))}."
            )
            return Hold(reason_code=Reason.MISSING, reason=reason, inputs=inputs, binding=query.bottleneck)
        sustained = f"{_executors(now)} sustain{'s' if now == 1 else ''} {interval_text(demand.total(now))}"
        if now <= self.min_executors:
            reason = f"The load needs {load}; {sustained}, and fewer are not allowed."
        elif demand.is_too_few(now - 1):
            reason = f"The load needs {load}; {sustained}, and {now - 1} would sustain " + (
                f"{interval_text(demand.total(now - 1))}."
            )
        else:
            fewer = interval_text(demand.total(now - 1))
            reason = (
                f"The load needs {load}, and {_executors(now)} keep up. Whether {now - 1} would suffice is unknown: "
                f"their estimated capacity is {fewer}."
            )
        return Hold(reason_code=Reason.WITHIN_TARGET, reason=reason, inputs=inputs, binding=query.bottleneck)

    def _add(
        self, situation: Situation, demand: _Demand, now: int, max_executors: int, inputs: Inputs, *, is_saturated: bool
    ) -> Decision:
        more = range(max(now + 1, self.min_executors), max_executors + 1)
        target = next((count for count in more if (demand.factor(count, "value") or 1.0) >= 1.0), None)
        if now < self.min_executors:
            target = target or max_executors
        if target is not None:
            return self._change(situation, demand, now, target, Reason.SHORTAGE, inputs)
        factors = {count: demand.factor(count, "value") or 1.0 for count in (now, *more)}
        best = min((count for count in factors if factors[count] >= max(factors.values()) / (1.0 + _NEAR)), default=now)
        if best > now and factors[best] > (1.0 + _GAIN) * factors[now]:
            return self._change(situation, demand, now, best, Reason.SHORTAGE, inputs)
        if is_saturated and more and demand.total(max_executors).value is None and not demand.is_too_few(max_executors):
            change = self._change(situation, demand, now, more[0], Reason.SHORTAGE, inputs)
            return replace(change, reason=f"{change.reason} Whether that suffices is unknown, and one more shows it.")
        query = demand.limiting(now)
        grows = "its waiting rows grow" if is_saturated else "it exceeds the capacity"
        cause = (
            "" if query.bottleneck is None else f" The bottleneck is {query.bottleneck}, in query '{query.pipeline}'."
        )
        sustained = interval_text(demand.total(max(now, max_executors)))
        help_text = f"{_executors(now)} are the largest allowed number" if not more else "More executors do not help"
        return Hold(
            reason_code=Reason.AT_LIMIT,
            reason=f"The load needs {sum(demand.needs):.4g} rows/s and {grows}. {help_text}: they sustain {sustained}."
            f"{cause}",
            inputs=inputs,
            binding=query.bottleneck,
        )

    def _change(
        self, situation: Situation, demand: _Demand, now: int, target: int, code: Reason, inputs: Inputs
    ) -> Change:
        plan = plan_with(situation, target * self.slots_per_executor)
        arriving, query = sum(demand.rates), demand.limiting(now)
        grows = " and the waiting rows grow" if any(part.saturated for part in demand.queries) else ""
        best = {count: _best(demand.total(count)) for count in (now, target, max(1, target - 1))}
        alternatives = [
            Alternative(
                replicas=plan.replicas,
                expected=PlanOutcome(slots=count * self.slots_per_executor, rows_per_s=best[count]),
                reason=f"{_executors(count)} sustain {interval_text(demand.total(count))}.",
            )
            for count in (target - 1,)
            if count >= self.min_executors
        ]
        return Change(
            plan=plan,
            reason_code=code,
            reason=f"The load needs {sum(demand.needs):.4g} rows/s{grows}: {now} -> {_executors(target)}, which "
            f"sustain {interval_text(demand.total(target))}; {now} sustain {interval_text(demand.total(now))}.",
            staying=PlanOutcome(slots=situation.slots, rows_per_s=min(arriving, best[now])),
            expected=PlanOutcome(
                slots=situation.topology.slots(plan, micro_batch=situation.micro_batch),
                rows_per_s=min(arriving, best[target]),
            ),
            inputs=inputs,
            binding=query.bottleneck,
            alternatives=tuple(alternatives),
        )


def _unknown(running: Sequence[PipelineWindow], queries: Sequence[PipelineWindow]) -> Hold | None:
    """Return the Hold for queries that do not have to sustain a rate, or whose rate or capacity is not known."""
    if not running:
        return Hold(reason_code=Reason.IDLE, reason="No streaming query is running.")
    if not queries:
        names = ", ".join(f"'{query.pipeline}'" for query in running)
        rates = [query.capacity[0] for query in running if query.capacity]
        return Hold(
            reason_code=Reason.MISSING,
            reason=f"Query {names} reads the available rows and then ends. It has to sustain no rate, so the number of "
            "executors that it needs is unknown.",
            inputs={"capacity_low_rows_per_s": sum(rate.low for rate in rates)} if rates else {},
        )
    for query in queries:
        if query.input_rows_per_s is None:
            reason = f"The input rate of query '{query.pipeline}' is unknown until it has run two batches."
            return Hold(reason_code=Reason.MISSING, reason=reason)
        if not query.capacity and query.input_rows_per_s > 0:
            reason = f"The capacity of query '{query.pipeline}' is unknown until a batch with rows has been measured."
            return Hold(reason_code=Reason.MISSING, reason=reason)
    if not any(query.capacity for query in queries):
        return Hold(reason_code=Reason.IDLE, reason="No rows have arrived, so the capacity is unknown.")
    return None


def _best(estimate: Estimate) -> float:
    """Return the estimate. If it is unknown, return the geometric mean of both ends, or the only known end."""
    if estimate.value is not None:
        return estimate.value
    return estimate.low if estimate.high is None else math.sqrt(estimate.low * estimate.high)


def _executors(count: int) -> str:
    return f"{count} executor{'s' if count != 1 else ''}"


def interval_text(estimate: Estimate) -> str:
    """Return an estimate in words.

    >>> interval_text(Estimate(low=90.0, value=100.0, high=120.0))
    'about 100 rows/s (90 to 120)'
    >>> interval_text(Estimate(low=90.0, value=None, high=None))
    'at least 90 rows/s; the upper limit is unknown'
    >>> interval_text(Estimate(low=90.0, value=None, high=900.0))
    '90 to 900 rows/s'
    """
    if estimate.value is not None:
        high = "" if estimate.high is None else f" to {estimate.high:.4g}"
        return f"about {estimate.value:.4g} rows/s ({estimate.low:.4g}{high})"
    if estimate.high is None:
        return f"at least {estimate.low:.4g} rows/s; the upper limit is unknown"
    return f"{estimate.low:.4g} to {estimate.high:.4g} rows/s"
