"""A checkpoint in the format of Spark 4.3 is divided: numbers of states, ids of their files, and watermarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow import PenstockError
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.division import check_states, keep_states, set_watermark

OFFSETS = 'v2\n{"batchWatermarkMs":900,"conf":{"spark.sql.shuffle.partitions":"2"}}\nbids_g1:{"row": 7}\n'


def checkpoint(folder: Path) -> Checkpoint:
    """Return a checkpoint with three states: two aggregates and, before them, a join. Batch 4 was committed last."""
    for batch in (3, 4):
        ids = {str(state): [[f"id-{state}-{part}-{batch}"] for part in (0, 1)] for state in range(3)}
        commit = {"nextBatchWatermarkMs": 1000, "stateUniqueIds": ids}
        write(folder / "commits" / str(batch), f"v2\n{json.dumps(commit)}")
        write(folder / "offsets" / str(batch), OFFSETS)
    for state, name in enumerate(("stateStoreSave", "stateStoreSave", "symmetricHashJoin")):
        info: dict[str, Any] = {"storeName": "default", "numPartitions": 2}
        if state == 2:
            info["stateSchemaFilePaths"] = [f"file:/runs/state/2/c/state/{state}/_stateSchema/default/0_x"]
        metadata = {"operatorInfo": {"operatorId": state, "operatorName": name}, "stateStoreInfo": [info]}
        write(folder / "state" / str(state) / "_metadata" / "metadata", f"v1\n{json.dumps(metadata)}")
        write(folder / "state" / str(state) / "_metadata" / ".metadata.crc", "checksum")
        write(folder / "state" / str(state) / "0" / "5_id.zip", f"rows of {state}")
    return Checkpoint(folder)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def content(path: Path) -> Any:
    return json.loads(path.read_text().splitlines()[1])


def test_the_states_that_are_kept_are_numbered_from_0(tmp_path: Path) -> None:
    part = checkpoint(tmp_path)
    keep_states(part, [1, 2])
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["0", "1"]
    assert [(tmp_path / "state" / str(state) / "0" / "5_id.zip").read_text() for state in (0, 1)] == [
        "rows of 1",
        "rows of 2",
    ]
    ids = content(tmp_path / "commits" / "4")["stateUniqueIds"]
    assert ids == {"0": [["id-1-0-4"], ["id-1-1-4"]], "1": [["id-2-0-4"], ["id-2-1-4"]]}
    join = content(tmp_path / "state" / "1" / "_metadata" / "metadata")
    assert join["operatorInfo"] == {"operatorId": 1, "operatorName": "symmetricHashJoin"}
    assert join["stateStoreInfo"][0]["stateSchemaFilePaths"] == [
        "file:/runs/state/2/c/state/1/_stateSchema/default/0_x"
    ]
    assert not (tmp_path / "state" / "1" / "_metadata" / ".metadata.crc").exists()  # it is not that of the new file


def test_a_part_continues_with_its_watermark(tmp_path: Path) -> None:
    part = checkpoint(tmp_path)
    set_watermark(part, 700)
    assert content(tmp_path / "offsets" / "4")["batchWatermarkMs"] == 700
    assert content(tmp_path / "commits" / "4")["nextBatchWatermarkMs"] == 700
    assert (tmp_path / "offsets" / "4").read_text().splitlines()[2] == 'bids_g1:{"row": 7}'


def test_a_checkpoint_with_other_states_is_not_divided(tmp_path: Path) -> None:
    check_states(checkpoint(tmp_path), 3)
    with pytest.raises(PenstockError, match="has the states 0, 1, 2, but the plan of its query has 2"):
        check_states(checkpoint(tmp_path), 2)
