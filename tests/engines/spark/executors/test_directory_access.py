"""A check of the folders of a run from a task: on the same disk, on another disk, and on a copy."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest

from penstock.engines.spark.executors.directory_access import DirectoryProbe

UNSEEN_BY_TASK = "a file that the driver wrote there is not visible to it"
UNSEEN_BY_DRIVER = "a file that it wrote there is not visible to the driver"


def probe_on(disk: Path, probe: DirectoryProbe) -> DirectoryProbe:
    """Return the check as a task sees it on a machine that has another disk under the path of the last folder."""
    there = copy.copy(probe)
    there._folders = [*probe._folders[:-1], disk / ".access"]
    return there


def test_shared_folders_pass_and_nothing_is_left_there(tmp_path: Path) -> None:
    probe = DirectoryProbe(tmp_path / "run", [tmp_path / "out"])
    assert probe.try_from_task("7") is None and probe.confirm_in_driver("7") is None
    assert probe.confirm_in_driver("8") == f"the run directory '{tmp_path / 'run'}': {UNSEEN_BY_DRIVER}"
    probe.close()
    assert [*(tmp_path / "run").iterdir(), *(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize("outputs", [0, 1, 2])
def test_another_disk_is_detected_and_named(outputs: int, tmp_path: Path) -> None:
    folders = [tmp_path / f"out{number}" for number in range(outputs)]
    probe = DirectoryProbe(tmp_path / "run", folders)
    place = f"the output folder '{folders[-1]}'" if folders else f"the run directory '{tmp_path / 'run'}'"
    other = probe_on(tmp_path / "other", probe)
    assert other.try_from_task("7") == f"{place}: {UNSEEN_BY_TASK}"
    assert not (tmp_path / "other").exists()  # a check creates no folder on the wrong disk
    (tmp_path / "other" / ".access").mkdir(parents=True)
    assert other.try_from_task("7") == f"{place}: {UNSEEN_BY_TASK}"


def test_a_copy_of_a_folder_is_detected_by_the_driver(tmp_path: Path) -> None:
    probe = DirectoryProbe(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    assert probe_on(tmp_path / "other", probe).try_from_task("7") is None
    assert probe.confirm_in_driver("7") == f"the run directory '{tmp_path / 'run'}': {UNSEEN_BY_DRIVER}"


def test_a_folder_that_cannot_be_written_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = DirectoryProbe(tmp_path / "run")
    monkeypatch.setattr(probe, "_file_of", lambda folder, task: Path("/proc") / task)  # root may write everywhere else
    place = f"the run directory '{tmp_path / 'run'}'"
    assert str(probe.try_from_task("7")).startswith(f"{place}: a file cannot be written there (")
