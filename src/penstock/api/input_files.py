"""Arguments that are files: read completely, or refused with one clear error."""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError, PlanError
from penstock.dataflow.load import load
from penstock.plan.plan import Plan


def read_file(path: Path, content: str) -> bytes:
    """Return the bytes of a file; `content` says what it contains, for the error message."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PenstockError(f"Cannot read the {content} file '{path}': {error.strerror}. Check the path.") from None


def read_text(path: Path, content: str = "CSV") -> str:
    """Return the text of a file in UTF-8, with or without the byte-order mark that spreadsheets write."""
    try:
        return read_file(path, content).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PenstockError(f"The {content} file '{path}' is not text in UTF-8.") from None


def plan_from(plan: Plan | Path | str) -> Plan:
    """Return the plan itself, or the plan in a JSON file."""
    if isinstance(plan, Plan):
        return plan
    try:
        return Plan.from_json(read_file(Path(plan), "plan"))
    except PlanError as error:
        raise PlanError(f"{plan}: {error}") from None


def dataflow_from(flow: Dataflow | str) -> Dataflow:
    """Return the checked dataflow; a text is FILE[:name] or MODULE[:name]."""
    dataflow = load(flow) if isinstance(flow, str) else flow
    dataflow.check()
    return dataflow
