"""Run the real loop and store on a fake engine and a fake clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.control.controller import Controller, Settings
from penstock.control.loop import Clock, Loop
from penstock.control.policy import Policy
from penstock.control.requests import Requests
from penstock.control.run import RunSchedule, run
from penstock.engines.ports import RunnableEngine
from penstock.measure.smoothing import MovingAverage, Smoothing
from penstock.store import DecisionRecord, RunStart, Store


class CoarseClock:
    """A clock whose sleeps take at least a quarter of a window, because these runs receive no requests."""

    def __init__(self, clock: Clock, least_s: float) -> None:
        self.time, self.monotonic = clock.time, clock.monotonic
        self._clock, self._least_s = clock, least_s

    def sleep(self, seconds: float, /) -> None:
        self._clock.sleep(max(seconds, self._least_s))


def drive(
    at: Path,
    engine: RunnableEngine,
    clock: Clock,
    policy: Policy,
    *,
    windows: int,
    window_s: float = 60.0,
    smoothing: Smoothing | None = None,
    at_window: dict[int, Any] | None = None,  # number of a window -> action after its observation
    **settings: Any,
) -> list[DecisionRecord]:
    """Run the loop for this number of windows and return the decisions in order."""
    seen = 0

    def look(*_: object) -> None:
        nonlocal seen
        seen += 1
        (at_window or {}).get(seen, lambda: None)()

    chosen = Settings(
        **{"warm_up_s": 0.0, "stale_after_s": 3 * window_s, "mode": "active"}
        | settings
        | {"smoothing": smoothing or MovingAverage(3)}
    )
    with Store(at) as store:
        store.begin_run(
            RunStart(dataflow=engine.flow.name, flow_file="flow.py", pid=1, master="fake", started_s=clock.time())
        )
        controller = Controller(policy, chosen, engine, store)
        end_s = clock.time() + windows * window_s - window_s / 2
        coarse = CoarseClock(clock, window_s / 4)
        loop = Loop(engine=engine, store=store, controller=controller, clock=coarse, on_window=look)
        run(engine, loop, Requests(at), RunSchedule(window_s=window_s, until=lambda: clock.time() >= end_s))
        return [row for _, row in store.decisions()]
