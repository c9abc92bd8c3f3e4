"""Files named on the command line."""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow.errors import PenstockError


def read(path: Path, what: str) -> bytes:
    """The file, or one clear error."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PenstockError(f"cannot read the {what} file {path}: {error.strerror or error}; check the path") from None
