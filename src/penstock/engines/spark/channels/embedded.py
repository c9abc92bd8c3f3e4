"""The embedded channel: its log and its rows both lie in its folder, the rows in Arrow files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.engines.spark.channels.contract import EventTime
from penstock.engines.spark.channels.files import Folder
from penstock.engines.spark.channels.logged import LoggedChannel, write_about


class EmbeddedChannel(LoggedChannel):
    def __init__(self, folder: Path, batch_s: float = 2.0, most_rows: int | None = None) -> None:
        super().__init__(folder, Folder(folder / "rows"), batch_s, most_rows)

    @staticmethod
    def create(folder: Path, schema: str, event_time: EventTime | None, **how: Any) -> EmbeddedChannel:
        """`schema` is Spark's JSON of the rows' schema."""
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        write_about(folder, schema, event_time)
        return EmbeddedChannel(folder, **how)
