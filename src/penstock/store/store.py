"""Store: write the record of a run. One process at a time holds the store of a directory."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import msgspec

from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.store import schema
from penstock.store.errors import DirectoryInUseError, InvalidRecordError, StoreError
from penstock.store.lock import RunLock
from penstock.store.reader import StoreReader
from penstock.store.records import (
    DecisionRecord,
    ErrorRecord,
    LatencyTarget,
    OperatorDeclaration,
    PlanChange,
    RunStart,
    Trial,
)


class Store(StoreReader):
    """Open the store of `run_dir`, or create it. Raises StoreError if another process is running there.

    Every `add_...` is one transaction, so `kill -9` at any moment leaves all earlier rows and no partial row. Use it
    from one thread at a time.
    """

    def __init__(self, run_dir: Path | str) -> None:
        self.path = Path(run_dir) / schema.FILE
        self._run: tuple[int, RunStart] | None = None
        try:
            self._lock = RunLock(Path(run_dir))
        except DirectoryInUseError as in_use:
            raise StoreError(f"{in_use} {_how_to_stop(run_dir, in_use.pid)}, or give another directory.") from None
        try:
            with schema.store_errors(self.path):
                schema.create(self.path)
                self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=10)
                self._open()
        except StoreError:
            self._lock.release()
            raise

    def _open(self) -> None:
        try:
            schema.check(self._db, self.path)
            (health,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if health != "ok":
                raise sqlite3.DatabaseError(health)
            # WAL: readers and the writer do not block each other. NORMAL: committed rows survive the death of the
            # process; a power failure may lose the latest rows but does not corrupt the file.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            self._db.close()
            raise

    def begin_run(self, run: RunStart) -> None:
        """Record a start or a resumption.

        Raises StoreError if the directory belongs to another dataflow or to another kind of run.
        """
        previous = self.last_run()
        if previous is not None and previous.dataflow != run.dataflow:
            raise StoreError(
                f"'{self.path.parent}' holds {previous.kind_text} of dataflow '{previous.dataflow}', not of "
                f"'{run.dataflow}'; give another directory."
            )
        if previous is not None and previous.kind != run.kind:
            raise StoreError(
                f"'{self.path.parent}' holds {previous.kind_text} of dataflow '{previous.dataflow}', so it cannot hold "
                f"{run.kind_text}; give another directory."
            )
        with schema.store_errors(self.path):
            added = self._db.execute("INSERT INTO runs (started_s, body) VALUES (?, ?)", (run.started_s, _json(run)))
            self._run = (added.lastrowid or 0, run)

    def run_started(
        self,
        plan: Plan,
        operators: tuple[OperatorDeclaration, ...] = (),
        *,
        at_s: float | None = None,
        startup_s: dict[str, float] | None = None,
        warm_up_s: float = 0.0,
    ) -> None:
        """Record the plan with which the engine has started, when it had, and the seconds of each phase of the start.

        Windows that begin within `warm_up_s` after the start belong to the warm-up.
        """
        self._update_run(plan=plan, operators=operators, ready_s=at_s, startup_s=startup_s or {}, warm_up_s=warm_up_s)

    def set_latency_target(self, target: LatencyTarget | None) -> None:
        """Record that the target of the active run has changed."""
        self._update_run(latency_target=target)

    def end_run(self, *, at_s: float, reason: str) -> None:
        self._update_run(stopped_s=at_s, stop_reason=reason)

    def add_window(self, window: Window) -> int:
        """Add a window and return its number. Raises InvalidRecordError if it contains NaN, which JSON lacks."""
        body = self._checked_json(window)
        with schema.store_errors(self.path):
            added = self._db.execute(
                "INSERT INTO windows (start_s, end_s, generation, body) VALUES (?, ?, ?, ?)",
                (window.start_s, window.end_s, window.generation, body),
            )
            return added.lastrowid or 0

    def add_decision(self, decision: DecisionRecord) -> int:
        """Add a decision and return its number, which `update_decision` takes."""
        body = self._checked_json(decision)
        with schema.store_errors(self.path):
            added = self._db.execute(
                "INSERT INTO decisions (at_s, kind, reason_code, body) VALUES (?, ?, ?, ?)",
                (decision.at_s, decision.kind, decision.reason_code, body),
            )
            return added.lastrowid or 0

    def update_decision(self, number: int, decision: DecisionRecord) -> None:
        """Replace a decision in one statement: readers see the old row or the new one."""
        body = self._checked_json(decision)
        with schema.store_errors(self.path):
            self._db.execute("UPDATE decisions SET body = ? WHERE id = ?", (body, number))

    def add_plan_change(self, change: PlanChange) -> None:
        with schema.store_errors(self.path):
            self._db.execute(
                "INSERT INTO plan_changes (at_s, outcome, body) VALUES (?, ?, ?)",
                (change.at_s, change.outcome, _json(change)),
            )

    def add_error(self, error: ErrorRecord) -> None:
        with schema.store_errors(self.path):
            self._db.execute(
                "INSERT INTO errors (at_s, place, body) VALUES (?, ?, ?)", (error.at_s, error.where, _json(error))
            )

    def add_trial(self, trial: Trial) -> None:
        """Add a trial that has ended. A study that is killed during a trial repeats that trial only."""
        body = self._checked_json(trial)
        with schema.store_errors(self.path):
            self._db.execute(
                "INSERT INTO trials (ended_s, study, body) VALUES (?, ?, ?)", (trial.ended_s, trial.study, body)
            )

    def close(self) -> None:
        try:
            if self._run is not None and self._run[1].stopped_s is None:
                self.end_run(at_s=time.time(), reason="an error before it started")
        finally:
            self._db.close()
            self._lock.release()

    def __enter__(self) -> Store:
        return self

    def _checked_json(self, value: Window | DecisionRecord | Trial) -> str:
        body = _json(value)
        try:
            msgspec.json.decode(body, type=type(value))
        except msgspec.ValidationError as error:
            name = {Window: "window", DecisionRecord: "decision", Trial: "trial"}[type(value)]
            raise InvalidRecordError(
                f"Cannot store a {name}: {error}. Use None, not NaN, for an unknown value."
            ) from None
        return body

    def _update_run(self, **changes: object) -> None:
        if self._run is None:
            raise StoreError("The store has no active run; call begin_run(...) first.")
        number, run = self._run
        self._run = (number, msgspec.structs.replace(run, **changes))
        with schema.store_errors(self.path):
            self._db.execute("UPDATE runs SET body = ? WHERE id = ?", (_json(self._run[1]), number))


def _how_to_stop(run_dir: Path | str, pid: int | None) -> str:
    """Say how to stop the process in `run_dir`; only runs that take requests react to 'penstock stop'."""
    with contextlib.suppress(StoreError), StoreReader(run_dir) as store:
        run = store.last_run()
        if run is not None and not run.takes_requests:
            return "Stop it with Ctrl-C in its terminal" + (f" or with 'kill {pid}'" if pid is not None else "")
    return f"Stop it with 'penstock stop {run_dir}'"


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
