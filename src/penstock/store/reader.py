"""Reading a run's record: any number of readers, while it is being written and after its writer was killed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.store import schema
from penstock.store.errors import StoreError
from penstock.store.records import Decided, PlanChange, Run, RunError, Trial

Row = TypeVar("Row", Run, PlanChange, RunError, Trial)
Each = TypeVar("Each", Window, Decided, RunError)


class StoreReader:
    """What `status`, reports and tables show comes from here and nowhere else.

    Each call sees everything committed so far, oldest first, and never half a row.
    """

    def __init__(self, run_dir: Path | str) -> None:
        self.path = Path(run_dir) / schema.FILE
        if not self.path.is_file():
            raise StoreError(
                f"there is no run in '{run_dir}' (no {schema.FILE}); start one with 'penstock run FILE --at {run_dir}'"
            )
        with schema.explained(self.path):
            self._db = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False, isolation_level=None
            )
        try:
            with schema.explained(self.path):
                if schema.is_new(self._db):
                    raise StoreError(f"the store '{self.path}' is still empty; the run there is only just starting")
                schema.check(self._db, self.path)
        except StoreError:
            self._db.close()
            raise

    def windows(self, *, after: int = 0, last: int | None = None) -> list[tuple[int, Window]]:
        """Windows with their numbers; `after` a number for what is new, only the `last` so many."""
        with schema.explained(self.path):
            rows = self._db.execute(
                "SELECT id, body FROM windows WHERE id > ? ORDER BY id DESC LIMIT ?",
                (after, -1 if last is None else last),
            ).fetchall()
            return [(number, msgspec.json.decode(body, type=Window)) for number, body in reversed(rows)]

    def decisions(self, *, after: int = 0, last: int | None = None) -> list[tuple[int, Decided]]:
        """Decisions with their numbers; a store from before there were any has none."""
        with schema.explained(self.path):
            if schema.version(self._db) == 1:
                return []
            rows = self._db.execute(
                "SELECT id, body FROM decisions WHERE id > ? ORDER BY id DESC LIMIT ?",
                (after, -1 if last is None else last),
            ).fetchall()
            return [(number, msgspec.json.decode(body, type=Decided)) for number, body in reversed(rows)]

    def changes(self) -> list[tuple[int, Decided]]:
        """Decisions that were carried out, or failed: few, where those of a month do not fit into memory."""
        with schema.explained(self.path):
            if schema.version(self._db) == 1:
                return []
            rows = self._db.execute(
                "SELECT id, body FROM decisions WHERE kind = 'change' AND json_extract(body, '$.applied') <> "
                "'recommended' ORDER BY id"
            ).fetchall()
            return [(number, msgspec.json.decode(body, type=Decided)) for number, body in rows]

    def last_of(self, policy: str) -> Decided | None:
        """What a policy decided last."""
        with schema.explained(self.path):
            if schema.version(self._db) == 1:
                return None
            row = self._db.execute(
                "SELECT body FROM decisions WHERE json_extract(body, '$.policy') = ? ORDER BY id DESC LIMIT 1",
                (policy,),
            ).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=Decided)

    def trials(self) -> list[Trial]:
        """Those that have ended; a store from before there were any has none."""
        with schema.explained(self.path):
            old = schema.version(self._db) < 3
        return [] if old else self._all("trials", Trial)

    def each_window(self) -> Iterator[tuple[int, Window]]:
        """All of them, oldest first and one at a time: those of a week do not fit into memory."""
        return self._each("windows", Window)

    def each_decision(self) -> Iterator[tuple[int, Decided]]:
        with schema.explained(self.path):
            before_decisions = schema.version(self._db) == 1
        return iter(()) if before_decisions else self._each("decisions", Decided)

    def each_error(self) -> Iterator[tuple[int, RunError]]:
        return self._each("errors", RunError)

    def runs(self) -> list[Run]:
        return self._all("runs", Run)

    def plan_changes(self, *, last: int | None = None) -> list[PlanChange]:
        return self._all("plan_changes", PlanChange, last)

    def errors(self, *, last: int | None = None) -> list[RunError]:
        return self._all("errors", RunError, last)

    def last_run(self) -> Run | None:
        runs = self._all("runs", Run, 1)
        return runs[0] if runs else None

    def plan(self) -> Plan | None:
        """The plan in force: that of the last start, or of the last change since that went well."""
        run = self.last_run()
        if run is None or run.plan is None:
            return None
        since = [one.new for one in self.plan_changes() if one.outcome == "ok" and one.at_s >= run.started_s]
        return since[-1] if since else run.plan

    def close(self) -> None:
        self._db.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __enter__(self) -> StoreReader:
        return self

    def _each(self, table: str, of: type[Each]) -> Iterator[tuple[int, Each]]:
        with schema.explained(self.path):
            for number, body in self._db.execute(f"SELECT id, body FROM {table} ORDER BY id"):
                yield number, msgspec.json.decode(body, type=of)

    def _all(self, table: str, of: type[Row], last: int | None = None) -> list[Row]:
        with schema.explained(self.path):
            rows = self._db.execute(
                f"SELECT body FROM {table} ORDER BY id DESC LIMIT ?", (-1 if last is None else last,)
            ).fetchall()
            return [msgspec.json.decode(body, type=of) for (body,) in reversed(rows)]
