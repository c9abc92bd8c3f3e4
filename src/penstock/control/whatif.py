"""Replay a recorded run in the simulator under another plan, load or limit.

1. Merge the recorded windows to steps of at least ten seconds, without the time in which the run was stopped.
2. Learn costs, selectivities, batch times and pauses from all windows.
3. Simulate the run as it was. Recorded relative to simulated latency, minute by minute, is the error of the simulator:
   its mean corrects the latencies of other simulations, and its spread gives their intervals.
4. Simulate the run as it is asked for, also with costs at both ends of their intervals.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from penstock.control.policies.auto.learned import Learned
from penstock.control.policies.auto.learning import add_batches, measured_demand, network_of
from penstock.control.policy import Hold, Policy, Situation, latency_s
from penstock.control.simulation import Duration, simulate
from penstock.control.topology import Topology
from penstock.dataflow.errors import PenstockError
from penstock.measure.smoothing import merged
from penstock.measure.window import Estimate, Window
from penstock.plan.plan import Plan
from penstock.store import LatencyTarget, Store, StoreReader

if TYPE_CHECKING:
    from penstock.control.controller import Settings
    from penstock.dataflow import Dataflow
    from penstock.engines.simulated import Behaviour
    from penstock.engines.simulated.distributions import Distribution

_STEP_S = 10.0
_MOST_STEPS = 4320  # twelve hours in steps of ten seconds; longer runs have longer steps
_BLOCK_S = 60.0
_ERRORS = 1.64  # standard errors that contain 90 %
_LEAST_SPREAD, _UNKNOWN_SPREAD = 0.03, 0.3  # spread of the logarithm of recorded / simulated latency
_FEW_BLOCKS = 3
_MAX_CORRECTION = 5.0
_PAUSE_S = 3.0  # assumed pause of a change if the run has none
_START_UP_S = 8.0  # assumed start-up time of an executor if the run started none
_LEAST_BATCH_S = 2.0  # batches under a backlog last at least as long


class ReplayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Latency, late windows and cost of a run: recorded, or simulated with intervals."""

    latency: Estimate | None  # over all rows: the mean, or the mean of the quantile of each window
    late: Estimate | None  # share of the windows above the target; None without a target
    slot_hours: Estimate
    changes: int


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was recorded, as the simulator reproduces it, and as it would have been."""

    dataflow: str
    seconds: float  # recorded time
    windows: int
    target: LatencyTarget | None
    question: str
    actual: ReplayedRun
    reproduced: ReplayedRun  # the same plans and load in the simulator, without correction
    answer: ReplayedRun
    correction: float  # recorded / simulated latency
    last_plan: Plan  # at the end of the answer


class Step(NamedTuple):
    """A merged window in replayed time, which has no gaps."""

    start_s: float
    end_s: float
    window: Window


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A run as it was recorded."""

    flow: Dataflow
    topology: Topology
    steps: tuple[Step, ...]
    plans: tuple[tuple[float, Plan], ...]  # (replayed second, plan that is used from then on)
    behaviour: Behaviour
    errors: dict[str, float]  # operator -> relative standard error of its cost
    target: LatencyTarget | None
    micro_batch: bool
    slots_per_executor: int | None  # all slots of executors are paid, also unused ones; None: the slots are fixed

    @property
    def seconds(self) -> float:
        return self.steps[-1].end_s

    @property
    def step_s(self) -> float:
        return float(median(step.end_s - step.start_s for step in self.steps))

    def slots(self, plan: Plan) -> int:
        used = self.topology.slots(plan, micro_batch=self.micro_batch)
        return min(plan.slots, used) if self.slots_per_executor is None else plan.slots


class Planned(NamedTuple):
    """Plans that are known in advance, each from a replayed second on."""

    plans: tuple[tuple[float, Plan], ...]


class Controlled(NamedTuple):
    """A policy that chooses the plans, from the first recorded one on.

    `slots` are those of the machine, which may be more than the recorded ones; None: the policy sets the executors.
    """

    policy: Policy
    settings: Settings
    slots: int | None


class _Trace(NamedTuple):
    """Windows with the plan in force at their end."""

    windows: list[tuple[Window, Plan]]
    changes: int


