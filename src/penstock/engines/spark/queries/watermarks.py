"""The watermark of each input of a query, saved so that it survives restarts.

Spark's checkpoint contains only the minimum of the watermarks of all inputs; the single ones are in memory. After a
restart, an input without new rows would count as one that never had any. The minimum would never advance again, and an
outer join would never emit its last rows. This module saves the single watermarks in a file beside Spark's own files in
the checkpoint. A plan change copies the file together with the checkpoint. The first batch of the next start restores
the watermarks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engines.spark.jvm import WatermarkId, WatermarkTracker, analyzed_plan
from penstock.engines.spark.storage.atomic_files import write_atomically

FILE = "watermarks.json"
_LOG = logging.getLogger("penstock.spark")
# Stream -> its declared watermarks in milliseconds; None before the first row. A cut before the stateful operator moves
# a watermark from the query into a channel or back, but it stays with the same input of the operator.
Watermarks = dict[str, list[int | None]]


class InputWatermarks:
    """Saves and restores the watermarks of one start of a query, if the query has two or more."""

    def __init__(self, checkpoint: Path, streams: dict[str, DataFrame]) -> None:
        """`streams`: the inputs of each stateful operator by name, and its output, upstream first.

        The function of a stateful operator may declare watermarks, which its output contains.
        """
        self._file = checkpoint / FILE
        self._streams = streams
        self._ids: dict[str, list[WatermarkId]] | None = None  # None: not determined yet
        self._saved = _load(self._file)

    def save(self, query: StreamingQuery) -> None:
        """Save the watermarks after the last row of a batch was processed and before the batch is committed.

        Must be called in every batch, so that no committed batch lacks its watermarks.
        """
        if self._ids == {}:
            return
        try:
            self._save(query)
        except Exception as error:  # the private API of another Spark version may differ, which must not end the run
            self._ids = {}
            _LOG.warning(
                "The watermarks of single inputs cannot be saved (%s). After a restart, an input without new rows "
                "delays all others until it receives a row.",
                error,
            )

    def _save(self, query: StreamingQuery) -> None:
        if not self._streams:
            self._forget()
            return
        tracker = WatermarkTracker(next(iter(self._streams.values())).sparkSession, query)
        if self._ids is None:
            self._ids = _watermark_ids(self._streams) if len(tracker) > 1 else {}
            if not self._ids:
                self._forget()
                return
            self._restore(tracker, self._ids)
        tracker.update()
        watermarks = {name: tracker.read(ids) for name, ids in self._ids.items()}
        if watermarks != self._saved:
            write_atomically(self._file, msgspec.json.encode(watermarks))
            self._saved = watermarks

    def _forget(self) -> None:
        """Delete the copy of what an earlier query has saved, because it becomes outdated while another query saves."""
        self._ids = {}
        self._file.unlink(missing_ok=True)

    def _restore(self, tracker: WatermarkTracker, ids: dict[str, list[WatermarkId]]) -> None:
        for name, watermark_ids in ids.items():
            saved = self._saved.get(name, [])
            if len(watermark_ids) != len(saved):  # the user's function has changed: the assignment is unknown
                continue
            for watermark, milliseconds in zip(watermark_ids, saved, strict=True):
                if milliseconds is not None:
                    tracker.write(watermark, milliseconds)


def carry_over(checkpoint: Path, stopped: Iterable[Path]) -> None:
    """Add the watermarks that stopped queries have saved to those in a new checkpoint.

    A plan change may move a union of streams from one query to another. A query that has not run a batch since the last
    change still has the copies of that time. Watermarks only advance, so the latest one of each stream counts.
    """
    own = _load(checkpoint / FILE)
    merged = dict(own)
    for folder in stopped:
        for name, watermarks in _load(folder / FILE).items():
            merged[name] = _latest(merged.get(name, watermarks), watermarks)
    if merged != own:
        write_atomically(checkpoint / FILE, msgspec.json.encode(merged))


def _latest(first: list[int | None], second: list[int | None]) -> list[int | None]:
    if len(first) != len(second):  # a stream that one of the queries read from a channel has a single watermark there
        return max(first, second, key=len)
    return [
        max((value for value in pair if value is not None), default=None) for pair in zip(first, second, strict=True)
    ]


def _load(file: Path) -> Watermarks:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Watermarks)
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _watermark_ids(streams: dict[str, DataFrame]) -> dict[str, list[WatermarkId]]:
    """Return the watermarks in the plan of each stream, in plan order. The first stream that contains one counts."""
    ids: dict[str, list[WatermarkId]] = {}
    seen: set[str] = set()
    for name, df in streams.items():
        in_plan = [node.watermark_id() for node in analyzed_plan(df).walk() if node.name == "EventTimeWatermark"]
        ids[name] = [watermark for watermark in in_plan if watermark.text not in seen]
        seen |= {watermark.text for watermark in in_plan}
    return ids
