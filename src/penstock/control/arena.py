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

from penstock.control.controller import Controller, Settings
from penstock.control.loop import Clock
from penstock.control.shape import Shape
from penstock.control.situation import Policy
from penstock.engines.ports import Engine
from penstock.plan.plan import Plan
from penstock.store import Run, Store

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
        store.begin(Run(dataflow=engine.flow.name, flow_file="arena", pid=0, master="arena", started_s=clock.time()))
        controller = Controller(policy, settings, engine, store)
        shape = Shape.of(engine.flow)
        engine.start()
        slot_seconds, violations = 0.0, 0
        for _ in range(windows):
            clock.sleep(every_s)
            window = engine.observe()
            span_s = window.end_s - window.start_s
            slot_seconds += span_s * shape.slots(engine.plan, micro_batch=settings.micro_batch)
            violations += max_s is not None and window.sojourn is not None and window.sojourn.mean_s > max_s
            controller.turn(window, number=store.add_window(window), at_s=clock.time())
        engine.stop()
        rows = [row for _, row in store.decisions() if row.applied == "ok" and row.new is not None]
    shares = [_share(best_s, judge(row.new)) for row in rows if row.new is not None]
    started = _share(best_s, judge(rows[0].old if rows else engine.plan))
    reached = [i for i, share in enumerate([started, *shares]) if share >= 1.0 - within]
    return Standing(
        policy=policy.name,
        share=shares[-1] if shares else started,
        rounds=reached[0] if reached else None,
        changes=len(rows),
        rolled_back=sum(row.verdict == "rolled back" for row in rows),
        slot_seconds=slot_seconds,
        violations=violations,
        pause_s=sum(row.pause_s or 0.0 for row in rows),
    )


def league(standings: Sequence[Standing]) -> list[Standing]:
    """Best first: by share, then by changes to get there, then by what it cost."""
    return sorted(
        standings,
        key=lambda one: (-round(one.share, 3), math.inf if one.rounds is None else one.rounds, one.slot_seconds),
    )


def _share(best_s: float, sojourn_s: float) -> float:
    return best_s / sojourn_s if math.isfinite(sojourn_s) and sojourn_s > 0 else 0.0
