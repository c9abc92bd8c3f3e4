"""The number of each batch of a sink: 0, 1, 2, ... over all plan changes and restarts of a run.

Spark's own batch id restarts when a plan change gives the sink a new query. The number here is never used for other
rows: it is stored together with the key of its batch before the batch is written. Spark repeats only the last batch.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.engines.spark.storage.atomic_files import write_atomically


class _Last(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    number: int


class BatchNumbers:
    """Numbers the batches of one sink; `file` keeps the last number."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def number(self, key: str) -> int:
        """Return the number of the batch with this key, which is the last batch or a new one."""
        try:
            last = msgspec.json.decode(self._file.read_bytes(), type=_Last)
        except FileNotFoundError:
            last = _Last(key="", number=-1)
        if last.key == key:
            return last.number
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, msgspec.json.encode(_Last(key=key, number=last.number + 1)))
        return last.number + 1
