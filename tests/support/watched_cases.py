"""Kinds of simulated programs, and the verdict on what `watch` says about them."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.control.policies.mst import WatchedMst
from penstock.control.policy import Change, Decision, Hold, Memory, Situation
from penstock.control.topology import Topology
from penstock.dataflow import Dataflow
from penstock.dataflow.sinks import noop
from penstock.dataflow.sources import generate
from penstock.engines.spark.jvm import FileSource, Trigger
from penstock.engines.spark.watched.history import Executors, QueryHistory
from penstock.measure.window import Estimate, OperatorWindow, Window
from penstock.plan import default_plan
from tests.support.watched_programs import (
    EPOCH_S,
    ROWS_PER_FILE,
    SimulatedBatch,
    SimulatedProgram,
    SimulatedQuery,
    SimulatedStage,
    arrived_rows,
    simulate_batches,
)

MAX_EXECUTORS, WINDOW_S = 6, 10.0


def single(*stages: SimulatedStage, **query: object) -> SimulatedProgram:
    return SimulatedProgram(queries=(SimulatedQuery(stages=stages, **query),))  # type: ignore[arg-type]


def wide(row_s: float = 0.01, tasks: int = 12) -> SimulatedStage:
    return SimulatedStage(tasks=tasks, row_s=row_s)


PROGRAMS = {
    "tasks": single(wide()),
    "fixed cost": single(wide(0.002), fixed_s=2.5),
    "driver": single(wide(0.0005), driver_row_s=0.002),
    "skewed": single(SimulatedStage(tasks=12, row_s=0.01, largest_share=0.5)),
    "few tasks": single(SimulatedStage(tasks=2, row_s=0.01)),
    "two stages": single(wide(0.004), SimulatedStage(tasks=4, row_s=0.004)),
    "two queries": SimulatedProgram(
        queries=(
            SimulatedQuery(name="quick", stages=(wide(0.004),), share=0.5),
            SimulatedQuery(name="slow", stages=(wide(0.012),), share=0.5),
        )
    ),
    "small beside large": SimulatedProgram(
        queries=(
            SimulatedQuery(name="small", stages=(wide(tasks=4),), share=0.06),
            SimulatedQuery(name="large", stages=(wide(tasks=12),), share=0.94),
        )
    ),
    "trigger": single(wide(), trigger_s=5.0),
    "each second": single(wide(), source="each second"),
    "kafka": single(wide(), source="kafka"),
    "limited kafka": single(wide(), source="kafka", limit=2_000),
    "limited trigger": single(wide(0.002), source="kafka", limit=1_000, trigger_s=2.0),
    "files": single(wide(), source="files"),
    "limited files": single(wide(), source="files", limit=10 * ROWS_PER_FILE),
    "available now": single(wide(), source="files", limit=10 * ROWS_PER_FILE, is_finite=True),
}


@dataclass(frozen=True, kw_only=True)
class WatchedOutcome:
    """What was said at the end, and what is true."""

    rate: float
    measured_rate: float | None
    capacity: float  # true, with the executors that the program had
    estimate: Estimate | None
    saturated: bool
    ever_saturated: bool
    decision: Decision
    verdict: str  # correct, unknown or wrong, with the reason


def watch_program(
    program: SimulatedProgram,
    *,
    load: float,
    executors: int,
    seed: int,
    seconds: float = 240.0,
    is_local: bool = False,
) -> WatchedOutcome:
    """Watch a program under a constant load, as a share of the capacity of the executors that it has."""
    rate = load * program.capacity(executors)
    batches = simulate_batches(program, rows_per_s=rate, executors=executors, seconds=seconds, seed=seed)
    windows, decisions = decide_on(program, batches, rate=rate, executors=executors, seconds=seconds, is_local=is_local)
    decision, last = decisions[-1], windows[-1]
    estimates = [query.capacity[executors - 1] for query in last.pipelines if query.capacity]
    return WatchedOutcome(
        rate=rate,
        measured_rate=last.external_rows_per_s,
        capacity=program.capacity(executors),
        estimate=estimates[0] if len(program.queries) == 1 and estimates else None,
        saturated=any(query.saturated for query in last.pipelines),
        ever_saturated=any(query.saturated for window in windows for query in window.pipelines),
        decision=decision,
        verdict=verdict(program, decision, rate, executors),
    )


def decide_on(
    program: SimulatedProgram,
    batches: list[SimulatedBatch],
    *,
    rate: float,
    executors: int,
    seconds: float,
    is_local: bool,
) -> tuple[list[Window], list[Decision]]:
    size = program.slots_per_executor
    flow = Dataflow("theirs")
    flow.source("input", generate(int, schema="n bigint", rows=0)).sink("queries", noop())
    policy = WatchedMst(slots_per_executor=size, max_executors=MAX_EXECUTORS, is_local=is_local)
    histories = {query.name: QueryHistory() for query in program.queries}
    there = Executors(
        slots=executors * size,
        slots_per_executor=size,
        max_executors=MAX_EXECUTORS,
        changed=False,
        shared=len(program.queries) > 1,
    )
    windows: list[Window] = []
    decisions: list[Decision] = []
    memory: Memory = {}
    stages = {(batch.query.name, batch.report.batch_id): batch.stages for batch in batches}
    for number in range(1, int(seconds / WINDOW_S) + 1):
        began_s, now_s = EPOCH_S + (number - 1) * WINDOW_S, EPOCH_S + number * WINDOW_S
        pipelines = []
        for query in program.queries:
            history = histories[query.name]
            reports = [
                batch.report
                for batch in batches
                if batch.query.name == query.name and began_s < batch.report.ended_s <= now_s
            ]
            sums = history.add(
                reports, lambda _, batch_id, name=query.name: stages[name, batch_id], there, is_running=True
            )
            if history.files is not None:
                files, in_batch = _files(query, batches, now_s, rate)
                history.add_files([files], now_s, in_batch=in_batch)
            pipeline = history.window(
                query.name,
                ("input", "queries"),
                sums,
                Trigger("AvailableNow" if query.is_finite else "ProcessingTime", query.trigger_s),
                there,
                now_s=now_s,
                horizon_s=3 * WINDOW_S,
                limit_rows=None if query.source == "files" else query.limit,
            )
            if query.is_finite and all(batch.report.ended_s <= now_s for batch in batches):
                pipeline = replace(pipeline, state="ended")
            pipelines.append(pipeline)
        rates = [pipeline.input_rows_per_s for pipeline in pipelines if pipeline.input_rows_per_s is not None]
        window = Window(
            start_s=began_s,
            end_s=now_s,
            generation=1,
            external_rows_per_s=sum(rates) if rates else None,
            latency=None,
            pipelines=tuple(pipelines),
            operators=tuple(OperatorWindow.knowing(name, "queries") for name in ("input", "queries")),
        )
        situation = Situation(
            now_s=now_s,
            topology=Topology.of(flow),
            plan=default_plan(flow, slots=there.slots),
            window=window,
            latest=window,
            max_slots=MAX_EXECUTORS * size,
            micro_batch=True,
        )
        decision, memory = policy.decide(situation, memory)
        windows.append(window)
        decisions.append(decision)
    return windows, decisions


def _files(query: SimulatedQuery, batches: list[SimulatedBatch], now_s: float, rate: float) -> tuple[FileSource, bool]:
    """Return the listing of the files of a query at a time, and whether a batch is running."""
    begun = [batch.report for batch in batches if batch.query.name == query.name and batch.report.began_s <= now_s]
    seen = sum(report.num_input_rows for report in begun) // ROWS_PER_FILE
    there = arrived_rows(query, now_s - EPOCH_S, rate) // ROWS_PER_FILE
    in_batch = any(report.ended_s > now_s for report in begun)
    most_files = None if query.limit is None else query.limit // ROWS_PER_FILE
    source = FileSource(seen=seen, pending=there - seen, is_limited=most_files is not None, most_files=most_files)
    return source, in_batch


def verdict(program: SimulatedProgram, decision: Decision, rate: float, executors: int) -> str:
    """Compare a recommendation with the capacities that were measured separately."""
    if all(query.is_finite for query in program.queries):  # it has to sustain no rate
        is_unknown = isinstance(decision, Hold) and decision.reason_code in ("missing-metrics", "idle")
        return "unknown" if is_unknown else "wrong: it ends by itself"
    most = max(program.capacity(count) for count in range(1, MAX_EXECUTORS + 1))
    if isinstance(decision, Hold):
        if decision.reason_code in ("missing-metrics", "settling"):
            return "unknown"
        if decision.reason_code == "at-limit":
            return "correct" if rate > 0.97 * most else "wrong: another number suffices"
        if rate > 1.03 * program.capacity(executors):
            return "wrong: too few"
        if executors > 1 and program.capacity(executors - 1) > 1.1 * rate:
            return "unknown" if "would suffice is unknown" in decision.reason else "wrong: fewer suffice"
        return "correct"
    assert isinstance(decision, Change)
    # A backlog has to be processed besides the load.
    count = decision.plan.slots // program.slots_per_executor
    if count == executors + 1 and "Whether that suffices is unknown" in decision.reason:
        return "unknown" if rate > 0.97 * program.capacity(executors) else "wrong: suffices"
    sustained = program.capacity(count)
    if sustained < 0.97 * min(rate, most):
        return "wrong: too few"
    if count > executors and rate < 0.97 * program.capacity(executors):
        return "wrong: suffices"
    if count > executors + 1 and program.capacity(count - 1) > 1.3 * (decision.inputs["wanted_rows_per_s"] or 0.0):
        return "wrong: too many"
    return "correct"
