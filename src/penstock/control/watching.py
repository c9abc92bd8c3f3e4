"""A loop beside somebody else's program: it looks, records and decides in a thread of its own, and disturbs nothing."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.control.carry_out import described, unasked
from penstock.control.controller import Controller
from penstock.engines.ports import Engine
from penstock.plan import Plan
from penstock.store import Store, StoreError, declarations

_LOG = logging.getLogger("penstock.watch")
_MOST_ERRORS = 20  # one after another, after which it gives up
_FAREWELL_S = 2.0  # that the program's end waits for the record of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A program to watch. `ended` returns why nothing is left to watch, or None."""

    engine: Engine
    store: Store
    controller: Controller
    ended: Callable[[], str | None]


Begin = Callable[[], Subject]


class Watch:
    """Runs until `stop`, until the program's session ends, or until it has failed too often; `error` says what last."""

    def __init__(self, begin: Begin, *, every_s: float) -> None:
        self._begin, self._every_s = begin, every_s
        self._ending = threading.Event()
        self._why = "stopped"
        self.error: str | None = None
        # A daemon: a program that has come to its end does not wait for a turn of its watcher.
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
        self._thread.start()
        atexit.register(self._program_ends)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Waits for the turn that is being made."""
        self._ending.set()
        self._thread.join(timeout=30.0)
        atexit.unregister(self._program_ends)

    def _program_ends(self) -> None:
        self._why = "the program has ended"
        self._ending.set()
        self._thread.join(timeout=_FAREWELL_S)

    def _run(self) -> None:
        try:
            subject = self._begin()
            with subject.store:
                self._watch(subject)
        except Exception as error:  # whatever it is, it is not the program's
            self._note(error)

    def _watch(self, subject: Subject) -> None:
        engine, store = subject.engine, subject.store
        why = "stopped"
        try:
            plan = engine.plan
            store.run_started(plan, declarations(engine.flow))
            why = self._turns(subject, plan)
        except Exception as error:
            self._note(error)
            why = f"{type(error).__name__}: {error}"
        finally:
            store.end_run(at_s=time.time(), reason=why)

    def _turns(self, subject: Subject, plan: Plan) -> str:
        engine, store, controller = subject.engine, subject.store, subject.controller
        errors = 0
        while not self._ending.wait(self._every_s):
            try:
                if (ended := subject.ended()) is not None:
                    return ended
                window = engine.observe()
                if (now := engine.plan) != plan:
                    store.add_plan_change(unasked(plan, now, at_s=time.time()))
                    plan = now
                decided = controller.turn(window, number=store.add_window(window), at_s=time.time())
                if decided is not None and decided.applied == "ok":  # it has recorded that itself
                    plan = engine.plan
                errors = 0
            except Exception as error:
                errors += not isinstance(error, StoreError)  # a full disk may have room again, however long it takes
                self._note(error)
                self._record(error, store)
                if errors >= _MOST_ERRORS:
                    return f"{errors} errors one after another; the last was {type(error).__name__}: {error}"
        return self._why

    def _record(self, error: Exception, store: Store) -> None:
        try:
            store.add_error(described(error, where="watch", at_s=time.time()))
        except Exception as unkept:
            self._note(unkept)

    def _note(self, error: Exception) -> None:
        self.error = f"{type(error).__name__}: {error}"
        _LOG.warning("penstock.watch: %s; the program is not affected", self.error)
