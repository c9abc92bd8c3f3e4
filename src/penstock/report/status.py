"""The status of a run, read from its store, as a value and as text."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.report.costs import plan_periods
from penstock.report.formatting import plural, seconds
from penstock.report.live_table import window_table
from penstock.report.predicted import PredictedValue, predicted_values
from penstock.store import DecisionRecord, ErrorRecord, PlanChange, RunStart, StoreReader, owner

_LONG = 60  # characters of a text that is shown
LATEST = 5  # number of plan changes and errors in a status


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run with its latest window, plan changes and errors."""

    directory: str
    state: str  # running, stopped, killed or not started
    run: RunStart | None
    plan: Plan | None
    windows: int  # number of windows
    trials: int  # number of trials that have ended, only of a study
    study: str | None  # the kind of these trials: "mst", "mst paced" or "profile"
    window: Window | None  # the latest
    plan_changes: tuple[PlanChange, ...]  # the latest
    errors: tuple[ErrorRecord, ...]  # the latest
    decision: DecisionRecord | None = None  # the latest, with the memory of the policy
    slot_hours: float | None = None  # slots held x time; None: no plan has been in force
    money: float | None = None  # their cost; None: the run has no price
    predicted: tuple[PredictedValue, ...] = ()  # beside what was observed; empty: no prediction for the plan


def run_status(run_dir: Path, reader: StoreReader) -> RunStatus:
    run = reader.last_run()
    last = reader.windows(last=1)
    trials = reader.trials() if run is not None and run.kind == "study" else []
    running = owner(run_dir)
    if run is None:
        state = "not started"
    elif running is not None and running.pid == run.pid:
        state = "running"
    else:
        state = "killed" if run.stopped_s is None else "stopped"
    decisions = reader.decisions(last=1)
    slot_hours = _slot_hours(reader, until_s=time.time() if state == "running" else None)
    price = None if run is None else run.price_per_slot_hour
    return RunStatus(
        directory=str(run_dir),
        state=state,
        run=run,
        plan=reader.plan(),
        windows=last[0][0] if last else 0,
        trials=len(trials),
        study=trials[-1].study if trials else None,
        window=last[0][1] if last else None,
        plan_changes=tuple(reader.plan_changes(last=LATEST)),
        errors=tuple(reader.errors(last=LATEST)),
        decision=decisions[-1][1] if decisions else None,
        slot_hours=slot_hours,
        predicted=predicted_values(reader, reader.plan()),
        money=None if price is None or slot_hours is None else price * slot_hours,
    )


def _slot_hours(reader: StoreReader, *, until_s: float | None) -> float | None:
    """Return the slots of all plans times the hours for which they were in force."""
    if until_s is None:
        last = reader.windows(last=1)
        until_s = last[0][1].end_s if last else 0.0
    periods = plan_periods(reader.runs(), reader.plan_changes(), until_s=until_s)
    return sum(period.length_s * period.plan.slots for period in periods) / 3600.0 if periods else None


def follow_windows(run_dir: Path, reader: StoreReader, *, poll_s: float = 0.3) -> Iterator[Window]:
    """Yield the latest window, then each new one, until the run has ended."""
    seen = max(0, run_status(run_dir, reader).windows - 1)
    alive = True
    while alive:
        alive = owner(run_dir) is not None  # Check before reading, so that the last windows are not missed.
        for number, window in reader.windows(after=seen):
            seen = number
            yield window
        if alive:
            time.sleep(poll_s)


