"""Slots and rates of Shukla and Simmhan, "Model-driven scheduling", JPDC 2018, section 8, with the authors' curves.

The micro-DAGs have the published performance models at their vertices. Slots are those of the two methods that the
paper compares. The simulated rate is the throughput of the saturated plan that `penstock allocate` makes for Spark:
replicas with equal threads, one slot for each replica.
"""

from __future__ import annotations

import numpy as np

import penstock
from benchmarks.models_curves import PUBLISHED
from benchmarks.papers.results import Figure, ResultRow
from penstock.dataflow import Dataflow
from penstock.engines.simulated import Behaviour, Fixed, Mode, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.models.curve import Curve, CurvePoint, curve_from_points
from penstock.planning.thread_plan import ThreadPlan, tasks_of, thread_plan
from penstock.planning.thread_schedule import ThreadSchedule, schedule_threads
from penstock.planning.vms import VmSize

TITLE = "Model-driven scheduling: results"
INTRODUCTION = (
    "[Model-driven scheduling](model-driven-scheduling.md) explains the method and the differences. The curves are the "
    "published ones. The positions of the tasks in diamond and star are read from the text of the paper. "
    "The simulator has the same curves as the planner, so the rates check the plans and not the curves."
)
RATES = (50, 100, 200)  # rows/s
D3 = VmSize(name="D3", slots=4, price_per_h=0.4)
CURVES: dict[str, Curve] = {
    name: curve_from_points({n: CurvePoint(rows_per_s=w, cpu=c, memory=m) for n, (w, c, m) in points.items()})
    for name, points in PUBLISHED.items()
}
# Inputs of each task, upstream first; "source" is the source.
MICRO_DAGS: dict[str, dict[str, tuple[str, ...]]] = {
    "linear": {"parse": ("source",), "pi": ("parse",), "write": ("pi",), "blob": ("write",), "table": ("blob",)},
    "diamond": {
        "parse": ("source",),
        "write": ("parse",),
        "blob": ("parse",),
        "table": ("parse",),
        "pi": ("write", "blob", "table"),
    },
    "star": {
        "blob": ("source",),
        "pi": ("source",),
        "parse": ("blob", "pi"),
        "write": ("parse",),
        "table": ("parse",),
    },
}
# Slots in the paper at 50, 100 and 200 rows/s, where its text gives them.
PAPER = {("linear", "mba"): "4, 7, 14 to 15", ("linear", "lsa"): "7, 13, 25 to 28"}


def micro_dag(name: str) -> Dataflow:
    flow = penstock.Dataflow(name)
    streams = {"source": flow.source("source", penstock.generate(_same, schema="n bigint", rows_per_s=1))}
    for task, inputs in MICRO_DAGS[name].items():
        streams[task] = flow.rows(
            task, _same, "n bigint", inputs=[streams[before] for before in inputs], threads=1, selectivity=1.0
        )
    for task in MICRO_DAGS[name]:
        if not any(task in inputs for inputs in MICRO_DAGS[name].values()):
            streams[task].sink(f"out_{task}", penstock.noop())
    return flow


def planned(name: str, rate: float, method: str) -> tuple[ThreadSchedule, ThreadPlan, Dataflow]:
    """Return the schedule, and the plan for Spark that follows from it."""
    flow = micro_dag(name)
    tasks, curves = tasks_of(flow, CURVES, {})
    mapping = {"mba": "sam", "lsa": "rsm"}[method]
    schedule = schedule_threads(tasks, rate, curves, method=method, mapping=mapping, sizes=(D3,))
    return schedule, thread_plan(flow, schedule, curves, CURVES), flow


def simulated_rate(flow: Dataflow, plan: ThreadPlan) -> float:
    """Return the rate of the slowest task of the saturated plan, in rows of the source per second."""
    operators = {
        name: OperatorBehaviour(
            service_s=Fixed(value=1.0 / curve.single.rows_per_s),
            curve={str(n): point for n, point in zip(curve.threads, curve.points, strict=True)},
        )
        for name, curve in CURVES.items()
    }
    sources = {"source": SourceBehaviour(rates=((0.0, 3.0 * plan.rows_per_s),))}
    slots = sum(plan.plan.replicas.get(name, 0) for name in plan.plan.replicas) * len(CURVES)
    engine = SimulatedEngine(
        flow,
        Behaviour(operators=operators, sources=sources),
        plan=plan.plan.replace(slots=max(1, slots)),
        mode=Mode.FLUID,
    )
    engine.start()
    engine.advance(60.0)
    engine.observe()
    engine.advance(60.0)
    window = engine.observe()
    tasks, curves = tasks_of(flow, CURVES, {})
    gain = {
        allocation.operator: allocation.input_rows_per_s
        for allocation in schedule_threads(tasks, 1.0, curves).allocation.operators
    }
    return min((window.operator(name).processed_rows_per_s or 0.0) / gain[name] for name in CURVES)


def slots() -> list[ResultRow]:
    rows = []
    for name in MICRO_DAGS:
        for method, label in (("mba", "MBA+SAM"), ("lsa", "LSA+RSM")):
            counts = []
            for rate in RATES:
                schedule, _, _ = planned(name, rate, method)
                counts.append(schedule.allocation.slots + schedule.extra_slots)
            rows.append(
                ResultRow(
                    figure=f"slots: {name} with {label} at 50, 100 and 200 rows/s",
                    paper=PAPER.get((name, method), "only in a figure"),
                    penstock=", ".join(map(str, counts)),
                    engine="calculation",
                    command="python -m benchmarks.papers model-driven --figure slots",
                )
            )
    return rows


def rates() -> list[ResultRow]:
    rows, predicted, actual = [], [], []
    for name in MICRO_DAGS:
        texts = []
        for rate in RATES:
            _, plan, flow = planned(name, rate, "mba")
            predicted.append(plan.rows_per_s)
            actual.append(simulated_rate(flow, plan))
            texts.append(f"{rate}: {predicted[-1]:.0f} predicted, {actual[-1]:.0f} simulated")
        rows.append(_rate_row(f"rates: {name}, plans of MBA for 50, 100 and 200 rows/s", "", "; ".join(texts)))
    error = np.sum((np.array(actual) - predicted) ** 2) / np.sum((np.array(actual) - np.mean(actual)) ** 2)
    rows.append(
        _rate_row(
            "rates: R2 of predicted and simulated rates",
            "0.97 is the bar of Penstock; the figure of the paper is not in its text",
            f"{1 - error:.4f}",
        )
    )
    return rows


def _rate_row(figure: str, paper: str, value: str) -> ResultRow:
    return ResultRow(
        figure=figure,
        paper=paper,
        penstock=value,
        engine="simulation, fluid",
        command="python -m benchmarks.papers model-driven --figure rates",
    )


def _same(row: object) -> object:
    return row


FIGURES: dict[str, Figure] = {"slots": slots, "rates": rates}
