"""The size of the state in a checkpoint, from the files that Spark has committed.

A commit names the snapshot of each state partition by a unique id. The snapshot is an archive whose file `metadata`
contains the number of rows and the sizes of the data files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from penstock.engines.spark.run_directory.checkpoint import Checkpoint


class StateSize(NamedTuple):
    rows: int
    bytes: int


def state_size(checkpoint: Checkpoint) -> StateSize | None:
    """Return the rows and bytes of all states after the last committed batch; None if a partition has no snapshot.

    Spark may be configured to write the changes of a batch instead of a snapshot.
    """
    committed = checkpoint.committed()
    if committed is None or not checkpoint.has_state():
        return StateSize(0, 0)
    unique_ids = list(_unique_ids(checkpoint.folder / "commits" / str(committed)))
    if not unique_ids:
        return None
    snapshots = {
        path.stem.partition("_")[2]: path for path in (checkpoint.folder / "state").glob("[0-9]*/[0-9]*/**/*_*.zip")
    }
    rows = size = 0
    for unique_id in unique_ids:
        if unique_id not in snapshots:
            return None
        metadata = _metadata(snapshots[unique_id])
        rows += int(metadata["numKeys"])
        size += sum(int(file["sizeBytes"]) for file in metadata["sstFiles"])
    return StateSize(rows, size)


def _unique_ids(commit: Path) -> Iterator[str]:
    """Yield the id of the snapshot of each operator, partition, and store of a partition."""
    _, _, document = commit.read_text().partition("\n")
    for partitions in (json.loads(document or "{}").get("stateUniqueIds") or {}).values():
        for stores in partitions:
            yield from stores


def _metadata(snapshot: Path) -> dict[str, Any]:
    with ZipFile(snapshot) as archive:
        _, document = archive.read("metadata").decode().split("\n", 1)
    metadata: dict[str, Any] = json.loads(document)
    return metadata
