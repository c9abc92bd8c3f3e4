"""StoreReader: read the record of a run, while it is being written or after its writer was killed."""

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
from penstock.store.records import DecisionRecord, ErrorRecord, PlanChange, RunStart, Trial

Row = TypeVar("Row", RunStart, PlanChange, ErrorRecord, Trial)
NumberedRow = TypeVar("NumberedRow", Window, DecisionRecord, ErrorRecord)


class StoreReader:
    """Read-only view of the store in `run_dir`. Raises StoreError if there is none, or if it is corrupt.

    Every call sees all rows committed so far, oldest first, and never a part of a row. Methods that return
    `(number, row)` number the rows from 1.
    """

    def __init__(self, run_dir: Path | str) -> None:
        self.path = Path(run_dir) / schema.FILE
        if not self.path.is_file():
            raise StoreError(
                f"There is no run in '{run_dir}' (no {schema.FILE}); start one with 'penstock run FILE --at {run_dir}'."
            )
        with schema.store_errors(self.path):
            self._db = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False, isolation_level=None
            )
        try:
            with schema.store_errors(self.path):
                schema.check(self._db, self.path)
        except StoreError:
            self._db.close()
            raise

    def windows(self, *, after: int = 0, last: int | None = None) -> list[tuple[int, Window]]:
        """Return windows with a number greater than `after`; at most the latest `last` of them."""
        return self._numbered("windows", Window, after, last)

    def decisions(self, *, after: int = 0, last: int | None = None) -> list[tuple[int, DecisionRecord]]:
        """Return decisions with a number greater than `after`; at most the latest `last` of them."""
        return self._numbered("decisions", DecisionRecord, after, last)

    def applied_changes(self) -> list[tuple[int, DecisionRecord]]:
        """Return the decisions that were applied or failed.

        They are few, whereas all decisions of a month do not fit into memory.
        """
        with schema.store_errors(self.path):
            rows = self._db.execute(
                "SELECT id, body FROM decisions WHERE kind = 'change' AND json_extract(body, '$.applied') <> "
                "'recommended' ORDER BY id"
            ).fetchall()
            return [(number, msgspec.json.decode(body, type=DecisionRecord)) for number, body in rows]

    def last_decision(self, policy: str) -> DecisionRecord | None:
        """Return the latest decision of a policy."""
        with schema.store_errors(self.path):
            row = self._db.execute(
                "SELECT body FROM decisions WHERE json_extract(body, '$.policy') = ? ORDER BY id DESC LIMIT 1",
                (policy,),
            ).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=DecisionRecord)

    def trials(self) -> list[Trial]:
        """Return the trials that have ended."""
        return self._all("trials", Trial)

    def iter_windows(self) -> Iterator[tuple[int, Window]]:
        """Yield all windows one at a time: the windows of a week do not fit into memory."""
        return self._iterate("windows", Window)

    def iter_decisions(self) -> Iterator[tuple[int, DecisionRecord]]:
        return self._iterate("decisions", DecisionRecord)

    def iter_errors(self) -> Iterator[tuple[int, ErrorRecord]]:
        return self._iterate("errors", ErrorRecord)

    def runs(self) -> list[RunStart]:
        """Return one record per start."""
        return self._all("runs", RunStart)

    def plan_changes(self, *, last: int | None = None) -> list[PlanChange]:
        return self._all("plan_changes", PlanChange, last)

    def errors(self, *, last: int | None = None) -> list[ErrorRecord]:
        return self._all("errors", ErrorRecord, last)

    def last_run(self) -> RunStart | None:
        """Return the record of the latest start."""
        runs = self._all("runs", RunStart, 1)
        return runs[0] if runs else None

    def plan(self) -> Plan | None:
        """Return the current plan: the plan of the latest start, or of the latest successful change since then."""
        run = self.last_run()
        if run is None or run.plan is None:
            return None
        since_start = [
            change.new for change in self.plan_changes() if change.outcome == "ok" and change.at_s >= run.started_s
        ]
        return since_start[-1] if since_start else run.plan

    def close(self) -> None:
        self._db.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __enter__(self) -> StoreReader:
        return self

    def _numbered(
        self, table: str, row_type: type[NumberedRow], after: int, last: int | None
    ) -> list[tuple[int, NumberedRow]]:
        with schema.store_errors(self.path):
            rows = self._db.execute(
                f"SELECT id, body FROM {table} WHERE id > ? ORDER BY id DESC LIMIT ?",
                (after, -1 if last is None else last),
            ).fetchall()
            return [(number, msgspec.json.decode(body, type=row_type)) for number, body in reversed(rows)]

    def _iterate(self, table: str, row_type: type[NumberedRow]) -> Iterator[tuple[int, NumberedRow]]:
        with schema.store_errors(self.path):
            for number, body in self._db.execute(f"SELECT id, body FROM {table} ORDER BY id"):
                yield number, msgspec.json.decode(body, type=row_type)

    def _all(self, table: str, row_type: type[Row], last: int | None = None) -> list[Row]:
        with schema.store_errors(self.path):
            rows = self._db.execute(
                f"SELECT body FROM {table} ORDER BY id DESC LIMIT ?", (-1 if last is None else last,)
            ).fetchall()
            return [msgspec.json.decode(body, type=row_type) for (body,) in reversed(rows)]
