"""The SQLite tables of a store, and the checks that a file is a Penstock store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from penstock.store.errors import StoreError

FILE = "store.sqlite"
VERSION = 5
APPLICATION_ID = int.from_bytes(b"Pens")  # SQLite stores it in the file header.

# Rows are JSON documents because the fields of a Window change often. Only values used in queries are columns.
TABLES = """
CREATE TABLE runs (id INTEGER PRIMARY KEY, started_s REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE windows (id INTEGER PRIMARY KEY, start_s REAL NOT NULL, end_s REAL NOT NULL, generation INTEGER NOT NULL,
                      body TEXT NOT NULL);
CREATE TABLE plan_changes (id INTEGER PRIMARY KEY, at_s REAL NOT NULL, outcome TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE errors (id INTEGER PRIMARY KEY, at_s REAL NOT NULL, place TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE decisions (id INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, reason_code TEXT NOT NULL,
                        body TEXT NOT NULL);
CREATE TABLE trials (id INTEGER PRIMARY KEY, ended_s REAL NOT NULL, study TEXT NOT NULL, body TEXT NOT NULL);
"""


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and msgspec to a StoreError that says what to do."""
    try:
        yield
    except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
        if isinstance(error, sqlite3.OperationalError):  # caused by the environment, not by the file
            raise StoreError(
                f"Cannot access the store '{path}': {error}. Check the free disk space and the file permissions."
            ) from None
        raise StoreError(
            f"'{path}' is corrupt or is not a Penstock store ({error}). It was not modified; restore it from a backup, "
            "or move it away so that the next 'penstock run' creates a new one."
        ) from None


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError if the file is not a Penstock store of this schema version."""
    application_id, version = _header(connection)
    if application_id != APPLICATION_ID:
        raise StoreError(
            f"'{path}' is a SQLite file but not a Penstock store. It was not modified; give another directory."
        )
    if version != VERSION:
        raise StoreError(
            f"The store '{path}' has schema version {version}, but this Penstock requires {VERSION}; use the Penstock "
            "version that wrote it, or give another directory."
        )


def create(path: Path) -> None:
    """Create the file with all tables if it does not exist or is empty.

    It appears under its name when it is complete, so that no reader sees a store without tables.
    """
    if path.exists() and path.stat().st_size > 0:
        return
    incomplete = path.with_name(f"{path.name}.new")
    incomplete.unlink(missing_ok=True)  # The creator of this one was killed.
    with closing(sqlite3.connect(incomplete, isolation_level=None)) as connection:
        connection.executescript(
            f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
        )
    incomplete.replace(path)


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application_id, version
