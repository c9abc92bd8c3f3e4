"""Watch the streaming queries of another program: a control loop in its own thread that never disturbs the program."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.control.controller import Controller
from penstock.control.loop import Loop, Stopped
from penstock.control.plan_changes import error_record
from penstock.engines.ports import Engine
from penstock.measure.window import Window
from penstock.store import ErrorRecord, Store, StoreError, declarations

_LOG = logging.getLogger("penstock.watch")
_MAX_ERRORS = 20  # consecutive errors after which watching ends
_EXIT_PATIENCE_S = 2.0  # time that the end of the program waits for the last record


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedProgram:
    """A program to watch. `ended` returns why nothing is left to watch, or None."""

    engine: Engine
    store: Store
    controller: Controller
    ended: Callable[[], str | None]


class Watch:
    """Watches until `stop`, until the Spark session ends, or until too many consecutive errors.

    `connect` is called in the thread of the watch. `error` is the last error, or None.
    """

    def __init__(self, connect: Callable[[], WatchedProgram], *, window_s: float) -> None:
        self._connect, self._window_s = connect, window_s
        self._stopping = threading.Event()
        self._stop_reason = "stopped"
        self._errors = 0  # consecutive
        self._turn_failed = False
        self.error: str | None = None
        # A daemon thread: the end of the program does not wait for it.
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
        self._thread.start()
        atexit.register(self._program_ends)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End watching; wait for the current turn."""
        self._stopping.set()
        self._thread.join(timeout=30.0)
        atexit.unregister(self._program_ends)

    def _program_ends(self) -> None:
        self._stop_reason = "the program has ended"
        self._stopping.set()
        self._thread.join(timeout=_EXIT_PATIENCE_S)

    def _run(self) -> None:
        try:
            program = self._connect()
            with program.store:
                self._watch(program)
        except Exception as error:  # no error of the watch may reach the program
            self._note(error)

    def _watch(self, program: WatchedProgram) -> None:
        loop = Loop(
            engine=program.engine,
            store=program.store,
            controller=program.controller,
            on_window=lambda window, plan: _record_crashes(window, program.store),
        )
        reason = "stopped"
        try:
            program.store.run_started(program.engine.plan, declarations(program.engine.flow))
            loop.accept_plan()
            reason = loop.run(lambda: self._wait(program), lambda error: self._survive(error, program.store)).reason
        except Exception as error:
            self._note(error)
            reason = f"{type(error).__name__}: {error}"
        finally:
            program.store.end_run(at_s=time.time(), reason=reason)

    def _wait(self, program: WatchedProgram) -> Stopped | None:
        self._errors, self._turn_failed = self._errors if self._turn_failed else 0, False
        if self._stopping.wait(self._window_s):
            return Stopped(reason=self._stop_reason)
        ended = program.ended()
        return None if ended is None else Stopped(reason=ended)

    def _survive(self, error: Exception, store: Store) -> Stopped | None:
        self._turn_failed = True
        if not isinstance(error, StoreError):  # a full disk may have room again later
            self._errors += 1
        self._note(error)
        try:
            store.add_error(error_record(error, where="watch", at_s=time.time()))
        except Exception as unrecorded:
            self._note(unrecorded)
        if self._errors < _MAX_ERRORS:
            return None
        return Stopped(reason=f"{self._errors} consecutive errors; the last one was {type(error).__name__}: {error}")

    def _note(self, error: Exception) -> None:
        self.error = f"{type(error).__name__}: {error}"
        _LOG.warning("penstock.watch: %s; the program is not affected", self.error)


def _record_crashes(window: Window, store: Store) -> None:
    """Record the error of each query that has crashed in this window."""
    for query in window.pipelines:
        if query.state == "crashed":
            where = f"query '{query.pipeline}'"
            store.add_error(ErrorRecord(at_s=window.end_s, where=where, message=f"It crashed: {query.error}"))
