"""Compare policies on one application and one kind of engine, from the same first plans."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from penstock.control.arena.plans import Optimum, best_plan, cached, every_plan, random_plans, simulated_latency
from penstock.control.arena.scenarios import FINE, SCENARIOS
from penstock.control.controller import Settings
from penstock.control.loop import Clock
from penstock.control.policy import Policy
from penstock.control.simulation import Duration, simulate
from penstock.control.topology import Topology
from penstock.dataflow import PlanError
from penstock.engines.ports import RunnableEngine
from penstock.engines.simulated import Behaviour, Mode, SimulatedEngine
from penstock.plan import default_plan
from penstock.planning.trace import Trace
from penstock.store import LatencyTarget, Store

Progress = Callable[[Sequence[Any], str], Iterable[Any]]  # wraps a sequence of steps, such as `rich.progress.track`

_NEAR_OPTIMUM = 0.03  # relative distance from the optimum that counts as reached


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """The result of one policy from one first plan."""

    policy: str
    share: float  # best latency / latency of the last plan: 1 is optimal, 0 does not keep up
    rounds: int | None  # changes until it was within 3% of the optimum for the first time; None: never
    changes: int
    rolled_back: int
    slot_seconds: float
    violations: int  # windows with a mean latency above the target
    pause_s: float


def run_policy(
    policy: Policy,
    engine: RunnableEngine,
    clock: Clock,
    settings: Settings,
    *,
    duration: Duration,
    optimum: Optimum,
    target: LatencyTarget | None = None,
) -> PolicyResult:
    """Let a policy act on an engine that is not started yet. `clock` is the engine's own clock."""
    with tempfile.TemporaryDirectory() as at, Store(Path(at)) as store:
        summary, rows = simulate(policy, engine, store, settings, clock=clock, duration=duration, target=target)
    shares = [optimum.share(row.new) for row in rows if row.new is not None]
    first_share = optimum.share(rows[0].old if rows else engine.plan)
    reached = [number for number, share in enumerate([first_share, *shares]) if share >= 1.0 - _NEAR_OPTIMUM]
    return PolicyResult(
        policy=policy.name,
        share=shares[-1] if shares else first_share,
        rounds=reached[0] if reached else None,
        changes=summary.changes,
        rolled_back=summary.rolled_back,
        slot_seconds=summary.slot_seconds,
        violations=summary.violations or 0,
        pause_s=summary.pause_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """The results of one policy from all first plans: medians, and the worst case of share and rounds."""

    policy: str
    starts: int
    share: float
    worst_share: float
    reached: int  # starts from which it came within 3% of the optimum
    rounds: float | None  # changes until then
    most_rounds: int | None
    changes: float
    rolled_back: int
    slot_hours: float
    violations: float
    pause_s: float


def summarise(results: Sequence[PolicyResult]) -> PolicySummary:
    """Summarise the results of one policy."""
    rounds = [result.rounds for result in results if result.rounds is not None]
    return PolicySummary(
        policy=results[0].policy,
        starts=len(results),
        share=median(result.share for result in results),
        worst_share=min(result.share for result in results),
        reached=len(rounds),
        rounds=median(rounds) if rounds else None,
        most_rounds=max(rounds, default=None),
        changes=median(result.changes for result in results),
        rolled_back=sum(result.rolled_back for result in results),
        slot_hours=median(result.slot_seconds for result in results) / 3600,
        violations=median(result.violations for result in results),
        pause_s=median(result.pause_s for result in results),
    )


def ranked(summaries: Sequence[PolicySummary]) -> list[PolicySummary]:
    """Sort by starts that reached the optimum, share, changes until then, and slot-hours; the best policy first."""
    return sorted(
        summaries,
        key=lambda summary: (
            -summary.reached / summary.starts,
            -round(summary.share, 3),
            math.inf if summary.rounds is None else summary.rounds,
            summary.slot_hours,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaOptions:
    """Conditions that are the same for all policies."""

    slots: int
    starts: int  # number of first plans
    duration: Duration  # time of each policy from each first plan
    seed: int
    short_s: float = 600.0  # simulated time to evaluate a plan
    long_s: float = 6_000.0  # simulated time to evaluate one of the best plans
    trace: Trace | None = None  # its last rate is the application's own rate; None: constant load


class ArenaResult(msgspec.Struct, frozen=True, kw_only=True):
    application: str
    engine: str
    plans: int  # number of plans that were evaluated
    best: dict[str, int]  # replicas by region
    best_cuts: tuple[str, ...]
    best_latency_s: float
    league: list[PolicySummary]

    def __str__(self) -> str:
        ratio = ":".join(map(str, self.best.values()))
        return f"{self.application}, {self.engine}: best of {self.plans} plans {ratio}, {self.best_latency_s:.3g} s"


def compare_policies(
    application: str,
    engine: str,
    policies: Sequence[Policy],
    settings: Settings,
    options: ArenaOptions,
    progress: Progress = lambda steps, label: steps,
) -> ArenaResult:
    """Find the best plan by simulating all plans, then let each policy act from each first plan.

    The last rate of a trace is the application's own rate, so the best plan at the end does not depend on the trace.
    """
    micro_batch, slots, seed = engine == Mode.MICRO_BATCH, options.slots, options.seed
    flow, behaviour = SCENARIOS[application](FINE if micro_batch else 1)
    topology = Topology.of(flow)
    smallest = default_plan(flow, slots=slots, replicas={region.name: 1 for region in topology.regions})
    plans = list(every_plan(topology, smallest, slots, micro_batch=micro_batch))
    long = cached(simulated_latency(flow, behaviour, engine, seed=seed, seconds=options.long_s))
    short = simulated_latency(flow, behaviour, engine, seed=seed, seconds=options.short_s)
    optimum = best_plan(progress(plans, "all plans"), short, long)
    if not math.isfinite(optimum.latency_s):
        raise PlanError(
            f"No plan of '{application}' within {slots} slots keeps up with its load; increase the number of slots."
        )
    load = behaviour if options.trace is None else _with_trace(behaviour, options.trace)
    first_plans = list(
        islice(random_plans(topology, smallest, slots, micro_batch=micro_batch, seed=seed), options.starts)
    )

    def result(policy: Policy, number: int) -> PolicyResult:
        fresh = SimulatedEngine(flow, load, plan=first_plans[number], mode=engine, seed=seed + 1 + number)
        target = LatencyTarget(seconds=2 * optimum.latency_s)
        return run_policy(
            policy, fresh, fresh.clock, settings, duration=options.duration, optimum=optimum, target=target
        )

    summaries = [
        summarise([result(policy, number) for number in range(options.starts)])
        for policy in progress(policies, "policies")
    ]
    return ArenaResult(
        application=application,
        engine=engine,
        plans=len(plans),
        best=dict(optimum.plan.replicas),
        best_cuts=tuple(sorted(optimum.plan.cuts)),
        best_latency_s=optimum.latency_s,
        league=ranked(summaries),
    )


def _with_trace(behaviour: Behaviour, trace: Trace) -> Behaviour:
    """Return the behaviour with source rates in proportion to the trace."""
    last = trace.rates[-1]
    if not last > 0:
        raise PlanError("The last rate of the trace is 0; it is the application's own rate and must be above 0.")
    steps = [(number * trace.interval_s, rate / last) for number, rate in enumerate(trace.rates)]
    sources = {
        name: msgspec.structs.replace(source, rates=tuple((at_s, share * source.rates[-1][1]) for at_s, share in steps))
        if source.rates
        else source
        for name, source in behaviour.sources.items()
    }
    return msgspec.structs.replace(behaviour, sources=sources)
