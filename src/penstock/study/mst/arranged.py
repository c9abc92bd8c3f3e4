"""Replicas by a policy instead of the paper's rule: it acts under a trial's load until it leaves the plan alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.control.controller import Controller, Settings
from penstock.control.decisions import Reason
from penstock.control.loop import Clock
from penstock.control.situation import Policy
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.store import RunRecord, Store
from penstock.study.mst.throughput import sustained

_MORE = 2.0  # than is taken: a source that is never the limit could always give more
_LEAVES_IT = (Reason.BEST, Reason.WITHIN_TARGET, Reason.AT_LIMIT, Reason.REFUTED, Reason.TOO_LITTLE_GAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPolicy:
    policy: Policy
    settings: Settings
    most: int = 60  # windows, after which the plan stands as it is


Look = Callable[[], tuple[Window, Window | None] | None]


def arrange(engine: RunnableEngine, by: ByPolicy, look: Look, clock: Clock, most: int) -> int:
    """In so many windows; those that are left where `look` has no more (None), and 0 where it is done.

    `look` waits for a window, and gives it and the one before it.
    """
    with tempfile.TemporaryDirectory() as at, Store(Path(at)) as store:
        store.begin_run(
            RunRecord(dataflow=engine.flow.name, kind="study", flow_file="-", pid=0, master="-", started_s=clock.time())
        )  # what it decides is in the plan of the trial
        controller = Controller(by.policy, by.settings, engine, store)
        for done in range(most):
            seen = look()
            if seen is None:
                return most - done - 1
            decided = controller.turn(_as_demand(engine.flow, *seen), number=None, at_s=clock.time())
            if decided is not None and decided.kind == "hold" and decided.reason in _LEAVES_IT:
                break
    return 0


def _as_demand(flow: Dataflow, window: Window, before: Window | None) -> Window:
    """With more coming in than is taken, whatever was appended meanwhile: of a backlog that is nothing."""
    taken = sustained(flow, window, before)
    if taken is None:
        return window
    sources = {one.name for one in flow.operators if one.kind is Kind.SOURCE}

    def coming(one: OperatorWindow) -> OperatorWindow:
        if one.operator not in sources or one.processed_rows_per_s is None:
            return one
        return msgspec.structs.replace(one, input_rows_per_s=_MORE * one.processed_rows_per_s)

    return msgspec.structs.replace(
        window, external_rows_per_s=_MORE * taken, operators=tuple(coming(one) for one in window.operators)
    )
