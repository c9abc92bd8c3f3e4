"""Each input's own watermark, over restarts.

Spark's checkpoint holds one watermark, the least of all inputs'. What each of them has come to is only in memory, so
after a restart an input that brings no more rows counts as one that never brought any: the least never moves again, and
an outer join owes its last rows for ever. Hence these are kept beside Spark's own files in the checkpoint, with which
they are handed on, and are put back before the first batch of the next start ends.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engines.spark.jvm import WatermarkId, WatermarkTracker, analyzed_plan
from penstock.engines.spark.storage.atomic_files import write_atomically

FILE = "watermarks.json"
_LOG = logging.getLogger("penstock.spark")
# Stream -> the watermarks that are declared on it, in ms; None before the first row. A cut on the way to the state
# changes where that is, in the query or in a channel, but not for which of its inputs.
Marks = dict[str, list[int | None]]


class Watermarks:
    """Those of one start of a query; with fewer than two there is nothing to do, since Spark's one is enough."""

    def __init__(self, checkpoint: Path, streams: dict[str, DataFrame]) -> None:
        """`streams`: the inputs of the operator with state, then its output, on which its function may declare some."""
        self._file = checkpoint / FILE
        self._streams = streams
        self._nodes: dict[str, list[WatermarkId]] | None = (
            None if streams else {}
        )  # Spark's ids; None until they are known
        self._kept = _load(self._file)

    def keep(self, query: StreamingQuery) -> None:
        """To be called in every batch, between its last row and its commit: so those of no committed batch are lost."""
        if self._nodes == {}:
            return
        try:
            self._keep(query)
        except Exception as error:  # it reaches into Spark: what another version refuses must not end the run
            self._nodes = {}
            _LOG.warning(
                "the watermarks of single inputs cannot be kept (%s): after a restart one that has become quiet holds "
                "up all others until it brings a row",
                error,
            )

    def _keep(self, query: StreamingQuery) -> None:
        tracker = WatermarkTracker(next(iter(self._streams.values())).sparkSession, query)
        if self._nodes is None:
            self._nodes = _nodes(self._streams) if len(tracker) > 1 else {}
            if not self._nodes:
                return
            self._put_back(tracker, self._nodes)
        tracker.update()
        marks = {name: tracker.read(nodes) for name, nodes in self._nodes.items()}
        if marks != self._kept:
            write_atomically(self._file, msgspec.json.encode(marks))
            self._kept = marks

    def _put_back(self, tracker: WatermarkTracker, nodes: dict[str, list[WatermarkId]]) -> None:
        for name, kept in self._kept.items():
            if len(nodes.get(name, ())) != len(kept):  # the function is another one: nobody knows which is which
                continue
            for node, ms in zip(nodes[name], kept, strict=True):
                if ms is not None:
                    tracker.write(node, ms)


def _load(file: Path) -> Marks:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Marks)
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _nodes(streams: dict[str, DataFrame]) -> dict[str, list[WatermarkId]]:
    """The ids of the watermarks in each stream's plan, in its order; one that is in several counts in the first."""
    nodes: dict[str, list[WatermarkId]] = {}
    seen: set[str] = set()
    for name, df in streams.items():
        ids = [node.watermark_id() for node in analyzed_plan(df).walk() if node.name == "EventTimeWatermark"]
        nodes[name] = [watermark for watermark in ids if watermark.text not in seen]
        seen |= {watermark.text for watermark in ids}
    return nodes
