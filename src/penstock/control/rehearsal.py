"""A rehearsal: a policy acts on an engine for a while, and what it cost and missed is added up."""

from __future__ import annotations

import msgspec

from penstock.control.controller import Controller, Settings
from penstock.control.correction import measured_s
from penstock.control.loop import Clock
from penstock.control.shape import Shape
from penstock.control.situation import Policy
from penstock.engines.ports import RunnableEngine
from penstock.plan import Plan
from penstock.store import DecisionRecord, RunRecord, Store, declarations


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    seconds: float
    slot_seconds: float
    violations: int | None  # windows with a latency above the target, or with rows waiting and none going through
    windows: int
    changes: int
    rolled_back: int
    pause_s: float
    mean_latency_s: float | None  # over all rows
    last_hold: str | None = None  # why nothing more was done, where a decision to hold was the last


def _held(plan: Plan, shape: Shape, settings: Settings) -> int:
    """Slots that somebody pays for: those of the executors, or where their number is fixed those in use."""
    elastic = settings.max_slots is not None
    return plan.slots if elastic else min(plan.slots, shape.slots(plan, micro_batch=settings.micro_batch))


def rehearse(
    policy: Policy,
    engine: RunnableEngine,
    clock: Clock,
    store: Store,
    *,
    windows: float,
    every_s: float,
    settings: Settings,
    max_s: float | None = None,
    quantile: float | None = None,
) -> tuple[Rehearsal, list[DecisionRecord]]:
    """Returns with the sums the changes that were carried out. The clock is the engine's own.

    It takes `windows` times `every_s`, however many changes are made, so that policies are compared over the same time:
    a window with a change in it is longer, and there are fewer of them. The last one ends with that time.
    """
    store.begin_run(
        RunRecord(
            dataflow=engine.flow.name, kind="simulation", flow_file="-", pid=0, master="-", started_s=clock.time()
        )
    )
    controller = Controller(policy, settings, engine, store)
    shape = Shape.of(engine.flow)
    engine.start()
    store.run_started(engine.plan, declarations(engine.flow))
    slot_seconds = seconds = rows = stayed_s = 0.0
    seen = violations = 0
    last: DecisionRecord | None = None
    end_s, ending = clock.time() + windows * every_s, False
    while not ending:
        left_s = end_s - clock.time()
        ending = left_s < 1.5 * every_s  # what is left is one window, rather than one and a short one
        clock.sleep(max(0.0, left_s) if ending else every_s)
        window = engine.observe()
        seen += 1
        span_s = window.end_s - window.start_s
        seconds += span_s
        slot_seconds += span_s * _held(engine.plan, shape, settings)
        stay = window.latency
        if stay is not None:
            rows, stayed_s = rows + stay.rows, stayed_s + stay.rows * stay.mean_s
        if max_s is not None:
            stuck = stay is None and any(one.backlog_rows for one in window.pipelines)
            stayed = measured_s(stay, quantile)
            violations += stuck or (stayed is not None and stayed > max_s)
        last = controller.turn(window, number=store.add_window(window), at_s=clock.time())
    engine.stop()
    store.end_run(at_s=clock.time(), reason="the rehearsal is over")
    done = [row for _, row in store.applied_changes() if row.applied == "ok" and row.new is not None]
    return (
        Rehearsal(
            policy=policy.name,
            seconds=seconds,
            slot_seconds=slot_seconds,
            violations=None if max_s is None else violations,
            windows=seen,
            changes=len(done),
            rolled_back=sum(row.verdict == "rolled back" for row in done),
            pause_s=sum(row.pause_s or 0.0 for row in done),
            mean_latency_s=stayed_s / rows if rows else None,
            last_hold=None if last is None or last.kind != "hold" else f"{last.reason}: {last.why}",
        ),
        done,
    )
