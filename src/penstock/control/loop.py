"""The loop of a run: observe, record, decide, do what is asked, until there is a reason to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.control.carry_out import carry_out, described, unasked
from penstock.control.requests import Answer, Requests, Stop
from penstock.control.signals import StopSignals
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.store import ErrorRecord, Store, declarations

if TYPE_CHECKING:  # a run that nobody decides for starts without the models
    from penstock.control.controller import Controller

POLL_S = 0.1  # how long a request may lie unseen
OnWindow = Callable[[Window, Plan], None]


class Clock(Protocol):
    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    why: str
    failed: bool = False


def run(
    engine: RunnableEngine,
    store: Store,
    requests: Requests,
    *,
    every_s: float = 2.0,
    clock: Clock = time,
    until: Callable[[], bool] | None = None,
    on_window: OnWindow | None = None,
    controller: Controller | None = None,
    on_start: Callable[[], None] | None = None,
    stop_reason: Callable[[], str | None] | None = None,
) -> Ended:
    """Runs the engine, one window every `every_s` seconds, until asked, signalled, failed or `until` (`engine.idle`).

    The store has begun its run (`store.begin`). The controller takes its turn after each window but that of a stop. An
    error of a window, a request or a policy is recorded and survived; one of starting, of the store or of `on_window`
    stops the engine and is raised. `on_start` is called once the engine has started. `stop_reason` is called several
    times per second; the run stops when it returns a text, which becomes the recorded reason.
    """
    ended: Ended | None = None
    stop_ids: list[str] = []  # answered once it has stopped
    requests.clear()
    with StopSignals() as signals:
        try:
            engine.start()
            signals.listen()
            store.run_started(engine.plan, declarations(engine.flow))
            if on_start is not None:
                on_start()
            due = clock.monotonic() + every_s
            while ended is None:
                stop_ids += _serve(requests, engine, store, clock)
                _recover(engine, store, clock)
                reason = signals.received or (stop_reason and stop_reason())
                ended = _reason(engine, asked=bool(stop_ids), reason=reason)
                if ended is not None or clock.monotonic() >= due:
                    through = ended is None and until is not None and until()  # asked first: the window has all of it
                    _observe(engine, store, clock, on_window, controller if ended is None else None)
                    due = max(due + every_s, clock.monotonic())  # windows that were missed are not made up for
                    if through:
                        ended = Ended(why="all input is processed")
                if ended is None:
                    clock.sleep(max(0.0, min(POLL_S, due - clock.monotonic())))
        except BaseException as error:
            ended = Ended(why=f"{type(error).__name__}: {error}", failed=True)
            raise
        finally:
            _stop(engine, store, ended or Ended(why="unknown", failed=True), clock)
            for request_id in stop_ids:
                requests.answer(request_id, Answer(ok=True, text="stopped"))
            for request_id, request in requests.take():
                requests.answer(request_id, Answer(ok=False, text=f"the run stopped before it came to '{request}'"))
    return ended


def _serve(requests: Requests, engine: RunnableEngine, store: Store, clock: Clock) -> list[str]:
    """Does what was asked; returns the ids of those that ask to stop."""
    stop_ids = []
    for request_id, request in requests.take():
        if isinstance(request, Stop):
            stop_ids.append(request_id)
        else:
            requests.answer(request_id, carry_out(request, engine, store, at_s=clock.time()))
    return stop_ids


def _recover(engine: RunnableEngine, store: Store, clock: Clock) -> None:
    plan = engine.plan
    for recovery in engine.recover():
        store.add_error(ErrorRecord(at_s=clock.time(), where="query", message=recovery))
    if engine.plan != plan:
        store.add_plan_change(unasked(plan, engine.plan, at_s=clock.time()))


def _reason(engine: RunnableEngine, *, asked: bool, reason: str | None) -> Ended | None:
    failure = engine.failure()
    if failure is not None:
        return Ended(why=failure, failed=True)
    if reason is not None:
        return Ended(why=reason)
    return Ended(why="asked to stop") if asked else None


def _observe(
    engine: RunnableEngine, store: Store, clock: Clock, on_window: OnWindow | None, controller: Controller | None
) -> None:
    window, number = None, None
    try:
        window = engine.observe()
        number = store.add_window(window)
    except Exception as error:
        window = None  # what could not be kept is not decided on either
        store.add_error(described(error, where="observe", at_s=clock.time()))
    if window is not None and on_window is not None:
        on_window(window, engine.plan)
    if controller is not None:
        controller.turn(window, number=number, at_s=clock.time())


def _stop(engine: RunnableEngine, store: Store, ended: Ended, clock: Clock) -> None:
    try:
        engine.stop()
    except Exception as error:
        store.add_error(described(error, where="stop", at_s=clock.time()))
    if ended.failed:
        store.add_error(ErrorRecord(at_s=clock.time(), where="run", message=ended.why))
    store.end_run(at_s=clock.time(), reason=ended.why)
