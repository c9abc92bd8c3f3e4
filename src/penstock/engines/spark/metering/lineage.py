"""Lineage: from which appends at the sources a batch's rows stem, read from the offsets that queries wrote down.

A batch covers a range of each of its sources. A range of a source has append times; a range of a channel is a list of
appends, each made by one batch of its producer under a key that names checkpoint and number: so back to the sources.
No column is added to anybody's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock.dataflow.edge import Edge
from penstock.engines.spark.channels import Channel
from penstock.engines.spark.reading.offsets import START_ID, Offset, without_start_id
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.committed import Origin, Query
from penstock.engines.spark.sources.contract import StreamSource

Ranges = dict[Origin, tuple[Offset, Offset]]  # input -> the offsets at which a batch began and ended
Moments = list[tuple[float, float]]  # (append time, rows at the source)
_MOST = 64
_DEEPEST = 64  # rows of a loop may have gone round many times


class Lineage:
    def __init__(self, run: Path, sources: dict[str, StreamSource], channel: Callable[[str], Channel]) -> None:
        self._run = run
        self._sources = sources
        self._channel = channel
        self._queries: dict[str, Query] = {}  # every query ever started in this process, by checkpoint
        self._heard: dict[str, dict[int, Ranges | None]] = {}  # checkpoint -> batch -> what it read
        self._depth = 0
        # Asked once for each batch, whoever asks: a source may forget what it was asked for before.
        self.moments = lru_cache(maxsize=4096)(self._moments)

    def know(self, query: Query) -> None:
        self._queries[query.checkpoint] = query

    def hear(self, checkpoint: str, progress: list[dict[str, Any]]) -> None:
        """Spark keeps the offsets of a hundred batches; what earlier ones read is found in their progress.

        That does not name the sources, but the ticks in their offsets are known by name.
        """
        names = self._checkpoint(checkpoint).names_by_start_id()
        heard = {
            one["batchId"]: _ranges_in(one["sources"], names, self._queries[checkpoint]) for one in progress if names
        }
        self._heard[checkpoint] = heard

    def ranges(self, checkpoint: str, batch: int) -> Ranges | None:
        """What a batch read: key of the source -> (start, end). None if that is no longer written down."""
        query = self._queries.get(checkpoint)
        if query is None:
            return None
        log = self._checkpoint(checkpoint)
        try:
            ends = log.offsets(batch)
            starts = log.offsets(batch - 1) if batch > 0 else {}
        except FileNotFoundError:  # purged, or there was no batch before
            return self._heard.get(checkpoint, {}).get(batch)
        return {
            source.origin: (starts.get(source.name, source.start), ends[source.name])
            for source in query.inputs
            if source.name in ends
        }

    def _checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self._run / "checkpoints" / name)

    def _moments(self, checkpoint: str, batch: int) -> Moments | None:
        """When the rows behind this batch were appended at the sources; None if unknown."""
        ranges = self.ranges(checkpoint, batch)
        if ranges is None or self._depth > _DEEPEST:
            return None
        self._depth += 1
        try:
            found: Moments = []
            for origin, (start, end) in ranges.items():
                if start != end:
                    some = self._of_range(checkpoint, origin, start, end)
                    if some is None:
                        return None
                    found += some
            return _thinned(found)
        finally:
            self._depth -= 1

    def _of_range(self, checkpoint: str, origin: Origin, start: Offset, end: Offset) -> Moments | None:
        if not isinstance(origin, Edge):
            return self._sources[origin].append_times(start, end)
        try:
            folder = self._queries[checkpoint].channels_read[origin]
            appends = self._channel(folder).appends_between(start, end)
        except FileNotFoundError:
            return None
        found: Moments = []
        for append in appends:
            made_by, _, number = append.key.rpartition(".")
            before = self.moments(made_by, int(number))
            if before is None:
                return None
            found += before
        return found


def _ranges_in(sources: list[dict[str, Any]], names: dict[int, str], query: Query) -> Ranges | None:
    """None unless every source is known by the tick of its offset."""
    ends = {names.get((one["endOffset"] or {}).get(START_ID)): one for one in sources}
    if None in ends:
        return None
    return {
        source.origin: (
            without_start_id(ends[source.name]["startOffset"] or source.start),
            without_start_id(ends[source.name]["endOffset"]),
        )
        for source in query.inputs
        if source.name in ends
    }


def _thinned(moments: Moments) -> Moments:
    """At most so many moments, neighbours in time merged, rows and mean time kept."""
    if len(moments) <= _MOST:
        return moments
    moments = sorted(moments)
    size = -(-len(moments) // _MOST)
    thin = []
    for low in range(0, len(moments), size):
        some = moments[low : low + size]
        rows = sum(count for _, count in some)
        if rows:
            thin.append((sum(at * count for at, count in some) / rows, rows))
    return thin
