"""Store: the writing side of a run's record. Whoever holds it is the run: there is one a directory."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import msgspec

from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.store import schema
from penstock.store.errors import HeldError, StoreError, UnkeepableError
from penstock.store.lock import RunLock
from penstock.store.reader import StoreReader
from penstock.store.records import Decided, Declared, PlanChange, Run, RunError, Trial


class Store(StoreReader):
    """Opens the directory's store, or creates it; raises StoreError if another process is running there.

    Every `add_...` is one transaction: `kill -9` at any moment leaves all rows before it and none by half. To be used
    by one thread at a time.
    """

    def __init__(self, run_dir: Path | str) -> None:
        self.path = Path(run_dir) / schema.FILE
        self._run: tuple[int, Run] | None = None
        try:
            self._lock = RunLock(Path(run_dir))
        except HeldError as held:
            raise StoreError(f"{held}; {_end(run_dir, held.pid)}, or give another directory with --at") from None
        try:
            with schema.explained(self.path):
                self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=10)
                self._open()
        except StoreError:
            self._lock.release()
            raise

    def _open(self) -> None:
        try:
            new = schema.is_new(self._db)
            if not new:
                schema.check(self._db, self.path)
                (health,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
                if health != "ok":
                    raise sqlite3.DatabaseError(health)
            # Readers and the writer do not wait for each other. NORMAL: what is committed survives the death of the
            # process; a power cut may take the last windows, never the order or the whole.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            if new:
                schema.create(self._db)
            else:
                schema.upgrade(self._db)
        except BaseException:
            self._db.close()
            raise

    def begin(self, run: Run) -> None:
        """A start or a resumption; a directory belongs to one dataflow, and to runs, to a study or the like."""
        before = self.last_run()
        if before is not None and before.dataflow != run.dataflow:
            raise StoreError(
                f"'{self.path.parent}' holds {before.kind} of dataflow '{before.dataflow}', not of '{run.dataflow}'; "
                "give another directory with --at"
            )
        if before is not None and before.kind != run.kind:
            raise StoreError(
                f"'{self.path.parent}' holds {before.kind} of dataflow '{before.dataflow}', and this would be "
                f"{run.kind}; give another directory with --at"
            )
        with schema.explained(self.path):
            added = self._db.execute("INSERT INTO runs (started_s, body) VALUES (?, ?)", (run.started_s, _json(run)))
            self._run = (added.lastrowid or 0, run)

    def started(self, plan: Plan, operators: tuple[Declared, ...] = ()) -> None:
        """The engine is up, under this plan."""
        self._update_run(plan=plan, operators=operators)

    def ended(self, *, at_s: float, why: str) -> None:
        self._update_run(stopped_s=at_s, stopped_why=why)

    def add_window(self, window: Window) -> int:
        """Returns its number. Refuses what no reader could read: JSON has no NaN, and null is not a number."""
        body = self._readable(window)
        with schema.explained(self.path):
            added = self._db.execute(
                "INSERT INTO windows (start_s, end_s, generation, body) VALUES (?, ?, ?, ?)",
                (window.start_s, window.end_s, window.generation, body),
            )
            return added.lastrowid or 0

    def add_decision(self, decided: Decided) -> int:
        """Returns its number, under which what comes of it is added later."""
        body = self._readable(decided)
        with schema.explained(self.path):
            added = self._db.execute(
                "INSERT INTO decisions (at_s, kind, reason, body) VALUES (?, ?, ?, ?)",
                (decided.at_s, decided.kind, decided.reason, body),
            )
            return added.lastrowid or 0

    def update_decision(self, number: int, decided: Decided) -> None:
        """One statement: readers see the row as it was or as it is."""
        body = self._readable(decided)
        with schema.explained(self.path):
            self._db.execute("UPDATE decisions SET body = ? WHERE id = ?", (body, number))

    def add_plan_change(self, change: PlanChange) -> None:
        with schema.explained(self.path):
            self._db.execute(
                "INSERT INTO plan_changes (at_s, outcome, body) VALUES (?, ?, ?)",
                (change.at_s, change.outcome, _json(change)),
            )

    def add_error(self, error: RunError) -> None:
        with schema.explained(self.path):
            self._db.execute(
                "INSERT INTO errors (at_s, place, body) VALUES (?, ?, ?)", (error.at_s, error.where, _json(error))
            )

    def add_trial(self, trial: Trial) -> None:
        """When it has ended: a study that is killed in the middle of one does it again, and no other."""
        body = self._readable(trial)
        with schema.explained(self.path):
            self._db.execute(
                "INSERT INTO trials (ended_s, study, body) VALUES (?, ?, ?)", (trial.ended_s, trial.study, body)
            )

    def close(self) -> None:
        try:
            if self._run is not None and self._run[1].stopped_s is None:
                self.ended(at_s=time.time(), why="an error before it started")
        finally:
            self._db.close()
            self._lock.release()

    def __enter__(self) -> Store:
        return self

    def _readable(self, value: Window | Decided | Trial) -> str:
        body = _json(value)
        try:
            msgspec.json.decode(body, type=type(value))
        except msgspec.ValidationError as error:
            what = {Window: "window", Decided: "decision", Trial: "trial"}[type(value)]
            raise UnkeepableError(f"a {what} cannot be kept: {error}; what cannot be known is None, not NaN") from None
        return body

    def _update_run(self, **changes: object) -> None:
        if self._run is None:
            raise StoreError("the store has no run to write to; call begin(...) first")
        number, run = self._run
        self._run = (number, msgspec.structs.replace(run, **changes))
        with schema.explained(self.path):
            self._db.execute("UPDATE runs SET body = ? WHERE id = ?", (_json(self._run[1]), number))


def _end(run_dir: Path | str, pid: int | None) -> str:
    """How to end who runs there, by the record: not everybody takes requests."""
    with contextlib.suppress(StoreError), StoreReader(run_dir) as store:
        run = store.last_run()
        if run is not None and not run.takes_requests:
            return "end it with Ctrl-C where it runs" + (f" or with 'kill {pid}'" if pid is not None else "")
    return f"stop it with 'penstock stop {run_dir}'"


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