def recording_of(reader: StoreReader, flow: Dataflow) -> Recording:
    """Return the record of a run as a value. Raises PenstockError if it is too short or lacks measurements."""
    topology = Topology.of(flow)
    windows = [window for _, window in reader.iter_windows() if window.end_s > window.start_s]
    windows = [window for window in windows if window.external_rows_per_s is not None]
    starts = [start for start in reader.runs() if start.plan is not None]
    if len(windows) < _FEW_BLOCKS or not starts:
        raise PenstockError("The record contains too few windows to replay; let the run continue for some minutes.")
    steps = _steps(windows)
    plans = _plans(reader, steps)
    micro_batch = any(query.batches for window in windows for query in window.pipelines)
    situations = [
        Situation(
            now_s=window.end_s,
            topology=topology,
            plan=plan,
            window=window,
            latest=window,
            max_slots=plan.slots,
            micro_batch=micro_batch,
        )
        for window, plan in _with_plans(windows, reader)
    ]
    learned = _learned(situations)
    last = next((known for known in reversed(situations) if _is_complete(known)), None)
    if last is None:
        raise PenstockError(
            "The record lacks the cost of an operator, or no rows arrived; let the run continue until all operators "
            "have processed rows."
        )
    return Recording(
        flow=flow,
        topology=topology,
        steps=steps,
        plans=plans,
        behaviour=_behaviour(flow, last, learned, reader, steps, list(topology.sources)),
        errors={name: sums.error for name, sums in learned.operators.items()},
        target=starts[-1].latency_target,
        micro_batch=micro_batch,
        slots_per_executor=starts[-1].slots_per_executor,
    )


def what_if(
    recording: Recording, asked: Planned | Controlled, *, question: str, rate: float = 1.0, seed: int = 0
) -> WhatIf:
    """Replay a recording with the load multiplied by `rate`, under plans or a policy."""
    actual = _Trace([(step.window, _plan_at(recording.plans, step.start_s)) for step in recording.steps],
                    len(recording.plans) - 1)  # fmt: skip
    reproduced = _simulated(recording, Planned(recording.plans), cost_errors=0.0, rate=1.0, seed=seed)
    correction, spread = _correction(recording, actual, reproduced)
    answers = [
        _simulated(recording, asked, cost_errors=errors, rate=rate, seed=seed) for errors in (0.0, -_ERRORS, _ERRORS)
    ]
    return WhatIf(
        dataflow=recording.flow.name,
        seconds=recording.seconds,
        windows=len(recording.steps),
        target=recording.target,
        question=question,
        actual=_summary(recording, [actual], 1.0, 0.0),
        reproduced=_summary(recording, [reproduced], 1.0, 0.0),
        answer=_summary(recording, answers, correction, spread),
        correction=correction,
        last_plan=answers[0].windows[-1][1],
    )


# ---- the record


def _steps(windows: Sequence[Window]) -> tuple[Step, ...]:
    observed_s = sum(window.end_s - window.start_s for window in windows)
    step_s = max(_STEP_S, observed_s / _MOST_STEPS)
    steps: list[Step] = []
    group: list[Window] = []
    at_s = 0.0
    for window in windows:
        group.append(window)
        span_s = sum(own.end_s - own.start_s for own in group)
        if span_s >= step_s - 1e-6:
            steps.append(Step(at_s, at_s + span_s, _merged(group)))
            at_s, group = at_s + span_s, []
    return tuple(steps)


def _merged(group: list[Window]) -> Window:
    window = merged(group, [own.end_s - own.start_s for own in group])
    return msgspec.structs.replace(window, warm_up=any(own.warm_up for own in group))


def _known_plans(reader: StoreReader) -> list[tuple[float, Plan]]:
    """Return the plans in force, from a time on."""
    known = [(start.started_s, start.plan) for start in reader.runs() if start.plan is not None]
    known += [(change.at_s, change.new) for change in reader.plan_changes() if change.outcome == "ok"]
    return sorted(known, key=lambda entry: entry[0])


def _plan_at(plans: Sequence[tuple[float, Plan]], at_s: float) -> Plan:
    return next((plan for since_s, plan in reversed(plans) if since_s <= at_s + 1e-6), plans[0][1])


def _with_plans(windows: Sequence[Window], reader: StoreReader) -> list[tuple[Window, Plan]]:
    known = _known_plans(reader)
    return [(window, _plan_at(known, window.start_s)) for window in windows]


def _plans(reader: StoreReader, steps: Sequence[Step]) -> tuple[tuple[float, Plan], ...]:
    """Return the plans by replayed time. The pause of a change is simulated in the step in which it began."""
    known = _known_plans(reader)
    plans: list[tuple[float, Plan]] = []
    for step in steps:
        plan = _plan_at(known, step.window.end_s)
        if not plans or plans[-1][1] != plan:
            plans.append((step.start_s, plan))
    return tuple(plans)


def _is_complete(situation: Situation) -> bool:
    return not isinstance(measured_demand(situation, Learned()), Hold)


