"""Log files of a run: the output of Spark's JVM, and the stack traces of failed queries.

PySpark starts one JVM per process and keeps it. Runs that follow one another in a process therefore share its log,
which is linked into the directory of each run.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
import time
from pathlib import Path

_FOLDER = "logs"
_ERRORS = "errors.log"
_KEPT_LOGS = 10  # logs of earlier starts
_ERROR = re.compile(r"exception|error|no such file|not found|not set", re.IGNORECASE)
_jvm_log: Path | None = None


def new_jvm_log(run: Path | None) -> Path | None:
    """Return the file for the output of the JVM that is about to start; None if the JVM has started already.

    The file is in the run directory or, as long as that is not known, in the folder for temporary files.
    """
    global _jvm_log
    if _has_jvm():
        return None
    if _jvm_log is not None:
        _jvm_log.unlink(missing_ok=True)  # made for a JVM that did not start
    folder = Path(tempfile.gettempdir()) if run is None else run / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    _jvm_log = (folder / f"spark-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log").absolute()
    _jvm_log.touch()
    if run is None:
        atexit.register(_jvm_log.unlink, missing_ok=True)
    return _jvm_log


def link_jvm_log(run: Path) -> None:
    """Make the log of the JVM available in the run directory.

    The JVM of a session that was created outside of Penstock has no log. It writes to the console.
    """
    if _jvm_log is None or not _jvm_log.exists() or not _has_jvm():
        return
    folder = run / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / _jvm_log.name
    if not link.exists():
        try:
            os.link(_jvm_log, link)
        except OSError:  # another file system
            atexit.unregister(_jvm_log.unlink)
            link.symlink_to(_jvm_log)
    for old in sorted(folder.glob("spark-*.log"))[:-_KEPT_LOGS]:
        old.unlink(missing_ok=True)


def first_error(log: Path | None) -> str:
    """Return the first line of a log that reports an error, for a JVM that ended while it started."""
    lines = log.read_text(errors="replace").splitlines() if log is not None else []
    errors = [line.strip() for line in lines if _ERROR.search(line)]
    return errors[0] if errors else "the JVM ended without a message"


def append_error(run: Path, title: str, text: str) -> None:
    """Append the complete text of an error, with its stack traces, to the errors of the run."""
    path = error_log(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", errors="replace") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {title}\n{text.rstrip()}\n\n")


def error_log(run: Path) -> Path:
    """Return the file with the stack traces of a run's failed queries, which may not exist."""
    return run / _FOLDER / _ERRORS


def _has_jvm() -> bool:
    if "pyspark" not in sys.modules:  # importing it takes half a second, which `penstock show` does not need
        return False
    from penstock.engines.spark.jvm import is_jvm_started

    return is_jvm_started()
