"""Spark sessions that the user created, and the session that a dataflow file needs while it is loaded."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.child_process import stderr_of_children
from penstock.dataflow.code_location import failing_line
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark import early_jvm
from penstock.engines.spark.log_files import new_jvm_log

_PYTHON = "PYSPARK_PYTHON"  # the interpreter of Python workers


def active_session() -> Any:
    """Return the active Spark session of this thread, or None; pyspark is not imported for this."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


class SessionOnDemand:
    """Starts a session when a dataflow file needs one while it is loaded; `load` then tries again.

    Columns such as `F.col("n") > 500` and functions such as `@F.udf("long")` exist only in a session. A file that
    contains them outside of functions needs Spark before the dataflow is known.
    """

    def __init__(self, master: str = "local[1]", confs: dict[str, str] | None = None) -> None:
        self._master, self._confs = master, confs
        self._set_python = False
        self.session: Any = None  # None until it was needed

    def __call__(self, error: Exception) -> bool:
        if self.session is not None or not _lacks_session(error):
            return False
        from penstock.engines.spark.session import session

        if self._set_python:  # a session of Penstock has an interpreter that starts faster
            os.environ.pop(_PYTHON, None)
        try:
            self.session = session(self._master, "penstock", self._confs)
        except PenstockError as refusal:
            line = failing_line(error)
            where = "" if line is None else f"'{line.filename}', line {line.lineno}: {line.line}: "
            raise PenstockError(
                f"{where}This statement needs Spark when the file is loaded; move it into a function. {refusal}"
            ) from None
        return True

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Prepare for a session that a dataflow file creates within this context.

        Its output belongs in the log of the run. Its workers must use this Python, where Penstock and the packages of
        the file are installed; the default of PySpark is `python3`.
        """
        log = early_jvm.waiting_log() or new_jvm_log(None)
        if log is None:  # a JVM is running already
            yield
            return
        self._set_python = _PYTHON not in os.environ
        os.environ.setdefault(_PYTHON, sys.executable)
        try:
            with stderr_of_children(log):
                yield
        finally:
            if self._set_python and self.session is None:
                os.environ.pop(_PYTHON, None)

    def stop(self) -> None:
        if self.session is not None:
            from penstock.engines.spark.session import end

            end(self.session)
            self.session = None


def _lacks_session(error: Exception) -> bool:
    """Return whether PySpark raised an error because this process has no session; some of these errors have no text."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or not pyspark.__file__:
        return False
    from penstock.engines.spark.jvm import running_master

    frames = traceback.extract_tb(error.__traceback__)
    raised_by_spark = bool(frames) and Path(frames[-1].filename).is_relative_to(Path(pyspark.__file__).parent)
    return raised_by_spark and running_master() is None


def prepared_session(spark: Any) -> Any:
    """Return a new session of the same application, with the user's SQL properties and those that Penstock requires.

    The engine changes properties of its session, so it never gets the user's own session. Temporary views of the
    user's session are not visible in the new one.
    """
    from penstock.engines.spark.properties import CONFS
    from penstock.engines.spark.session import silence_loggers

    required = {name: value for name, value in CONFS.items() if name.startswith("spark.sql.")}
    silence_loggers(spark)
    session = spark.newSession()
    for name, value in (spark.conf.getAll | required).items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def missing_settings(spark: Any) -> str | None:
    """Return a sentence about useful settings that must be given before a session starts; None if it has them all."""
    from penstock.engines.spark.properties import CONFS, LOCAL_DISK

    options = "spark.driver.extraJavaOptions"
    useful = {
        "spark.scheduler.mode": (CONFS["spark.scheduler.mode"], "a slow query does not delay the others"),
        options: (CONFS[options], "long dataflows do not exhaust the stack"),
        **{name: (value, "checkpoints on a local disk cost half the time") for name, value in LOCAL_DISK.items()},
    }
    given = dict(spark.sparkContext.getConf().getAll()) | spark.conf.getAll
    has_stack_size = "-Xss" in given.get(options, "")
    missing = [
        f"{name}={value} ({benefit})"
        for name, (value, benefit) in useful.items()
        if given.get(name) != value and not (name == options and has_stack_size)
    ]
    if not missing:
        return None
    return (
        f"The Spark session lacks {', '.join(missing)}; set this with SparkSession.builder.config before the session "
        "starts, or let Penstock create the session."
    )
