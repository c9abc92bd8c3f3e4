"""Starts the JVM of a session before the session is needed.

The start of a JVM takes some seconds. Meanwhile this process imports its modules and loads the dataflow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from penstock.engines.spark.jvm_process import JvmEndedError, JvmProcess, is_given_a_jvm
from penstock.engines.spark.log_files import new_jvm_log
from penstock.engines.spark.properties import jvm_environment, session_properties

_CREATES_SESSION = re.compile(r"\.getOrCreate\(|\bSparkContext\(|\bSparkSession\(|\.newSession\(")


@dataclass(frozen=True, slots=True)
class _Early:
    jvm: JvmProcess
    properties: dict[str, str]


_early: _Early | None = None


def start(master: str, confs: dict[str, str] | None) -> None:
    """Start the JVM of a session with this master and these properties, unless this process has a JVM."""
    global _early
    if _early is not None or is_given_a_jvm():
        return
    log = new_jvm_log(None)
    if log is None:  # a JVM is running
        return
    properties = session_properties(master, "penstock", confs)
    try:
        _early = _Early(JvmProcess(properties, jvm_environment(master), log, is_for_run=True), properties)
    except JvmEndedError:  # the session reports the reason
        log.unlink(missing_ok=True)


def waiting_log() -> Path | None:
    """Return the log of the JVM that waits to be used, or None if there is none."""
    return None if _early is None else _early.jvm.log


def take(properties: dict[str, str]) -> JvmProcess | None:
    """Return the JVM for a session with these properties, or None if it was not started early."""
    global _early
    if _early is not None and _without_name(_early.properties) != _without_name(properties):
        discard()
    early, _early = _early, None
    return None if early is None else early.jvm


def discard() -> None:
    """End the JVM that was started early and is not used."""
    global _early
    if _early is not None:
        _early.jvm.end()
        _early.jvm.log.unlink(missing_ok=True)
        _early = None


def creates_session(file: Path) -> bool:
    """Return whether the text of a dataflow file suggests that it creates its own session, which starts its own JVM."""
    try:
        return _CREATES_SESSION.search(file.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:  # the dataflow is in a module, or does not exist
        return False


def _without_name(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name != "spark.app.name"}
