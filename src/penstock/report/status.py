"""What a run is doing, read from its store: as a value, and for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.report.table import seconds, table
from penstock.store import ErrorRecord, PlanChange, RunRecord, StoreReader, owner

SHOWN = 5  # of changes and errors, the last


class Status(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    state: str  # running, stopped, killed (it ended without a word), or not started
    run: RunRecord | None
    plan: Plan | None
    windows: int
    window: Window | None  # the last
    plan_changes: tuple[PlanChange, ...]  # the last few
    errors: tuple[ErrorRecord, ...]


def status(run_dir: Path, reader: StoreReader) -> Status:
    run = reader.last_run()
    last = reader.windows(last=1)
    running = owner(run_dir)
    if run is None:
        state = "not started"
    elif running is not None and running.pid == run.pid:
        state = "running"
    else:
        state = "killed" if run.stopped_s is None else "stopped"
    return Status(
        directory=str(run_dir),
        state=state,
        run=run,
        plan=reader.plan(),
        windows=last[0][0] if last else 0,
        window=last[0][1] if last else None,
        plan_changes=tuple(reader.plan_changes(last=SHOWN)),
        errors=tuple(reader.errors(last=SHOWN)),
    )


def follow_windows(run_dir: Path, reader: StoreReader, *, every_s: float = 0.3) -> Iterator[Window]:
    """The last window, then each new one, until the run has ended."""
    seen = max(0, status(run_dir, reader).windows - 1)
    alive = True
    while alive:
        alive = owner(run_dir) is not None  # looked at first, so that the last windows are not missed
        for number, window in reader.windows(after=seen):
            seen = number
            yield window
        if alive:
            time.sleep(every_s)


def drawn(shown: Status, *, with_window: bool = True) -> RenderableType:
    parts: list[RenderableType] = [Text(_headline(shown))]
    if shown.window is not None and with_window:
        parts.append(table(shown.window, shown.plan, name=shown.run.dataflow if shown.run else None))
    for change in shown.plan_changes:
        pause = "" if change.pause_s is None else f", paused {seconds(change.pause_s)}"
        style = "" if change.outcome == "ok" else "yellow"
        parts.append(Text(f"{_clock(change.at_s)} {change.asked}: {change.outcome} ({change.reason}{pause})", style))
    for error in shown.errors:
        parts.append(Text(f"{_clock(error.at_s)} error in {error.where}: {error.message}", "red"))
    return Group(*parts)


def _headline(shown: Status) -> str:
    if shown.run is None:
        return f"{shown.directory}: not started"
    run = shown.run
    about = f"{run.dataflow} ({run.description}) in {shown.directory}: {shown.state}"
    if shown.state == "running":
        starting = ", starting" if shown.plan is None and run.kind != "study" else ""
        return f"{about} as process {run.pid} since {_clock(run.started_s)}{starting}"
    if run.stopped_s is not None:
        about = f"{about} at {_clock(run.stopped_s)} ({run.stopped_why})"
    if run.kind == "watch":
        return about
    if run.kind == "study":
        return f"{about}; see 'penstock report {shown.directory}', or go on with 'penstock mst measure'"
    on = "" if run.master.startswith("local") else f" --master {run.master}"
    on = on if run.cluster is None else f" --cluster {run.cluster}"
    return f"{about}; resume with 'penstock run {run.flow_file} --at {shown.directory}{on}'"


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
