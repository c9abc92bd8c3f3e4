"""Stores of invented runs with all parts that a report can show."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from penstock.measure.window import Latency, Window
from penstock.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import DecisionRecord, ErrorRecord, OperatorDeclaration, PlanChange, RunStart, Store
from tests.support.sample_windows import operator, window

START_S = 1_700_000_000.0
HOSTILE = "<script>alert('x')</script>\"&<img src=x onerror=alert(1)>"


def plan(dataflow: str = "wordcount", *, count: int = 2, slots: int = 2) -> Plan:
    return Plan(dataflow=dataflow, cuts=frozenset({"split"}), replicas={"split": 1, "count": count}, slots=slots)


def chain(*names: str) -> tuple[OperatorDeclaration, ...]:
    kinds = {0: "source", len(names) - 1: "sink"}
    return tuple(
        OperatorDeclaration(operator=name, kind=kinds.get(number, "stateless"), inputs=names[number - 1 : number])
        for number, name in enumerate(names)
    )


def window_at(number: int, *, window_s: float = 2.0, latency_s: float = 0.5, start_s: float = START_S) -> Window:
    rows = round(window_s * (1500 + 1000 * math.sin(number / 200)))
    names = ("lines", "split", "count", "out")
    known = {"rows_in": rows, "rows_out": rows, "replicas": 2, "seconds_per_row": 2e-4, "utilisation": 0.3}
    operators = [operator(name, **known) for name in names]
    operators[0] = operator("lines", rows_in=rows, rows_out=rows, backlog_rows=rows // 3)
    return msgspec.structs.replace(
        window(),
        start_s=start_s + window_s * number,
        end_s=start_s + window_s * (number + 1),
        external_rows_per_s=rows / window_s,
        operators=tuple(operators),
        latency=Latency(rows=rows, mean_s=latency_s, p50_s=latency_s, p95_s=2 * latency_s, p99_s=3 * latency_s),
    )


def decided(at_s: float, **changes: object) -> DecisionRecord:
    hold = DecisionRecord(
        at_s=at_s,
        window=1,
        policy="drs",
        mode="active",
        kind="hold",
        reason_code="within-target",
        reason="mean latency 0.5 s with 2 slots is within 0.4 to 1 s",
        inputs={},
        binding=None,
        alternatives=(),
        needs_slots=None,
        old=plan(),
        new=None,
        before=PlanOutcome(slots=2, latency_s=0.5),
        expected=None,
    )
    return msgspec.structs.replace(hold, **changes)


def changed(at_s: float, verdict: str, *, count: int) -> tuple[DecisionRecord, PlanChange]:
    """Return a decision that was applied, and its plan change."""
    new = plan(count=count)
    decision = decided(
        at_s,
        kind="change",
        reason_code="shortage",
        reason="mean latency 1.4 s with 2 slots; expected with 4 slots: 0.6 s",
        new=new,
        expected=PlanOutcome(slots=4, latency_s=0.6),
        observed=PlanOutcome(slots=4, latency_s=0.7),
        applied="ok",
        pause_s=1.2,
        verdict=verdict,
    )
    asked = "drs: shortage"
    reason = f"count: 2 -> {count} replicas"
    return decision, PlanChange(at_s=at_s, asked=asked, outcome="ok", reason=reason, old=plan(), new=new, pause_s=1.2)


def eventful(at: Path, *, name: str = "wordcount", windows: int = 60) -> None:
    """Write two starts, kept, rolled back and refused changes, a recommendation and errors; all names are `name`."""
    declared = (
        *chain("lines", "split", "count", "out"),
        OperatorDeclaration(operator=name, kind="keyed", inputs=("split", "count"), feedback=("count",)),
    )
    extra = operator(name, replicas=4, rows_in=3000, rows_out=10, seconds_per_row=0.0021, utilisation=0.93)
    run = RunStart(dataflow=name, flow_file=f"{name}.py", pid=1, master="local[2]", started_s=START_S)
    with Store(at) as store:
        store.begin_run(run)
        store.run_started(plan(name), declared)
        for number in range(windows):
            window = window_at(number, latency_s=0.5 + (number == 20) * 4)
            store.add_window(msgspec.structs.replace(window, operators=(*window.operators, extra)))
            if number == 10:
                decision, change = changed(window.end_s, "kept", count=4)
                store.add_decision(decision)
                store.add_plan_change(change)
            elif number == 30:
                decision, change = changed(window.end_s, "rolled back", count=8)
                store.add_decision(decision)
                store.add_plan_change(change)
            else:
                store.add_decision(decided(window.end_s, policy=name, reason=f"{name} is well"))
        middle_s = START_S + windows
        store.add_plan_change(
            PlanChange(
                at_s=middle_s,
                asked=f"rescale {name}=9",
                outcome="rolled back",
                reason=f"no {name}",
                old=plan(),
                new=plan(count=9),
                pause_s=None,
            )
        )
        advice = decided(middle_s + 1, kind="change", reason_code="release", mode="recommend", new=plan(count=1))
        store.add_decision(msgspec.structs.replace(advice, applied="recommended", expected=PlanOutcome(slots=1)))
        for number in range(3):
            store.add_error(
                ErrorRecord(
                    at_s=middle_s + number, where=f"policy {name}", message=name, traceback=f"Traceback\n {name}"
                )
            )
        store.end_run(at_s=START_S + 2 * windows, reason=name)
        week_s = 7 * 86400.0
        store.begin_run(msgspec.structs.replace(run, started_s=START_S + week_s))
        store.run_started(plan(name), declared)
        for number in range(windows // 2):
            store.add_window(window_at(number, start_s=START_S + week_s))
        store.end_run(at_s=START_S + week_s + windows, reason="asked to stop")
