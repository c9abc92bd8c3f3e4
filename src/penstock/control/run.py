"""Run a dataflow: start the engine, serve requests, recover failed queries and take turns until a reason to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.control.loop import Clock, Loop, Stopped
from penstock.control.plan_changes import error_record
from penstock.control.requests import Answer, Requests, SetPolicy, Stop, handle
from penstock.control.signals import StopSignals
from penstock.engines.ports import RunnableEngine
from penstock.store import ErrorRecord, Store, declarations

POLL_S = 0.1  # interval at which requests are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """The length of a window and the conditions that end a run. Requests, signals and failures end it as well."""

    window_s: float = 2.0
    launched_s: float | None = None  # wall clock; the time until the engine starts is recorded as imports
    warm_up_s: float = 0.0  # windows that begin so soon after the start are marked as warm-up
    until: Callable[[], bool] | None = None  # asked at the end of each window, such as `engine.idle`
    stop_reason: Callable[[], str | None] | None = None  # asked several times per second; None: continue


def run(
    engine: RunnableEngine,
    loop: Loop,
    requests: Requests,
    schedule: RunSchedule,
    *,
    on_start: Callable[[], None] | None = None,
    change_settings: Callable[[SetPolicy], str | None] | None = None,
) -> Stopped:
    """Run the loop's engine until a request, a signal, a failure or a condition of `schedule` stops it.

    `store.begin_run` must have been called. `on_start` is called after the engine has started, and
    `change_settings` when a request changes settings of the policy. Errors of an
    observation, a request or a policy are recorded and the run continues. Errors while starting, of the store, of
    `on_window` and of `on_message` stop the engine and are raised.
    """
    loop.survives_failed_observation = True
    store, clock = loop.store, loop.clock
    stopped: Stopped | None = None
    is_started = False
    requests.clear()
    with StopSignals() as signals:
        window_wait = _WindowWait(engine, loop, requests, signals, schedule, change_settings)
        try:
            startup_s = {} if schedule.launched_s is None else {"imports": clock.time() - schedule.launched_s}
            engine.start()
            signals.listen()
            ready_s = clock.time()
            loop.warm_until_s = ready_s + schedule.warm_up_s
            store.run_started(
                engine.plan,
                declarations(engine.flow),
                at_s=ready_s,
                startup_s=startup_s | engine.startup_s,
                warm_up_s=schedule.warm_up_s,
            )
            loop.accept_plan()
            if on_start is not None:
                on_start()
            is_started = True
            stopped = loop.run(window_wait.wait)
            if not window_wait.input_processed:
                loop.turn(decide=False)  # the last, incomplete window
        except BaseException as error:
            cancelled = None if is_started or schedule.stop_reason is None else schedule.stop_reason()
            if cancelled is not None:  # the error is how the start ended
                stopped = Stopped(reason=cancelled)
            else:
                stopped = Stopped(reason=f"{type(error).__name__}: {error}", failed=True)
            raise
        finally:
            _stop(engine, store, stopped or Stopped(reason="unknown", failed=True), clock)
            window_wait.answer_all()
    return stopped


class _WindowWait:
    """Waits for the end of each window, and meanwhile serves requests and recovers queries."""

    def __init__(
        self,
        engine: RunnableEngine,
        loop: Loop,
        requests: Requests,
        signals: StopSignals,
        schedule: RunSchedule,
        change_settings: Callable[[SetPolicy], str | None] | None,
    ) -> None:
        self._engine, self._loop, self._requests, self._signals = engine, loop, requests, signals
        self._schedule, self._change_settings = schedule, change_settings
        self._due_s: float | None = None  # end of the window, on the monotonic clock
        self._stop_ids: list[str] = []  # stop requests, which are answered after the engine has stopped
        self.input_processed = False

    def wait(self) -> Stopped | None:
        """Return None at the end of the window, or a reason to stop as soon as there is one."""
        clock = self._loop.clock
        now_s = clock.monotonic()
        # Windows that were missed are not made up for.
        window_s, until = self._schedule.window_s, self._schedule.until
        due_s = self._due_s = now_s + window_s if self._due_s is None else max(self._due_s + window_s, now_s)
        if self.input_processed:
            return Stopped(reason="all input is processed")
        while True:
            self._serve()
            self._recover()
            if (stopped := self._reason()) is not None:
                return stopped
            if clock.monotonic() >= due_s:
                # Ask before observing, so that the last window contains all rows.
                self.input_processed = until is not None and until()
                return None
            clock.sleep(max(0.0, min(POLL_S, due_s - clock.monotonic())))

    def answer_all(self) -> None:
        """After the engine has stopped: answer the stop requests, and refuse all others."""
        for request_id in self._stop_ids:
            self._requests.answer(request_id, Answer(ok=True, text="stopped"))
        for request_id, request in self._requests.take():
            text = f"The run stopped before it handled the request '{request}'."
            self._requests.answer(request_id, Answer(ok=False, text=text))

    def _serve(self) -> None:
        for request_id, request in self._requests.take():
            if isinstance(request, Stop):
                self._stop_ids.append(request_id)
                continue
            answer = handle(
                request,
                self._engine,
                self._loop.store,
                at_s=self._loop.clock.time(),
                change_settings=self._change_settings,
            )
            self._loop.accept_plan()
            self._requests.answer(request_id, answer)

    def _recover(self) -> None:
        for recovery in self._engine.recover():
            self._loop.store.add_error(ErrorRecord(at_s=self._loop.clock.time(), where="query", message=recovery))
            if self._loop.on_message is not None:
                self._loop.on_message(recovery)
        self._loop.record_external_change()

    def _reason(self) -> Stopped | None:
        if (failure := self._engine.failure()) is not None:
            return Stopped(reason=failure, failed=True)
        stop_reason = self._schedule.stop_reason
        if (reason := self._signals.received or (stop_reason and stop_reason())) is not None:
            return Stopped(reason=reason)
        return Stopped(reason="asked to stop") if self._stop_ids else None


def _stop(engine: RunnableEngine, store: Store, stopped: Stopped, clock: Clock) -> None:
    try:
        engine.stop()
    except Exception as error:
        store.add_error(error_record(error, where="stop", at_s=clock.time()))
    if stopped.failed:
        store.add_error(ErrorRecord(at_s=clock.time(), where="run", message=stopped.reason))
    store.end_run(at_s=clock.time(), reason=stopped.reason)
