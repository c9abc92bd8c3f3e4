"""The rule by which a run may write to an output: a folder or a topic belongs to the runs that its record names.

The record is kept with the output. A run claims an output once, immediately before its first plan is committed. Output
that another run wrote, or another program, is foreign. A sink declares what happens to foreign output: it is refused
("error"), deleted ("overwrite") or kept beside the new rows ("append"). A resumed run never deletes anything.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.storage.atomic_files import create_exclusively

TOKEN_FILE = "token"


class OutputOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A sink of a run."""

    run: str  # the token of the run
    sink: str
    directory: str  # the run directory

    def is_same_sink(self, other: OutputOwner) -> bool:
        """Return whether both are the same sink of one run, whose directory may have been moved or copied."""
        return (self.run, self.sink) == (other.run, other.sink)


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """The record of the runs that own an output. It is stored with the output."""

    owners: tuple[OutputOwner, ...] = ()  # several after "append"
    is_overwriting: bool = False  # the only owner deletes the earlier output; set until that is complete
    replaced: tuple[OutputOwner, ...] = ()  # the owners of the output that is being deleted

    def includes(self, owner: OutputOwner) -> bool:
        return any(owner.is_same_sink(other) for other in self.owners)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a sink to write to an output."""

    owner: OutputOwner
    existing: str  # "error", "overwrite" or "append"
    is_resumed: bool
    output: str  # the place, for messages, such as "folder '/data/out'"

    def decide(self, record: Ownership, *, foreign: str | None, has_own_rows: bool) -> Ownership:
        """Return the record after the claim.

        Args:
            record: The record before the claim.
            foreign: Description of rows in the output that do not belong to this sink; None if there are none.
            has_own_rows: Whether this sink has written to the output before.

        Raises:
            PenstockError: The output is foreign and the sink may not write to it.
        """
        me = self.owner
        if record.includes(me):
            self._check_is_no_copy(record)
            owners = tuple(me if me.is_same_sink(owner) else owner for owner in record.owners)
            return msgspec.structs.replace(record, owners=owners)
        if foreign is None and not self.is_resumed and not any(map(_exists, record.owners)):
            # The output is empty, and a run that claimed it before was deleted.
            return Ownership(owners=(me,), is_overwriting=bool(record.owners), replaced=record.owners)
        if record.owners:
            foreign = f"output of {_describe(record.owners[-1], me)}"
        if foreign is None:
            return Ownership(owners=(me,))
        if self.existing == "append" and (has_own_rows or not self.is_resumed):
            return Ownership(owners=(*record.owners, me))
        if self.is_resumed and not has_own_rows:
            raise PenstockError(
                f"Sink '{me.sink}': {self.output} now contains {foreign}, and the earlier rows of this run are gone; "
                "start a new run in another directory."
            )
        if self.is_resumed:
            raise PenstockError(
                f"Sink '{me.sink}': {self.output} also contains {foreign}; remove that output, or declare the sink "
                "with existing='append' to keep both."
            )
        if self.existing == "overwrite":
            return Ownership(owners=(me,), is_overwriting=True, replaced=record.owners)
        raise PenstockError(
            f"Sink '{me.sink}': {self.output} already contains {foreign}; give another {self.output.split()[0]}, or "
            "declare the sink with existing='overwrite' to delete that output, or with existing='append' to keep it "
            "beside the new rows."
        )

    def _check_is_no_copy(self, record: Ownership) -> None:
        """Raise PenstockError if this run directory is a copy of the one that owns the output."""
        recorded = next(owner for owner in record.owners if self.owner.is_same_sink(owner))
        original, here = Path(recorded.directory), Path(self.owner.directory)
        if _exists(recorded) and not (original / TOKEN_FILE).samefile(here / TOKEN_FILE):
            raise PenstockError(
                f"Sink '{self.owner.sink}': {self.output} belongs to the run in '{original}', of which '{here}' is a "
                "copy; resume the original run, or delete its directory before you resume the copy."
            )

    def lost_to(self, record: Ownership) -> PenstockError:
        """Return the error of a running sink whose output was taken over by another run."""
        taken_by = f" by {_describe(record.owners[-1], self.owner)}" if record.owners else ""
        return PenstockError(
            f"Sink '{self.owner.sink}': {self.output} was overwritten{taken_by} while this run was writing to it; "
            "start a new run in another directory."
        )


def _exists(owner: OutputOwner) -> bool:
    """Return whether the directory of a run still exists, as far as this machine can see it."""
    try:
        return (Path(owner.directory) / TOKEN_FILE).read_text() == owner.run
    except OSError:
        return False


def _describe(owner: OutputOwner, me: OutputOwner) -> str:
    if owner.directory == me.directory:
        same_run = f"sink '{owner.sink}' of this run" if owner.run == me.run else "an earlier run"
        return f"{same_run} in '{owner.directory}'"
    return f"the run in '{owner.directory}'"


def run_token(run: Path) -> str:
    """Return a short random text that identifies the run; it is created once and kept in the run directory."""
    path = run / TOKEN_FILE
    create_exclusively(path, uuid4().hex[:8].encode())
    return path.read_text()
