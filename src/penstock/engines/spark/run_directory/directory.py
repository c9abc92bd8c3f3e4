"""The run's directory: its checkpoints and channels, how far each query has come, and what nobody needs any more."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.channels import Channel, ChannelBusyError, EventTime, create_channel, open_channel
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.committed import Committed, Origin, Query, QueryInput
from penstock.engines.spark.sources.contract import Offset


class RunDirectory:
    def __init__(self, path: Path, batch_s: float, most_rows: int | None, kafka: KafkaCluster | None = None) -> None:
        self.path = path
        self._batch_s = batch_s
        self._most_rows = most_rows
        self._kafka = kafka
        self._channels: dict[str, Channel] = {}  # by folder

    def checkpoint(self, query: Query) -> Checkpoint:
        return Checkpoint(self.checkpoint_folder(query))

    def checkpoint_folder(self, query: Query) -> Path:
        return self.path / "checkpoints" / query.checkpoint

    def channel(self, folder: str) -> Channel:
        if folder not in self._channels:
            self._channels[folder] = open_channel(
                self._channel_folder(folder), batch_s=self._batch_s, most_rows=self._most_rows
            )
        return self._channels[folder]

    def has_channel(self, folder: str) -> bool:
        return (self._channel_folder(folder) / "channel.json").exists()

    def create_channel(
        self, folder: str, schema: str, event_time: EventTime | None, keys: tuple[str, ...] = ()
    ) -> None:
        self._channels[folder] = create_channel(
            self._channel_folder(folder),
            schema,
            event_time,
            keys=keys,
            kafka=self._kafka,
            batch_s=self._batch_s,
            most_rows=self._most_rows,
        )

    def position(self, query: Query, source: QueryInput) -> Offset:
        """Return the offset up to which a query has read one of its inputs: the end of its last committed batch."""
        checkpoint = self.checkpoint(query)
        return checkpoint.offsets(checkpoint.committed()).get(source.name, source.start)

    def forget(self, queries: Iterable[Query], up_to: Callable[[Query, Origin], Offset | None]) -> None:
        """Deletes from each channel what all of its readers have behind them; None says that nothing is known."""
        behind: dict[str, list[Offset | None]] = {}
        for query in queries:
            for edge, folder in query.channels_read.items():
                behind.setdefault(folder, []).append(up_to(query, edge))
        for folder, positions in behind.items():
            if None not in positions:
                self.channel(folder).forget(min(positions, key=lambda at: next(iter(at.values()))))

    def clear(self, committed: Committed | None, also: Committed | None = None) -> None:
        """Deletes what neither the committed plan nor the one before it names, and lifts all holds."""
        known = [one for one in (committed, also) if one is not None]
        if not known:  # a start that never came to be has taken in files and let its pace run
            shutil.rmtree(self.path / "sources", ignore_errors=True)
        keep = {
            "checkpoints": {query.checkpoint for one in known for query in one.queries},
            "channels": {folder for one in known for folder in one.channels.values()},
            "starts": {query.checkpoint for one in known for query in one.queries},
            "hold": set(),
        }
        for kind, names in keep.items():
            for path in (self.path / kind).glob("*"):
                if path.name in names or (kind == "channels" and not self._dropped(path.name)):
                    continue
                # Spark may still be laying up state of a query that was stopped: what stays goes next time.
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
                self._channels.pop(path.name, None)

    def _dropped(self, folder: str) -> bool:
        """Whether the rows of a channel are gone; where that cannot be done now, it is tried again next time."""
        if self.has_channel(folder):
            try:
                self.channel(folder).drop()
            except ChannelBusyError:
                return False
        return True

    def _channel_folder(self, folder: str) -> Path:
        return self.path / "channels" / folder
