"""A check of the run directory from a task: on the same disk, on another disk, and on a copy."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest

from penstock.engines.spark.executors.directory_access import DirectoryProbe


def probe_on(disk: Path, probe: DirectoryProbe) -> DirectoryProbe:
    """Return the check as a task sees it on a machine that has another disk under the same path."""
    there = copy.copy(probe)
    there._folder = disk / "access"
    return there


def test_a_shared_directory_passes_and_nothing_is_left_there(tmp_path: Path) -> None:
    probe = DirectoryProbe(tmp_path / "run")
    assert probe.try_from_task("7") is None and probe.confirm_in_driver("7") is None
    assert probe.confirm_in_driver("8") == "a file that it wrote there is not visible to the driver"
    probe.close()
    assert list((tmp_path / "run").iterdir()) == []


def test_another_disk_is_detected(tmp_path: Path) -> None:
    probe = DirectoryProbe(tmp_path / "run")
    other = probe_on(tmp_path / "other", probe)
    assert other.try_from_task("7") == "a file that the driver wrote there is not visible to it"
    assert not (tmp_path / "other").exists()  # a check creates no folder on the wrong disk
    (tmp_path / "other" / "access").mkdir(parents=True)
    assert other.try_from_task("7") == "a file that the driver wrote there is not visible to it"


def test_a_copy_of_the_directory_is_detected_by_the_driver(tmp_path: Path) -> None:
    probe = DirectoryProbe(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    assert probe_on(tmp_path / "other", probe).try_from_task("7") is None
    assert probe.confirm_in_driver("7") == "a file that it wrote there is not visible to the driver"


def test_a_folder_that_cannot_be_written_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = DirectoryProbe(tmp_path / "run")
    monkeypatch.setattr(probe, "_file_of", lambda task: Path("/proc") / task)  # root may write everywhere else
    assert str(probe.try_from_task("7")).startswith("a file cannot be written there (")