def status_text(status: RunStatus, *, with_window: bool = True) -> RenderableType:
    """Return the status for a terminal; `with_window` includes the table of the latest window."""
    parts: list[RenderableType] = [Text(_headline(status))]
    if status.run is not None and status.run.startup_s:
        parts.append(Text(startup_text(status.run)))
    if status.window is not None and with_window:
        parts.append(window_table(status.window, status.plan, name=status.run.dataflow if status.run else None))
    if status.money is not None and status.run is not None:
        parts.append(Text(_cost_text(status)))
    if status.predicted:
        parts.append(_prediction_table(status.predicted))
    if status.decision is not None:
        parts += [Text(line) for line in _policy_lines(status.decision)]
    for change in status.plan_changes:
        pause = "" if change.pause_s is None else f", paused {seconds(change.pause_s)}"
        style = "" if change.outcome == "ok" else "yellow"
        parts.append(Text(f"{_clock(change.at_s)} {change.asked}: {change.outcome} ({change.reason}{pause})", style))
    for error in status.errors:
        parts.append(Text(f"{_clock(error.at_s)} error in {error.where}: {error.message}", "red"))
    return Group(*parts)


def _prediction_table(values: Sequence[PredictedValue]) -> Table:
    table = Table(title="prediction for this plan", title_justify="left")
    for column in ("", "predicted", "observed"):
        table.add_column(column, justify="right" if column else "left")
    for value in values:
        table.add_row(*value.texts)
    return table


def _cost_text(status: RunStatus) -> str:
    assert status.run is not None
    return (
        f"cost: {status.money:.4g} for {status.slot_hours:.4g} slot-hours at {status.run.price_per_slot_hour:g} per "
        "slot and hour"
    )


def _policy_lines(decision: DecisionRecord) -> list[str]:
    """Return the latest decision, and what the policy remembers."""
    lines = [f"policy {decision.policy}: {decision.kind}, {decision.reason_code}: {decision.reason}"]
    if decision.memory:
        lines.append(f"policy {decision.policy} remembers: {memory_text(decision.memory)}")
    return lines


def memory_text(memory: Mapping[str, object]) -> str:
    """Return the memory of a policy in one line; long values are counted.

    >>> memory_text({"drs.correction": 1.23456, "organic.step": "split", "auto.levels": {"low": 1, "high": 2}})
    'auto.levels: 2 entries, drs.correction: 1.235, organic.step: split'
    """
    return ", ".join(f"{name}: {_value_text(memory[name])}" for name in sorted(memory))


def _value_text(value: object) -> str:
    match value:
        case bool() | int():
            return str(value)
        case float():
            return f"{value:.4g}"
        case str():
            return value if len(value) <= _LONG else f"{len(value):,} characters"
        case Mapping() | Sequence():
            return plural(len(value), "entry", "entries")
        case _:
            return str(value)


def _headline(status: RunStatus) -> str:
    if status.run is None:
        return f"{status.directory}: not started"
    run = status.run
    headline = f"{run.dataflow} ({run.description}) in {status.directory}: {status.state}"
    if status.state == "running":
        starting = ", starting" if status.plan is None and run.kind != "study" else ""
        return f"{headline} as process {run.pid} since {_clock(run.started_s)}{starting}"
    if run.stopped_s is not None:
        headline = f"{headline} at {_clock(run.stopped_s)} ({run.stop_reason})"
    if run.kind == "watch":
        return headline
    if run.kind == "study":
        command = "profile" if status.study == "profile" else "mst measure"
        return f"{headline}; see 'penstock report {status.directory}', or continue with 'penstock {command}'"
    if run.flow_file == "-":
        return f"{headline}; resume it with the Python program that declares it"
    where = "" if run.master.startswith("local") else f" --master {run.master}"
    where = where if run.cluster is None else f" --cluster {run.cluster}"
    return f"{headline}; resume with 'penstock run {shlex.quote(run.flow_file)} --at {status.directory}{where}'"


def startup_text(run: RunStart) -> str:
    """Return the duration of a start and of its phases.

    >>> run = RunStart(dataflow="wc", flow_file="wc.py", pid=1, master="local[2]", started_s=0.0)
    >>> startup_text(msgspec.structs.replace(run, startup_s={"Spark session": 3.0, "queries": 1.5}))
    'started in 4.5 s: Spark session 3 s, queries 1.5 s'
    """
    phases = ", ".join(f"{phase} {seconds(phase_s)}" for phase, phase_s in run.startup_s.items())
    return f"started in {seconds(sum(run.startup_s.values()))}: {phases}"


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