def _learned(situations: Sequence[Situation]) -> Learned:
    learned = Learned()
    for situation in situations:
        assert situation.window is not None
        learned.add_operators(situation.window, 0.0, slowdown=1.0)
        if not situation.micro_batch:
            continue
        measured = measured_demand(situation, learned)
        if not isinstance(measured, Hold):
            network = network_of(measured, learned, situation.plan.cuts)
            add_batches(learned, network, situation, situation.window)
    return learned


def _behaviour(
    flow: Dataflow, last: Situation, learned: Learned, reader: StoreReader, steps: Sequence[Step], sources: list[str]
) -> Behaviour:
    from penstock.engines.simulated.behaviour import (
        UNLIMITED_ROWS,
        ChangePause,
        SimulatedBatchCosts,
        SimulatedCluster,
        SourceBehaviour,
    )
    from penstock.engines.simulated.calibration import behaviour_from_window

    assert last.window is not None
    costs = behaviour_from_window(flow, learned.with_learned(last.window))
    applied = [row for _, row in reader.applied_changes() if row.applied == "ok"]
    pauses = [row.pause_s for row in applied if row.pause_s is not None]
    pauses += [change.pause_s for change in reader.plan_changes() if change.pause_s is not None]
    waits = [row.took_s - row.pause_s for row in applied if row.took_s is not None and row.pause_s is not None]
    per_executor = reader.runs()[-1].slots_per_executor
    measured = measured_demand(last, learned)
    batch = SimulatedBatchCosts()
    if last.micro_batch and not isinstance(measured, Hold):
        network = network_of(measured, learned, last.plan.cuts)
        longest_s = max((query.batch_max_s or 0.0 for step in steps for query in step.window.pipelines), default=0.0)
        batch = SimulatedBatchCosts(
            batch_s=max(0.01, float(np.mean(network.fixed_s))),
            task_s=network.task_s,
            target_s=max(_LEAST_BATCH_S, longest_s),
        )
    return costs.replace(
        sources={name: SourceBehaviour(rates=_rates(steps, name, sources), rows=UNLIMITED_ROWS) for name in sources},
        change=ChangePause(fixed_s=median(pauses) if pauses else _PAUSE_S, seconds_per_state_mb=0.0),
        cluster=SimulatedCluster(
            slots_per_executor=per_executor or 1,
            start_up_s=0.0 if per_executor is None else max([*waits, 0.0]) or _START_UP_S,
        ),
        batch=batch,
    )


def _rates(steps: Sequence[Step], source: str, sources: list[str]) -> tuple[tuple[float, float], ...]:
    """Return the rows/s that arrived at a source."""
    rates = []
    for step in steps:
        seen = {operator.operator: operator.input_rows_per_s for operator in step.window.operators}
        total = step.window.external_rows_per_s or 0.0
        known = math.fsum(seen.get(name) or 0.0 for name in sources)
        share = (seen.get(source) or 0.0) / known if known > 0 else 1.0 / len(sources)
        rates.append((step.start_s, max(0.0, total * share)))
    return tuple(rates)


# ---- simulations


def _simulated(
    recording: Recording, asked: Planned | Controlled, *, cost_errors: float, rate: float, seed: int
) -> _Trace:
    """Simulate the recorded load; costs are so many standard errors above the learned ones."""
    from penstock.engines.simulated import Mode, SimulatedEngine

    behaviour = _scaled(recording, cost_errors, rate)
    first = asked.plans[0][1] if isinstance(asked, Planned) else recording.plans[0][1]
    if isinstance(asked, Controlled) and asked.slots is not None:
        first = first.replace(slots=max(first.slots, asked.slots))
    mode = Mode.MICRO_BATCH if recording.micro_batch else Mode.ROW_BY_ROW
    engine = SimulatedEngine(recording.flow, behaviour, plan=first, mode=mode, seed=seed)
    if isinstance(asked, Controlled):
        duration = Duration(windows=recording.seconds / recording.step_s, window_s=recording.step_s)
        with tempfile.TemporaryDirectory() as at, Store(Path(at)) as store:
            _, changes = simulate(asked.policy, engine, store, asked.settings, clock=engine.clock, duration=duration)
            plans = [(0.0, first), *((row.at_s, row.new) for row in changes if row.new is not None)]
            windows = [(window, _plan_at(plans, window.start_s)) for _, window in store.windows()]
        return _Trace(windows, len(changes))
    engine.start()
    result: list[tuple[Window, Plan]] = []
    changes_made = 0
    for step in recording.steps:
        plan = _plan_at(asked.plans, step.start_s)
        if plan != engine.plan:
            engine.apply(plan)
            changes_made += 1
        engine.advance(max(0.01, step.end_s - engine.now_s))
        result.append((engine.observe(), engine.plan))
    return _Trace(result, changes_made)


