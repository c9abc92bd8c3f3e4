"""The division of a checkpoint: each of two or more queries continues with some of the states of one query.

Spark numbers the states of a query from 0. The number is in five places of a checkpoint: the name of the folder
`state/N`, the metadata of the state, the paths of schema files there, the ids of the latest files in each commit
(format 2), and the order of the nodes in the plan. A part of the checkpoint keeps its states in their order and numbers
them from 0 again. The files of a state do not contain its number and stay as they are.

All states of a query have the watermark of the query, less the delays of joins before them. A query that begins behind
a cut continues with the watermark that its first states had in the last batch.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.run_directory.checkpoint import Checkpoint, rewrite


def check_states(checkpoint: Checkpoint, states: int) -> None:
    """Raise PenstockError unless a committed checkpoint has exactly this number of states."""
    names = sorted(path.name for path in (checkpoint.folder / "state").glob("[0-9]*"))
    if checkpoint.committed() is not None and names != sorted(map(str, range(states))):
        raise PenstockError(
            f"The checkpoint '{checkpoint.folder.name}' has the states {', '.join(names) or 'none'}, but the plan of "
            f"its query has {states}, so that it cannot be divided; keep the operators with state in one query."
        )


def keep_states(checkpoint: Checkpoint, states: Sequence[int]) -> None:
    """Delete all states but these from a copied checkpoint, and number them from 0 in the same order."""
    numbers = {old: new for new, old in enumerate(sorted(states))}
    folder = checkpoint.folder / "state"
    for path in folder.glob("[0-9]*"):
        if int(path.name) not in numbers:
            shutil.rmtree(path)
    for old, new in numbers.items():  # ascending: a number becomes free before it is used
        if old != new and (folder / str(old)).exists():
            (folder / str(old)).rename(folder / str(new))
            _renumber_metadata(folder / str(new), old, new)
    for path in _log_files(checkpoint.folder / "commits"):
        commit = _LogFile(path)
        ids = commit.content.get("stateUniqueIds")
        if ids:
            kept = {str(new): ids[str(old)] for old, new in numbers.items() if str(old) in ids}
            commit.content["stateUniqueIds"] = kept
            commit.save()


def set_watermark(checkpoint: Checkpoint, watermark_ms: int) -> None:
    """Set the watermark with which a copied checkpoint continues."""
    last = checkpoint.committed()
    if last is None:
        return
    for folder, field in (("offsets", "batchWatermarkMs"), ("commits", "nextBatchWatermarkMs")):
        entry = _LogFile(checkpoint.folder / folder / str(last))
        entry.content[field] = watermark_ms
        entry.save()


def _renumber_metadata(state: Path, old: int, new: int) -> None:
    for path in (state / "_metadata").rglob("*"):
        if not path.is_file() or path.name.startswith("."):
            continue
        metadata = _LogFile(path)
        metadata.content["operatorInfo"]["operatorId"] = new
        for store in metadata.content["stateStoreInfo"]:
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [
                    f"/state/{new}/".join(location.rsplit(f"/state/{old}/", 1))
                    for location in store["stateSchemaFilePaths"]
                ]
        metadata.save()


def _log_files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.name.isdigit()]


class _LogFile:
    """A file of Spark's metadata log: the version, a JSON object, and more lines in the log of offsets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version, document, *self._more = path.read_text().split("\n", 2)
        self.content: dict[str, Any] = json.loads(document)

    def save(self) -> None:
        document = json.dumps(self.content, separators=(",", ":"))
        rewrite(self._path, "\n".join([self._version, document, *self._more]).encode())
