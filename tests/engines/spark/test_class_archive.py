"""The archive of the classes of Spark's JVM, with files in the place of those of a JVM."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.spark import class_archive
from penstock.engines.spark.class_archive import archive_options, keep_archive

COMPLETE = struct.pack("=I", 0xF00BABA8) + b"classes"  # as a JVM writes it; the first bytes are zero until the end


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(class_archive, "_written", None)
    yield


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


def machine(tmp_path: Path, jdk: str = "17.0.15", **variables: str) -> dict[str, str]:
    home = tmp_path / jdk
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{jdk}"\n')
    return {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")} | variables


def written(options: str) -> Path:
    (path,) = (word.partition("=")[2] for word in options.split() if word.startswith("-XX:ArchiveClassesAtExit="))
    return Path(path)


def used(options: str) -> Path | None:
    paths = [word.partition("=")[2] for word in options.split() if word.startswith("-XX:SharedArchiveFile=")]
    return Path(paths[0]) if paths else None


def test_the_archive_of_the_first_run_is_used_by_the_next_one(tmp_path: Path, spark: Path) -> None:
    here = machine(tmp_path)
    first = written(archive_options("-Xss16m", spark, here))
    keep_archive()
    first.write_bytes(bytes(8))  # the JVM has not completed it
    assert used(archive_options("", spark, here)) is None
    first.write_bytes(COMPLETE)
    archive = used(archive_options("", spark, here))
    assert archive is not None and archive.read_bytes() == COMPLETE
    assert list(archive.parent.iterdir()) == [archive]
    assert used(archive_options("", spark, here)) == archive


def test_the_archive_of_a_start_that_failed_is_deleted(tmp_path: Path, spark: Path) -> None:
    here = machine(tmp_path)
    first = written(archive_options("", spark, here))
    first.write_bytes(COMPLETE)
    assert used(archive_options("", spark, here)) is None and not first.exists()


def test_another_jdk_or_installation_has_another_archive(tmp_path: Path, spark: Path) -> None:
    here = machine(tmp_path)
    first = written(archive_options("", spark, here))
    keep_archive()
    first.write_bytes(COMPLETE)
    (tmp_path / "other" / "jars").mkdir(parents=True)
    assert used(archive_options("", tmp_path / "other", here)) is None
    assert used(archive_options("", spark, machine(tmp_path, "21.0.1"))) is None
    os.utime(spark / "jars", (0, 0))  # another version was installed there
    assert used(archive_options("", spark, here)) is None


@pytest.mark.parametrize(
    ("options", "variables"),
    [("-Xshare:off", {}), ("", {"JDK_JAVA_OPTIONS": "-XX:SharedArchiveFile=own.jsa"}), ("", {"JAVA_HOME": "/missing"})],
)
def test_options_of_users_have_precedence(tmp_path: Path, spark: Path, options: str, variables: dict[str, str]) -> None:
    assert archive_options(options, spark, machine(tmp_path, **variables)) == ""


def test_a_jvm_that_cannot_write_archives_has_no_option(tmp_path: Path, spark: Path) -> None:
    assert archive_options("", spark, machine(tmp_path, "11.0.2")) == ""
    assert archive_options("", tmp_path / "missing", machine(tmp_path)) == ""
    assert archive_options("", spark, machine(tmp_path, XDG_CACHE_HOME=str(tmp_path / "a b"))) == ""
    (tmp_path / "file").touch()
    assert archive_options("", spark, machine(tmp_path, XDG_CACHE_HOME=str(tmp_path / "file"))) == ""


def test_a_jvm_without_queries_writes_no_archive_but_uses_one(tmp_path: Path, spark: Path) -> None:
    here = machine(tmp_path)
    assert archive_options("", spark, here, may_write=False) == ""
    first = written(archive_options("", spark, here))
    keep_archive()
    first.write_bytes(COMPLETE)
    assert used(archive_options("", spark, here, may_write=False)) is not None


def test_unused_files_are_deleted(tmp_path: Path, spark: Path) -> None:
    here = machine(tmp_path)
    folder = written(archive_options("", spark, here)).parent
    for name, age_s in (("a.jsa", 31 * 86_400), ("b.jsa", 86_400), ("c-1.new", 7_200), ("c-2.new", 60)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age_s,) * 2)
    archive_options("", spark, here)
    assert sorted(path.name for path in folder.iterdir()) == ["b.jsa", "c-2.new"]
