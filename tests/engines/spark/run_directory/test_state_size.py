"""The size of a state, from files as Spark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.state_size import state_size


def commit(at: Path, batch: int, unique_ids: dict[str, list[list[str]]]) -> None:
    (at / "commits").mkdir(exist_ok=True)
    (at / "commits" / str(batch)).write_text(f"v2\n{json.dumps({'stateUniqueIds': unique_ids})}")


def snapshot(folder: Path, name: str, rows: int, sizes: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"sstFiles": [{"localFileName": "1.sst", "sizeBytes": size} for size in sizes], "numKeys": rows}
    with ZipFile(folder / f"{name}.zip", "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps(document)}")


def test_the_snapshots_of_the_last_commit_count(tmp_path: Path) -> None:
    """Two operators with state. The first has two partitions, and the second one partition with two stores (a join)."""
    state = tmp_path / "state"
    snapshot(state / "0" / "0", "1_old", 900, [9_000])
    snapshot(state / "0" / "0", "2_a", 10, [100, 50])
    snapshot(state / "0" / "1", "2_b", 20, [200])
    snapshot(state / "1" / "0" / "left", "2_c", 3, [30])
    snapshot(state / "1" / "0" / "right", "2_d", 4, [])
    commit(tmp_path, 0, {"0": [["old"]]})
    commit(tmp_path, 1, {"0": [["a"], ["b"]], "1": [["c", "d"]]})
    assert state_size(Checkpoint(tmp_path)) == (10 + 20 + 3 + 4, 100 + 50 + 200 + 30)


def test_a_partition_without_a_snapshot_has_an_unknown_size(tmp_path: Path) -> None:
    snapshot(tmp_path / "state" / "0" / "0", "2_a", 10, [100])
    commit(tmp_path, 1, {"0": [["a"], ["b"]]})
    assert state_size(Checkpoint(tmp_path)) is None
    commit(tmp_path, 2, {})
    assert state_size(Checkpoint(tmp_path)) is None


def test_a_query_without_state_has_none(tmp_path: Path) -> None:
    assert state_size(Checkpoint(tmp_path)) == (0, 0)
    commit(tmp_path, 0, {})
    assert state_size(Checkpoint(tmp_path)) == (0, 0)
