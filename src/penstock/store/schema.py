"""The tables of a store, and what tells a store from any other file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.store.errors import StoreError

FILE = "store.sqlite"
VERSION = 3
READABLE = (1, 2, 3)  # one of version 1 has no decisions, of 2 no trials; whoever writes to it adds their tables
APPLICATION = int.from_bytes(b"Pens")  # SQLite keeps it in the file's header

# Bodies are JSON: a Window grows fields faster than tables should. What is selected or ordered by is a column.
DECISIONS = """
CREATE TABLE decisions (id INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL,
                        body TEXT NOT NULL);
"""
TRIALS = """
CREATE TABLE trials (id INTEGER PRIMARY KEY, ended_s REAL NOT NULL, study TEXT NOT NULL, body TEXT NOT NULL);
"""
TABLES = f"""
CREATE TABLE runs (id INTEGER PRIMARY KEY, started_s REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE windows (id INTEGER PRIMARY KEY, start_s REAL NOT NULL, end_s REAL NOT NULL, generation INTEGER NOT NULL,
                      body TEXT NOT NULL);
CREATE TABLE plan_changes (id INTEGER PRIMARY KEY, at_s REAL NOT NULL, outcome TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE errors (id INTEGER PRIMARY KEY, at_s REAL NOT NULL, place TEXT NOT NULL, body TEXT NOT NULL);
{DECISIONS}
{TRIALS}
"""
ADDED = {1: DECISIONS + TRIALS, 2: TRIALS}  # version -> what it lacks


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's and msgspec's errors, in words that say what to do."""
    try:
        yield
    except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
        if isinstance(error, sqlite3.OperationalError):  # the world's fault, not the file's
            raise StoreError(
                f"the store '{path}' cannot be used: {error}; check that the disk has room and the file is yours"
            ) from None
        raise StoreError(
            f"'{path}' is corrupt or is not a store of Penstock ({error}); nothing was changed in it: restore it from "
            "a copy, or move it away and the next 'penstock run' starts a new record"
        ) from None


def is_new(connection: sqlite3.Connection) -> bool:
    """Nothing in it at all: just created, or its creator was killed before the tables were there."""
    return not _header(connection)[0] and not connection.execute("SELECT 1 FROM sqlite_master").fetchall()


def check(connection: sqlite3.Connection, path: Path) -> None:
    application, found = _header(connection)
    if application != APPLICATION:
        raise StoreError(
            f"'{path}' is a SQLite file, but not a store of Penstock; nothing was changed in it: give another directory"
        )
    if found not in READABLE:
        raise StoreError(
            f"the store '{path}' has schema {found} and this Penstock knows {VERSION}; use the Penstock that wrote "
            "it, or give another directory"
        )


def create(connection: sqlite3.Connection) -> None:
    """All tables or none: a reader never sees half a schema."""
    connection.executescript(
        f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
    )


def upgrade(connection: sqlite3.Connection) -> None:
    """From an earlier version, wholly or not at all; readers of the old version go on reading what they know."""
    lacking = ADDED.get(version(connection))
    if lacking is not None:
        connection.executescript(f"BEGIN; {lacking} PRAGMA user_version = {VERSION}; COMMIT;")


def version(connection: sqlite3.Connection) -> int:
    return _header(connection)[1]


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version
