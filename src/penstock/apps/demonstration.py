"""The demonstration: word count at a changing rate, two plan changes while it runs, and a check of its output."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

import penstock
from penstock.apps import wordcount
from penstock.control.loop import Loop
from penstock.control.plan_changes import change_plan
from penstock.control.requests import Requests
from penstock.control.run import Schedule, run
from penstock.engines.ports import RunnableEngine
from penstock.engines.spark.engine import SparkEngine
from penstock.measure.window import Window
from penstock.plan import Plan, rescaled
from penstock.report.live_table import LiveTable
from penstock.store import RunStart, Store


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    lines: int
    words: int
    changes: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not self.differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens once this share of the time has passed."""

    at: float
    says: str
    rows_per_s: float | None = None
    plan: Callable[[RunnableEngine], Plan] | None = None


STEPS = (
    Step(at=0.15, says="the load grows sixfold", rows_per_s=3_000),
    Step(
        at=0.35,
        says="a cut after 'split', so that splitting and counting overlap",
        plan=lambda engine: engine.plan.replace(cuts=engine.plan.cuts | {"split"}),
    ),
    Step(
        at=0.55,
        says="the keyed operator 'count' goes from 2 to 4 replicas, its state with it",
        plan=lambda engine: rescaled(engine.flow, engine.plan, {"count": 4}),
    ),
    Step(at=0.75, says="the load falls again", rows_per_s=1_000),
    Step(at=0.90, says="the rest of the input, as fast as it goes", rows_per_s=50_000),
)


def demonstrate(at: Path, *, seconds: float, master: str, viewer: LiveTable) -> Outcome:
    """Runs for about so long in a fresh directory; all of it is in the run's store afterwards."""
    shutil.rmtree(at, ignore_errors=True)
    lines = round(2_000 * seconds)
    flow = wordcount.flow(output=penstock.memory(), rows=lines, rows_per_s=500)
    changes: list[str] = []
    left = list(STEPS)
    began: list[float] = []
    with Store(at) as store:
        store.begin_run(
            RunStart(dataflow=flow.name, flow_file="demo", pid=os.getpid(), master=master, started_s=time.time())
        )
        engine = SparkEngine(flow, at, master=master, batch_s=1.0)

        def on_window(window: Window, plan: Plan) -> None:
            viewer.show(window, plan)
            if not began:
                if window.latency is None:  # the first batch warms Spark up, and is not part of the show
                    return
                began.append(time.monotonic())
            while left and time.monotonic() - began[0] >= left[0].at * seconds:
                step = left.pop(0)
                viewer.say(f"> {step.says}")
                if step.rows_per_s is not None:
                    engine.set_rate("lines", step.rows_per_s)
                if step.plan is not None:
                    answer = change_plan(engine, store, step.plan(engine), requester=step.says, at_s=time.time())
                    loop.accept_plan()
                    changes.append(answer.text)
                    viewer.say(f"  {answer.text}")

        loop = Loop(engine=engine, store=store, on_window=on_window)
        ended = run(engine, loop, Requests(at), Schedule(every_s=1.0, until=lambda: not left and engine.idle()))
    if left or ended.failed:
        return Outcome(lines=lines, words=0, changes=tuple(changes), differences=(f"it stopped early: {ended.why}",))
    differences = wordcount.check(engine.rows("out"), lines)
    words = sum(wordcount.oracle(lines).values())
    return Outcome(lines=lines, words=words, changes=tuple(changes), differences=tuple(differences))
