"""Folders belong to the runs that claimed them: real files, real locks, processes that race and processes that end."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.sinks import folder_output
from penstock.engines.spark.sinks.folder_output import FolderOutput
from penstock.engines.spark.sinks.ownership import Claim, OutputOwner, run_token


def output_of(
    folder: Path, run: Path, existing: str = "error", *, is_resumed: bool = False, sink: str = "out"
) -> FolderOutput:
    """Return the output of a sink as the engine creates it."""
    run.mkdir(parents=True, exist_ok=True)
    owner = OutputOwner(run=run_token(run), sink=sink, directory=str(run))
    return FolderOutput(
        folder, Claim(owner=owner, existing=existing, is_resumed=is_resumed, output=f"folder '{folder}'")
    )


def write(output: FolderOutput, run: Path, rows: str) -> None:
    """Publish one file as a sink does."""
    with output.owned():
        (output.folder / "_batches").mkdir(exist_ok=True)
        (output.folder / "_batches" / f"{run_token(run)}-q_g1").write_text("0")
        (output.folder / f"{run_token(run)}-q_g1.00000000-00000.parquet").write_text(rows)


def contents(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("*.parquet"))


def test_output_of_another_run_is_refused_with_the_alternatives(tmp_path: Path) -> None:
    first, second, folder = tmp_path / "first", tmp_path / "second", tmp_path / "data"
    output = output_of(folder, first)
    output.claim()
    write(output, first, "1")
    for step in (output_of(folder, second).check, output_of(folder, second).claim):
        with pytest.raises(PenstockError) as refused:
            step()
        assert str(refused.value) == (
            f"Sink 'out': folder '{folder}' already contains output of the run in '{first}'; give another folder, or "
            "declare the sink with existing='overwrite' to delete that output, or with existing='append' to keep it "
            "beside the new rows."
        )
    shutil.rmtree(first)
    with pytest.raises(PenstockError, match="already contains output of an earlier run in"):
        output_of(folder, first).claim()
    assert contents(folder) == ["1"]


def test_both_runs_continue_after_an_append(tmp_path: Path) -> None:
    first, second, folder = tmp_path / "first", tmp_path / "second", tmp_path / "data"
    for run, existing, rows in ((first, "error", "1"), (second, "append", "2")):
        output = output_of(folder, run, existing)
        output.claim()
        write(output, run, rows)
    for run in (first, second):
        output_of(folder, run, is_resumed=True).claim()
    assert contents(folder) == ["1", "2"]
    with pytest.raises(PenstockError, match="already contains output of the run in"):
        output_of(folder, tmp_path / "third").claim()


def test_overwrite_deletes_once_and_stops_the_run_that_was_overwritten(tmp_path: Path) -> None:
    first, second, folder = tmp_path / "first", tmp_path / "second", tmp_path / "data"
    before = output_of(folder, first)
    before.claim()
    write(before, first, "1")
    output = output_of(folder, second, "overwrite")
    output.check()
    assert contents(folder) == ["1"]  # a check changes nothing
    output.claim()
    assert contents(folder) == []
    write(output, second, "2")
    with pytest.raises(PenstockError, match=f"was overwritten by the run in '{second}' while this run was writing"):
        write(before, first, "1 again")
    for existing in ("error", "overwrite", "append"):
        with pytest.raises(PenstockError, match="the earlier rows of this run are gone; start a new run"):
            output_of(folder, first, existing, is_resumed=True).claim()
    output_of(folder, second, "overwrite", is_resumed=True).claim()
    assert contents(folder) == ["2"]


@pytest.mark.parametrize("name", ["part-00000.snappy.parquet", "day=1", "_spark_metadata", "notes.txt"])
def test_files_that_penstock_never_wrote(tmp_path: Path, name: str) -> None:
    run, folder = tmp_path / "run", tmp_path / "data"
    folder.mkdir()
    if name in ("day=1", "_spark_metadata"):
        (folder / name).mkdir()
        (folder / name / "0").write_text("")
    else:
        (folder / name).write_text("")
    (folder / "_SUCCESS").touch()
    with pytest.raises(PenstockError, match=f"already contains .*'{name}'; give another folder"):
        output_of(folder, run).claim()
    if name == "_spark_metadata":
        with pytest.raises(PenstockError, match="its readers ignore the files of other writers"):
            output_of(folder, run, "append").claim()
    else:
        output_of(folder, tmp_path / "appended", "append").check()
    if name == "notes.txt":
        with pytest.raises(PenstockError, match=r"would delete '.*notes.txt', which is not Parquet output"):
            output_of(folder, run, "overwrite").claim()
        assert (folder / name).exists()
    else:
        output_of(folder, run, "overwrite").claim()
        assert not (folder / name).exists()


def test_a_folder_of_hidden_files_is_empty(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".keep").touch()
    (tmp_path / "data" / "_SUCCESS").touch()
    output_of(tmp_path / "data", tmp_path / "run").claim()
    assert (tmp_path / "data" / ".keep").exists() and (tmp_path / "data" / "_SUCCESS").exists()
    (tmp_path / "data" / "rows.parquet").touch()
    with pytest.raises(PenstockError, match=r"already contains output of the run in .*run.; give another folder"):
        output_of(tmp_path / "data", tmp_path / "second").claim()


def test_overwrite_never_deletes_the_run_itself(tmp_path: Path) -> None:
    (tmp_path / "old.parquet").touch()
    with pytest.raises(PenstockError, match="would delete the run directory"):
        output_of(tmp_path, tmp_path / "runs" / "a", "overwrite").claim()


def test_a_copy_of_a_run_is_refused_and_a_moved_run_is_not(tmp_path: Path) -> None:
    original, copy, folder = tmp_path / "original", tmp_path / "copy", tmp_path / "data"
    output = output_of(folder, original)
    output.claim()
    write(output, original, "1")
    shutil.copytree(original, copy)
    (tmp_path / "link").symlink_to(original)
    with pytest.raises(PenstockError, match=f"belongs to the run in '{original}', of which '{copy}' is a copy"):
        output_of(folder, copy, is_resumed=True).claim()
    output_of(folder, tmp_path / "link", is_resumed=True).claim()
    output_of(folder, original, is_resumed=True).claim()
    original.rename(tmp_path / "moved")
    output_of(folder, tmp_path / "moved", is_resumed=True).claim()
    with pytest.raises(PenstockError, match=f"belongs to the run in '{tmp_path / 'moved'}'"):
        output_of(folder, copy, is_resumed=True).claim()


def test_two_sinks_of_one_run_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    output_of(tmp_path / "data", tmp_path / "run", sink="one").claim()
    with pytest.raises(PenstockError, match="already contains output of sink 'one' of this run"):
        output_of(tmp_path / "link", tmp_path / "run", sink="two").claim()


def test_a_run_that_wrote_nothing_and_was_deleted_leaves_the_folder_free(tmp_path: Path) -> None:
    first, folder = tmp_path / "first", tmp_path / "data"
    before = output_of(folder, first)
    before.claim()
    with pytest.raises(PenstockError, match="already contains output of the run in"):  # it may be about to write
        output_of(folder, tmp_path / "second").claim()
    shutil.rmtree(first)
    output_of(folder, tmp_path / "second").claim()
    with pytest.raises(PenstockError, match="was overwritten by"), before.owned():
        pass


def test_a_run_from_before_folders_had_owners_continues(tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "data"
    run.mkdir()
    (folder / "_batches").mkdir(parents=True)
    (folder / "_batches" / f"{run_token(run)}-q_g1").write_text("0")
    (folder / f"{run_token(run)}-q_g1.00000000-00000.parquet").write_text("1")
    output_of(folder, run, is_resumed=True).check()
    (folder / "other.parquet").write_text("2")
    with pytest.raises(PenstockError, match="also contains the file 'other.parquet'; remove that output, or declare"):
        output_of(folder, run, is_resumed=True).claim()
    output_of(folder, run, "append", is_resumed=True).claim()
    assert contents(folder) == ["1", "2"]


def _claim_at_once(barrier: Barrier, folder: Path, run: Path, existing: str, results: Any) -> None:
    output = output_of(folder, run, existing)
    barrier.wait()
    try:
        output.claim()
        results.put(run.name)
    except PenstockError:
        results.put(None)


@pytest.mark.parametrize(("existing", "winners"), [("error", 1), ("append", 6)])
def test_of_runs_that_claim_an_empty_folder_at_the_same_time_one_wins(
    tmp_path: Path, existing: str, winners: int
) -> None:
    fork = multiprocessing.get_context("fork")
    for attempt in range(5):
        barrier, results = fork.Barrier(6), fork.SimpleQueue()
        folder = tmp_path / f"data{attempt}"
        runs = [
            fork.Process(target=_claim_at_once, args=(barrier, folder, tmp_path / f"{attempt}-{n}", existing, results))
            for n in range(6)
        ]
        for process in runs:
            process.start()
        for process in runs:
            process.join()
        won = [name for name in (results.get() for _ in runs) if name is not None]
        assert len(won) == winners
        for name in won:
            output_of(folder, tmp_path / name, is_resumed=True).claim()


def _overwrite_and_end(folder: Path, run: Path) -> None:
    """End without a trace in the middle of the deletion, as after kill -9."""
    delete = folder_output._delete

    def delete_one(path: Path) -> None:
        delete(path)
        os._exit(9)

    folder_output._delete = delete_one
    output_of(folder, run, "overwrite").claim()


def test_an_overwrite_that_a_crash_interrupted_is_completed_by_the_same_run(tmp_path: Path) -> None:
    first, second, folder = tmp_path / "first", tmp_path / "second", tmp_path / "data"
    output = output_of(folder, first)
    output.claim()
    write(output, first, "1")
    for number in range(3):
        (folder / f"{number}.parquet").write_text("old")
    process = multiprocessing.get_context("fork").Process(target=_overwrite_and_end, args=(folder, second))
    process.start()
    process.join()
    assert process.exitcode == 9 and len(contents(folder)) == 3
    with pytest.raises(PenstockError):  # a part of its rows is deleted
        output_of(folder, first, is_resumed=True).claim()
    with pytest.raises(PenstockError):
        output_of(folder, tmp_path / "third").claim()
    output = output_of(folder, second, "overwrite")
    output.claim()
    assert contents(folder) == []
    write(output, second, "2")
    output_of(folder, second, "overwrite").claim()  # the same again before the plan is committed: nothing is left to do
    assert contents(folder) == ["2"]


def test_a_folder_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PenstockError, match=r"Sink 'out': folder '.*/file' cannot be used: Not a directory; give"):
        output_of(tmp_path / "file", tmp_path / "run").check()
