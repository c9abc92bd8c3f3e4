"""An archive of the classes of Spark's JVM. A later JVM maps it into memory instead of loading the classes again.

Loading classes takes half of the start of a run. The JVM of the first run writes the archive when it ends, in the
background. The archive belongs to one JDK and one installation of Spark. A JVM ignores an archive that does not fit.
Options of the user about class data sharing, such as -Xshare:off, switch this off.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import time
from collections.abc import Mapping
from pathlib import Path

_MAGIC = 0xF00BABA8  # at the begin of an archive; the JVM writes it last
_OLDEST_JDK = 13  # the first one that writes an archive when it ends
_UNUSED_S = 30 * 86_400.0  # files that were not used for so long are deleted
_WRITING_S = 3_600.0  # a JVM does not take so long to write one
_OPTIONS_OF_USERS = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive")
_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"

_written: Path | None = None  # the archive that the JVM of this process writes when it ends


def archive_options(
    options: str, spark_home: Path, environment: Mapping[str, str] = os.environ, *, may_write: bool = True
) -> str:
    """Return options by which a JVM uses an archive of its classes, or writes one when it ends; "" if it cannot.

    options: the options that the JVM has already.
    may_write: the JVM will run queries. Without them, the archive would lack most classes.
    """
    global _written
    if any(_OPTIONS_OF_USERS.search(text) for text in (options, *(environment.get(name, "") for name in _VARIABLES))):
        return ""
    release = _jdk_release(environment)
    try:
        folder = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "spark-classes"
        if release is None or re.search(r"\s", str(folder)):
            return ""
        jars = (spark_home / "jars").stat().st_mtime_ns
        name = hashlib.sha256(f"{release} {spark_home} {jars}".encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / f"{name}.jsa"
        _publish(folder, archive)
        if archive.exists():
            os.utime(archive)
            return f"-XX:SharedArchiveFile={archive} {_QUIET}"
    except (OSError, RuntimeError):  # no Spark there, no home, or no cache
        return ""
    if not may_write:
        return ""
    _written = folder / f"{name}-{os.getpid()}.new"
    return f"-XX:ArchiveClassesAtExit={_written} {_QUIET}"


def keep_archive() -> None:
    """Use the archive that the JVM of this process writes in later starts, because it has run queries.

    The archive of a start that failed lacks most classes. It is deleted.
    """
    if _written is not None:
        _mark(_written).touch()


def _mark(archive: Path) -> Path:
    return archive.with_suffix(".keep")


def _publish(folder: Path, archive: Path) -> None:
    """Use an archive that an earlier JVM has completed, and delete what is not used."""
    now = time.time()
    for new in folder.glob(f"{archive.stem}-*.new"):
        if _is_complete(new):
            if _mark(new).exists():
                new.replace(archive)
            new.unlink(missing_ok=True)
            _mark(new).unlink(missing_ok=True)
    for file in folder.iterdir():
        unused_s = now - file.stat().st_mtime
        if unused_s > (_WRITING_S if file.suffix == ".new" else _UNUSED_S):
            file.unlink(missing_ok=True)


def _is_complete(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(4) == struct.pack("=I", _MAGIC)


def _jdk_release(environment: Mapping[str, str]) -> str | None:
    """Return the text that describes the JDK that spark-submit uses; None if it is unknown or too old."""
    home = environment.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        return None
    try:
        release = (Path(java).resolve().parents[1] / "release").read_text()
    except (OSError, IndexError):
        return None
    version = re.search(r'JAVA_VERSION="(\d+)', release)
    return release if version is not None and int(version[1]) >= _OLDEST_JDK else None
