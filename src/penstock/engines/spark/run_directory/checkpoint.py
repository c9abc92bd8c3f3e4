"""The checkpoint of a query on disk: its committed batches, its offsets, and its copy for another query."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import repartition_state
from penstock.engines.spark.reading.offsets import START_ID, Offset, without_start_id
from penstock.engines.spark.storage.atomic_files import copy_tree, write_atomically
from penstock.engines.spark.storage.local_locations import local_location

_SPECIAL = re.compile(r"[^\w/.,:;=+@~()-]", re.ASCII)  # characters that Spark encodes in a location
Offsets = dict[str, Offset]  # keyed by source name


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def committed(self) -> int | None:
        """Return the number of the last committed batch, or None before the first."""
        return self._last("commits")

    def planned(self) -> int | None:
        """Return the number of the last batch whose offsets are in the log, or None before the first."""
        return self._last("offsets")

    def interrupted(self) -> bool:
        """Return whether a batch was begun and not committed."""
        planned, committed = self.planned(), self.committed()
        return planned is not None and (committed is None or planned > committed)

    def has_state(self) -> bool:
        """Return whether the query has state. The function of a keyed operator may keep none."""
        return (self.folder / "state").exists()

    def offsets(self, batch: int | None) -> Offsets:
        """Return the offset of each named source at the end of a batch. Sources without rows so far are missing.

        Raises FileNotFoundError if Spark has deleted the offsets of the batch.
        """
        return (
            {name: without_start_id(offset) for name, offset in self._raw(batch).items()} if batch is not None else {}
        )

    def names_by_start_id(self) -> dict[int, str]:
        """Return the source name of each start id in the last planned batch; empty if the ids are ambiguous."""
        planned = self.planned()
        raw = self._raw(planned) if planned is not None else {}
        names = {offset[START_ID]: name for name, offset in raw.items() if START_ID in offset}
        return names if len(names) == len(raw) else {}

    def copy_to(self, target: Path) -> Checkpoint:
        """Copy the checkpoint for another query. The original stays unchanged for a rollback."""
        copy_tree(self.folder, target)
        # Spark stops a query when another one with the same id starts.
        rewrite(target / "metadata", json.dumps({"id": str(uuid4())}).encode())
        # transformWithState stores the full path of its schema file.
        copy = Checkpoint(target)
        copy._replace_in_metadata(f"/{self.folder.name}/state/", f"/{target.name}/state/")
        return copy

    def repartition(self, spark: SparkSession, partitions: int) -> None:
        """Change the number of state partitions. The query must be stopped, and its last batch committed."""
        location = local_location(self.folder)
        if not _SPECIAL.search(location):
            repartition_state(spark, location, partitions)
            return
        # Spark 4.3 encodes the location twice here, and would not find a folder with a blank, '%', '#' or '?'.
        with tempfile.TemporaryDirectory(prefix="penstock-") as plain:
            link = Path(plain) / self.folder.name
            link.symlink_to(self.folder)
            repartition_state(spark, local_location(link), partitions)
            self._replace_in_metadata(f"{link}/state/", f"{self.folder}/state/")

    def _replace_in_metadata(self, before: str, after: str) -> None:
        """Replace a part of the paths of schema files, which transformWithState stores with its state."""
        for path in self.folder.glob("state/*/_metadata/**/*"):
            if path.is_file() and not path.name.endswith(".crc") and before.encode() in (content := path.read_bytes()):
                rewrite(path, content.replace(before.encode(), after.encode()))

    def _raw(self, batch: int) -> Offsets:
        lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
        offsets: Offsets = {}
        for line in lines[2:]:  # the version, the metadata of the batch, then one line per source
            name, separator, offset = line.partition(":")
            if separator and name.isidentifier() and offset.startswith("{"):
                offsets[name] = json.loads(offset)
        return offsets

    def _last(self, kind: str) -> int | None:
        folder = self.folder / kind
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
        return max(numbers, default=None)


def rewrite(path: Path, content: bytes) -> None:
    """Replace a file and delete its old checksum. The old file may be a hard link, so it is not edited."""
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    write_atomically(path, content)
