"""Runs the real loop, with the real store, on an engine and a clock that are not real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory_engine import FakeClock

from penstock.control.controller import Controller, Settings
from penstock.control.loop import run
from penstock.control.requests import Requests
from penstock.control.situation import Policy
from penstock.engines.ports import Engine
from penstock.measure.smoothing import Smoothing, Windowed
from penstock.store import Decided, Run, Store


def drive(
    at: Path,
    engine: Engine,
    clock: FakeClock,
    policy: Policy,
    *,
    windows: int,
    every_s: float = 60.0,
    smoothing: Smoothing | None = None,
    at_window: dict[int, Any] | None = None,  # number of a window -> what happens when it has been observed
    **settings: Any,
) -> list[Decided]:
    """So many windows; the decisions in their order."""
    seen = 0

    def look(*_: object) -> None:
        nonlocal seen
        seen += 1
        (at_window or {}).get(seen, lambda: None)()

    chosen = Settings(
        **{"warm_up_s": 0.0, "stale_after_s": 3 * every_s, "mode": "active"}
        | settings
        | {"smoothing": smoothing or Windowed(3)}
    )
    with Store(at) as store:
        store.begin(Run(dataflow=engine.flow.name, flow_file="flow.py", pid=1, master="fake", started_s=clock.time()))
        controller = Controller(policy, chosen, engine, store)
        end_s = clock.time() + windows * every_s - every_s / 2
        run(
            engine,
            store,
            Requests(at),
            every_s=every_s,
            clock=clock,
            until=lambda: clock.time() >= end_s,
            on_window=look,
            controller=controller,
        )
        return [row for _, row in store.decisions()]
