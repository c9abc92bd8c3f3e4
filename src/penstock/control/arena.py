"""The arena: policies on the same dataflow, load and engine, from the same starts and seeds, and one league table.

A contest is judged by what came of it, not by what the policy thought: all plans are tried in the same simulator, and a
policy's share is the best latency over that of its last plan.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import median

from penstock.control.controller import Settings
from penstock.control.loop import Clock
from penstock.control.rehearsal import rehearse
from penstock.control.shape import Shape
from penstock.control.situation import Policy
from penstock.dataflow import Dataflow
from penstock.engines.ports import RunnableEngine
from penstock.engines.simulated import Behaviour, SimulatedEngine
from penstock.plan.plan import Plan
from penstock.store import Store

Judge = Callable[[Plan], float]  # the latency (s) under a plan; infinite where it does not keep up

_GROWS = 1.25  # from one half of a trial to the next; without a steady state it is 1.75 / 1.25
_FINALISTS = 24


def every_plan(shape: Shape, plan: Plan, slots: int, *, micro_batch: bool = False) -> Iterator[Plan]:
    """All plans within so many slots that may be the best.

    Row by row a replica more never harms and cuts make no difference: those that use exactly the slots, of which there
    are C(slots - 1, regions - 1), 210 for 22 slots and 3 regions. In micro-batches both may: each way to cut between
    regions, with all replicas that need no more than the slots.
    """
    names = [region.name for region in shape.regions]
    ranges = [range(1, slots + 1 if region.replicable else 2) for region in shape.regions]
    for cuts in _ways_to_cut(shape) if micro_batch else [plan.cuts]:
        for counts in product(*ranges):
            if not micro_batch and sum(counts) != slots:
                continue
            tried = shape.rescaled(plan.replace(cuts=cuts), dict(zip(names, counts, strict=True)))
            if shape.slots(tried, micro_batch=micro_batch) <= slots:
                yield tried


def _ways_to_cut(shape: Shape) -> Iterator[frozenset[str]]:
    inner = {shape.exit(before) for before, _ in shape.streams if before not in shape.sources}
    wished = sorted(inner - shape.needed)
    for size in range(len(wished) + 1):
        yield from (shape.needed | frozenset(some) for some in combinations(wished, size))


def any_plans(shape: Shape, plan: Plan, slots: int, *, micro_batch: bool, seed: int) -> Iterator[Plan]:
    """Starts without end: one replica each, and then whatever chance brings that fits the slots."""
    chance = random.Random(seed)
    yield plan
    ways = list(_ways_to_cut(shape)) if micro_batch else [plan.cuts]
    while True:
        counts = {one.name: chance.randint(1, slots) if one.replicable else 1 for one in shape.regions}
        drawn = shape.rescaled(plan.replace(cuts=chance.choice(ways)), counts)
        if shape.slots(drawn, micro_batch=micro_batch) <= slots:
            yield drawn


def trial(flow: Dataflow, behaviour: Behaviour, mode: str, *, seed: int, seconds: float) -> Judge:
    """Judges a plan by simulating it for so long, always the same rows; as long again before does not count."""

    def judge(plan: Plan) -> float:
        engine = SimulatedEngine(flow, behaviour, plan=plan, mode=mode, seed=seed)
        engine.start()
        engine.advance(seconds)
        engine.observe()
        halves = []
        for _ in range(2):
            engine.advance(seconds / 2)
            halves.append(engine.observe().latency)
        first, second = halves
        if first is None or second is None or second.mean_s > _GROWS * first.mean_s:
            return math.inf
        return (first.rows * first.mean_s + second.rows * second.mean_s) / (first.rows + second.rows)

    return judge


def remembering(judge: Judge) -> Judge:
    """Judges no plan twice."""
    known: dict[str, float] = {}

    def judged(plan: Plan) -> float:
        key = plan.to_json()
        if key not in known:
            known[key] = judge(plan)
        return known[key]

    return judged


def best_plan(plans: Iterable[Plan], quick: Judge, judge: Judge) -> tuple[Plan, float]:
    """All are tried, the best of them again for longer; of equals the first."""
    tried = sorted(((quick(one), one) for one in plans), key=lambda tried: tried[0])
    return min(((one, judge(one)) for _, one in tried[:_FINALISTS]), key=lambda tried: tried[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one policy did from one start."""

    policy: str
    share: float  # best latency / the one under its last plan: 1 is the optimum, 0 does not keep up
    rounds: int | None  # changes until it was within 3% of the optimum for the first time; None: never
    changes: int
    rolled_back: int
    slot_seconds: float
    violations: int  # windows with a mean latency above the target
    pause_s: float


def compete(
    policy: Policy,
    engine: RunnableEngine,
    clock: Clock,
    *,
    windows: int,
    every_s: float,
    settings: Settings,
    judge: Judge,
    best_s: float,
    max_s: float | None = None,
    within: float = 0.03,
) -> Standing:
    """Lets a policy act on an engine that is not started yet, for so many windows. The clock is the engine's own."""
    with tempfile.TemporaryDirectory() as at, Store(Path(at)) as store:
        sums, rows = rehearse(
            policy, engine, clock, store, windows=windows, every_s=every_s, settings=settings, max_s=max_s
        )
    shares = [_share(best_s, judge(row.new)) for row in rows if row.new is not None]
    started = _share(best_s, judge(rows[0].old if rows else engine.plan))
    reached = [i for i, share in enumerate([started, *shares]) if share >= 1.0 - within]
    return Standing(
        policy=policy.name,
        share=shares[-1] if shares else started,
        rounds=reached[0] if reached else None,
        changes=sums.changes,
        rolled_back=sums.rolled_back,
        slot_seconds=sums.slot_seconds,
        violations=sums.violations or 0,
        pause_s=sums.pause_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How one policy did from all starts; where there is a spread, the worst beside the middle."""

    policy: str
    starts: int
    share: float
    worst_share: float
    reached: int  # starts from which it came within 3% of the optimum
    rounds: float | None  # of those: changes until then
    most_rounds: int | None
    changes: float
    rolled_back: int
    slot_hours: float
    violations: float
    pause_s: float


def summary(standings: Sequence[Standing]) -> Summary:
    """Of one policy."""
    rounds = [one.rounds for one in standings if one.rounds is not None]
    return Summary(
        policy=standings[0].policy,
        starts=len(standings),
        share=median(one.share for one in standings),
        worst_share=min(one.share for one in standings),
        reached=len(rounds),
        rounds=median(rounds) if rounds else None,
        most_rounds=max(rounds, default=None),
        changes=median(one.changes for one in standings),
        rolled_back=sum(one.rolled_back for one in standings),
        slot_hours=median(one.slot_seconds for one in standings) / 3600,
        violations=median(one.violations for one in standings),
        pause_s=median(one.pause_s for one in standings),
    )


def league(summaries: Sequence[Summary]) -> list[Summary]:
    """Best first: by how often it reached the optimum, by share, by changes to get there, by what it cost."""
    return sorted(
        summaries,
        key=lambda one: (
            -one.reached / one.starts,
            -round(one.share, 3),
            math.inf if one.rounds is None else one.rounds,
            one.slot_hours,
        ),
    )


def _share(best_s: float, latency_s: float) -> float:
    return best_s / latency_s if math.isfinite(latency_s) and latency_s > 0 else 0.0