def _scaled(recording: Recording, cost_errors: float, rate: float) -> Behaviour:
    behaviour = recording.behaviour
    operators = {
        name: msgspec.structs.replace(
            own,
            service_s=_times(own.service_s, max(0.05, 1.0 + cost_errors * recording.errors.get(name, 0.0))),
        )
        for name, own in behaviour.operators.items()
    }
    sources = {
        name: msgspec.structs.replace(own, rates=tuple((at_s, rate * rows) for at_s, rows in own.rates or ()))
        for name, own in behaviour.sources.items()
    }
    return behaviour.replace(operators=operators, sources=sources)


def _times(distribution: Distribution, factor: float) -> Distribution:
    """Return a distribution of the same shape with a mean that is multiplied."""
    from penstock.engines.simulated.distributions import Exponential, Fixed, Gamma

    match distribution:
        case Fixed():
            return Fixed(value=factor * distribution.value)
        case Exponential() | Gamma():
            return msgspec.structs.replace(distribution, mean=factor * distribution.mean)
    return distribution


# ---- results


def _correction(recording: Recording, actual: _Trace, simulated: _Trace) -> tuple[float, float]:
    """Return recorded / simulated latency, and the spread of its logarithm over blocks of a minute."""
    quantile = None if recording.target is None else recording.target.quantile
    together = max(1, round(_BLOCK_S / recording.step_s))
    logs = []
    for at in range(0, len(recording.steps), together):
        ours = [
            (seen, model)
            for (own, _), (other, _) in zip(
                actual.windows[at : at + together], simulated.windows[at : at + together], strict=True
            )
            if not own.warm_up
            if (seen := latency_s(own.latency, quantile)) is not None
            if (model := latency_s(other.latency, quantile)) is not None and model > 0 and seen > 0
        ]
        if ours:
            logs.append(math.log(sum(seen for seen, _ in ours) / sum(model for _, model in ours)))
    if len(logs) < _FEW_BLOCKS:
        return 1.0, _UNKNOWN_SPREAD
    middle = float(np.median(logs))
    spread = float(np.median(np.abs(np.array(logs) - middle))) / 0.6745  # of a normal variable; one outlier is ignored
    limit = math.log(_MAX_CORRECTION)
    return math.exp(min(limit, max(-limit, middle))), max(_LEAST_SPREAD, spread)


def _summary(recording: Recording, traces: Sequence[_Trace], correction: float, spread: float) -> ReplayedRun:
    """Summarise a trace; the others are those with costs at the ends of their intervals."""
    factors = (correction, correction * math.exp(-_ERRORS * spread), correction * math.exp(_ERRORS * spread))
    latencies = [_mean_latency_s(recording, trace, factor) for trace in traces for factor in factors]
    lates = [_late(recording, trace, factor) for trace in traces for factor in factors]
    hours = [_slot_hours(recording, trace) for trace in traces]
    return ReplayedRun(
        latency=_estimate(latencies),
        late=None if recording.target is None else _estimate(lates),
        slot_hours=Estimate(low=min(hours), value=hours[0], high=max(hours)),
        changes=traces[0].changes,
    )


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return Estimate(low=min(known), value=values[0], high=max(known)) if known else None


def _mean_latency_s(recording: Recording, trace: _Trace, factor: float) -> float | None:
    quantile = None if recording.target is None else recording.target.quantile
    rows = [(window.latency.rows, latency_s(window.latency, quantile)) for window, _ in trace.windows
            if window.latency is not None and not window.warm_up]  # fmt: skip
    total = sum(count for count, _ in rows)
    return factor * sum(count * (value or 0.0) for count, value in rows) / total if total else None


def _late(recording: Recording, trace: _Trace, factor: float) -> float | None:
    """Return the share of late windows; a window in which rows waited and none came out is late."""
    target = recording.target
    counted = [window for window, _ in trace.windows if not window.warm_up]
    if target is None or not counted:
        return None
    late = 0
    for window in counted:
        value = latency_s(window.latency, target.quantile)
        stuck = value is None and any(query.backlog_rows for query in window.pipelines)
        late += stuck or (value is not None and factor * value > target.seconds)
    return late / len(counted)


def _slot_hours(recording: Recording, trace: _Trace) -> float:
    return sum((window.end_s - window.start_s) * recording.slots(plan) for window, plan in trace.windows) / 3600.0


def with_target(recording: Recording, target: LatencyTarget | None) -> Recording:
    """Return the recording with another latency target; None keeps the recorded one."""
    return recording if target is None else replace(recording, target=target)
