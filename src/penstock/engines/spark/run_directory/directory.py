"""The run directory: its checkpoints and channels, the positions of queries, and the deletion of unused files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.channels import Channel, ChannelUnavailableError, create_channel, open_channel
from penstock.engines.spark.channels.logged_channel import DESCRIPTION_FILE
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.committed import Committed, Origin, Query, QueryInput


class RunDirectory:
    def __init__(self, path: Path, kafka: KafkaCluster | None = None) -> None:
        """`kafka` stores the rows of new channels; None stores them in the run directory."""
        self.path = path
        self._kafka = kafka
        self._channels: dict[str, Channel] = {}  # by folder

    def checkpoint(self, query: Query) -> Checkpoint:
        return Checkpoint(self.checkpoint_folder(query))

    def checkpoint_folder(self, query: Query) -> Path:
        return self.path / "checkpoints" / query.checkpoint

    def channel(self, folder: str) -> Channel:
        if folder not in self._channels:
            self._channels[folder] = open_channel(self._channel_folder(folder))
        return self._channels[folder]

    def has_channel(self, folder: str) -> bool:
        return (self._channel_folder(folder) / DESCRIPTION_FILE).exists()

    def create_channel(self, folder: str, schema: str, keys: tuple[str, ...] = ()) -> None:
        self._channels[folder] = create_channel(
            self._channel_folder(folder),
            schema,
            keys=keys,
            kafka=self._kafka,
        )

    def position(self, query: Query, source: QueryInput) -> Offset:
        """Return the offset up to which a query has read one of its inputs: the end of its last committed batch."""
        checkpoint = self.checkpoint(query)
        return checkpoint.offsets(checkpoint.committed()).get(source.name, source.start)

    def delete_read_rows(self, queries: Iterable[Query], position: Callable[[Query, Origin], Offset | None]) -> None:
        """Delete from each channel the rows that all of its readers have passed.

        `position` returns None if the position of a reader is not known; nothing is deleted then.
        """
        passed: dict[str, list[Offset | None]] = {}
        for query in queries:
            for edge, folder in query.channels_read.items():
                passed.setdefault(folder, []).append(position(query, edge))
        for folder, positions in passed.items():
            known = [offset for offset in positions if offset is not None]
            if len(known) == len(positions):
                self.channel(folder).delete_before(min(known, key=lambda offset: next(iter(offset.values()))))

    def delete_unused(self, committed: Committed | None, previous: Committed | None = None) -> None:
        """Delete the files that neither the committed plan nor the previous one names, and release all holds."""
        plans = [plan for plan in (committed, previous) if plan is not None]
        if not plans:  # a start that was not committed has read files and started the pace of sources
            shutil.rmtree(self.path / "sources", ignore_errors=True)
        keep = {
            "checkpoints": {query.checkpoint for plan in plans for query in plan.queries},
            "channels": {folder for plan in plans for folder in plan.channels.values()},
            "starts": {query.checkpoint for plan in plans for query in plan.queries},
            "hold": set[str](),
        }
        for kind, names in keep.items():
            for path in (self.path / kind).glob("*"):
                if path.name in names or (kind == "channels" and not self._rows_deleted(path.name)):
                    continue
                # Spark may still write state of a stopped query; the rest is deleted by the next call.
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
                self._channels.pop(path.name, None)

    def _rows_deleted(self, folder: str) -> bool:
        """Delete the rows of a channel; return False if that is not possible now and must be repeated later."""
        if self.has_channel(folder):
            try:
                self.channel(folder).delete_rows()
            except ChannelUnavailableError:
                return False
        return True

    def _channel_folder(self, folder: str) -> Path:
        return self.path / "channels" / folder
