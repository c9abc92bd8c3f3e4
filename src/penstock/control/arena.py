"""The arena: policies on the same dataflow, load and engine, and one league table.

A round is judged by what came of it, not by what the policy thought: the best plan is found by trying all of them with
the same judge (a model, or a trial in a simulator), and a policy's share is the best sojourn over its last plan's.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from penstock.control.controller import Settings
from penstock.control.loop import Clock
from penstock.control.rehearsal import rehearse
from penstock.control.shape import Shape
from penstock.control.situation import Policy
from penstock.dataflow import Dataflow
from penstock.engines.ports import Engine
from penstock.engines.simulated import Behaviour, SimulatedEngine
from penstock.plan.plan import Plan
from penstock.store import Store

Judge = Callable[[Plan], float]  # the sojourn (s) under a plan; infinite where it does not keep up


def every_plan(shape: Shape, plan: Plan, slots: int) -> Iterator[Plan]:
    """All plans that use exactly so many slots, one region a station; those with one replica keep it.

    C(slots - 1, regions - 1) of them: 210 for 22 slots and 3 regions, 7315 for 4 regions on 22 more.
    """
    free = [region.name for region in shape.regions if region.replicable]
    left = slots - (len(shape.regions) - len(free))
    for bars in combinations(range(1, left), len(free) - 1):
        edges = (0, *bars, left)
        counts = {name: after - before for name, before, after in zip(free, edges, edges[1:], strict=False)}
        yield shape.rescaled(plan, counts)


def best_plan(shape: Shape, plan: Plan, slots: int, judge: Judge) -> tuple[Plan, float]:
    """By exhaustive search; of equals the first."""
    return min(((one, judge(one)) for one in every_plan(shape, plan, slots)), key=lambda tried: tried[1])


def trial(flow: Dataflow, behaviour: Behaviour, mode: str, *, seed: int, rows: int) -> Judge:
    """Judges a plan by simulating about so many rows under it, always the same ones; the first fifth does not count."""
    rate = sum(source.rates[0][1] for source in behaviour.sources.values() if source.rates)

    def judge(plan: Plan) -> float:
        engine = SimulatedEngine(flow, behaviour, plan=plan, mode=mode, seed=seed)
        engine.start()
        engine.advance(0.2 * rows / rate)
        engine.observe()
        engine.advance(rows / rate)
        window = engine.observe()
        behind = sum(one.backlog_rows or 0 for one in window.pipelines)
        return math.inf if window.sojourn is None or behind > 0.2 * rows else window.sojourn.mean_s

    return judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one policy did in one round."""

    policy: str
    share: float  # best sojourn / the one under its last plan: 1 is the optimum, 0 does not keep up
    rounds: int | None  # changes until it was within 3% of the optimum for the first time; None: never
    changes: int
    rolled_back: int
    slot_seconds: float
    violations: int  # windows with a mean sojourn above the target
    pause_s: float


def compete(
    policy: Policy,
    make: Callable[[], tuple[Engine, Clock]],
    *,
    windows: int,
    every_s: float,
    settings: Settings,
    judge: Judge,
    best_s: float,
    max_s: float | None = None,
    within: float = 0.03,
) -> Standing:
    """Lets a policy act on a fresh engine for so many windows. The clock is the engine's own."""
    engine, clock = make()
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


def league(standings: Sequence[Standing]) -> list[Standing]:
    """Best first: by share, then by changes to get there, then by what it cost."""
    return sorted(
        standings,
        key=lambda one: (-round(one.share, 3), math.inf if one.rounds is None else one.rounds, one.slot_seconds),
    )


def _share(best_s: float, sojourn_s: float) -> float:
    return best_s / sojourn_s if math.isfinite(sojourn_s) and sojourn_s > 0 else 0.0
