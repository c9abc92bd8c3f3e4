"""Slots and rates of Shukla and Simmhan, "Model-driven scheduling", JPDC 2018, section 8, with the authors' curves.

The micro-DAGs and the applications have the published performance models at their vertices. Slots are those of the two
methods that the paper compares. Rates are those of five VMs with four slots and of five pairs of methods, as in the
paper. The simulation places each thread on the slot of the mapping, gives all threads the same number of rows as
Storm's shuffle grouping does, has exponential service times, and lets bundles of a slot share its core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import penstock
from benchmarks.models_curves import PUBLISHED
from benchmarks.papers.mapped_threads import PAIRS, five_vms_deployment, sustained, use_of_vms
from benchmarks.papers.results import Figure, ResultRow
from penstock.apps.model_driven import finance, grid, traffic
from penstock.apps.model_driven.task_graph import SOURCE, Graph
from penstock.dataflow import Dataflow
from penstock.models.curve import Curve, CurvePoint, curve_from_points
from penstock.planning.thread_plan import tasks_of
from penstock.planning.thread_schedule import ThreadSchedule, schedule_threads
from penstock.planning.vms import VmSize

TITLE = "Model-driven scheduling: results"
INTRODUCTION = (
    "[Model-driven scheduling](model-driven-scheduling.md) explains the method and the differences. The curves are the "
    "published ones. The positions of the tasks in diamond and star are read from the text of the paper; those in "
    "traffic, finance and grid are ours, so their slots only compare the two methods. "
    "The simulator has the same curves as the planner, so rates test the prediction of a mapping, with random service "
    "times and shared slots that it ignores, and not the curves themselves."
)
RATES = (50, 100, 200)  # rows/s
APPLICATION_RATES = (50, 100)
APPLICATIONS: dict[str, Graph] = {"traffic": traffic.GRAPH, "finance": finance.GRAPH, "grid": grid.GRAPH}
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
    return _flow(name, MICRO_DAGS[name])


def application(name: str) -> tuple[Dataflow, dict[str, Curve]]:
    """Return the dataflow of an application, and the curve of the task at each of its vertices."""
    graph = APPLICATIONS[name]
    inputs = {
        vertex: tuple("source" if before == SOURCE else before for before in own.inputs)
        for vertex, own in graph.items()
    }
    return _flow(name, inputs), {vertex: CURVES[own.task] for vertex, own in graph.items()}


def _flow(name: str, inputs_of: Mapping[str, tuple[str, ...]]) -> Dataflow:
    flow = penstock.Dataflow(name)
    streams = {"source": flow.source("source", penstock.generate(_same, schema="n bigint", rows_per_s=1))}
    for task, inputs in inputs_of.items():
        streams[task] = flow.rows(
            task, _same, "n bigint", inputs=[streams[before] for before in inputs], threads=1, selectivity=1.0
        )
    for task in inputs_of:
        if not any(task in inputs for inputs in inputs_of.values()):
            streams[task].sink(f"out_{task}", penstock.noop())
    return flow


def planned(flow: Dataflow, curves: Mapping[str, Curve], rate: float, method: str) -> ThreadSchedule:
    tasks, own = tasks_of(flow, curves, {})
    mapping = {"mba": "sam", "lsa": "rsm"}[method]
    return schedule_threads(tasks, rate, own, method=method, mapping=mapping, sizes=(D3,))


def slots() -> list[ResultRow]:
    """Return the slots of both methods for the micro-DAGs and the applications."""
    cases = [(micro_dag(name), CURVES, RATES) for name in MICRO_DAGS]
    cases += [(*application(name), APPLICATION_RATES) for name in APPLICATIONS]
    rows = []
    for flow, curves, rates_per_s in cases:
        name, at = flow.name, f"{', '.join(map(str, rates_per_s[:-1]))} and {rates_per_s[-1]} rows/s"
        for method, label in (("mba", "MBA+SAM"), ("lsa", "LSA+RSM")):
            counts = []
            for rate in rates_per_s:
                schedule = planned(flow, curves, rate, method)
                counts.append(schedule.allocation.slots + schedule.extra_slots)
            rows.append(
                ResultRow(
                    figure=f"slots: {name} with {label} at {at}",
                    paper=PAPER.get((name, method), "only in a figure"),
                    penstock=", ".join(map(str, counts)),
                    engine="calculation",
                    command="python -m benchmarks.papers model-driven --figure slots",
                )
            )
    return rows


def rates() -> list[ResultRow]:
    """Return the rates on five VMs with four slots: planned, predicted, and sustained in the simulation."""
    rows, predicted, planned_rates, actual = [], [], [], []
    latencies: dict[str, list[float]] = {}
    cpu: list[tuple[float, float]] = []
    memory: list[tuple[float, float]] = []
    for name in MICRO_DAGS:
        texts, latency_of = [], {}
        for method, mapping in PAIRS:
            deployment = five_vms_deployment(micro_dag(name), CURVES, D3, method, mapping)
            rate, latency_s = sustained(deployment)
            for expected, observed in use_of_vms(deployment, rate):
                cpu.append((expected.cpu, observed.cpu))
                memory.append((expected.memory, observed.memory))
            planned_rates.append(deployment.planned)
            predicted.append(deployment.predicted.rows_per_s)
            actual.append(rate)
            pair = f"{method.upper()}+{mapping.upper()}"
            latency_of[pair] = latency_s
            latencies.setdefault(pair, []).append(latency_s)
            texts.append(f"{pair} {deployment.planned:.0f}, {predicted[-1]:.0f}, {rate:.0f}")
        rows.append(_rate_row(f"rates: {name}: planned, predicted and simulated", "only in a figure", "; ".join(texts)))
    rows.append(
        _rate_row(
            "rates: R2 of predicted and simulated rates (of planned and simulated ones)",
            "0.97 is the bar of Penstock; the figures of the paper are not in its text",
            f"{_determination(predicted, actual):.3f} ({_determination(planned_rates, actual):.3f})",
        )
    )
    for label, pairs in (("CPU", cpu), ("memory", memory)):
        differences = [abs(expected - observed) for expected, observed in pairs]
        rows.append(
            _rate_row(
                f"rates: {label} of each VM (400 % for four slots), predicted and simulated: R2 and mean difference",
                "only in a figure",
                f"{_determination(*zip(*pairs, strict=True)):.3f}, {np.mean(differences):.1f} percentage points",
            )
        )
    order = sorted(latencies, key=lambda pair: float(np.median(latencies[pair])))
    rows.append(
        _rate_row(
            "rates: order of the median latencies",
            "MBA+DSM < {LSA+DSM, MBA+RSM} < LSA+RSM < MBA+SAM",
            " < ".join(f"{pair} ({np.median(latencies[pair]):.1f} s)" for pair in order),
        )
    )
    return rows


def _determination(predicted: Sequence[float], actual: Sequence[float]) -> float:
    """Return R2 = 1 - sum (actual - predicted)^2 / sum (actual - mean)^2."""
    observed = np.array(actual)
    return float(1.0 - np.sum((observed - predicted) ** 2) / np.sum((observed - observed.mean()) ** 2))


def _rate_row(figure: str, paper: str, value: str) -> ResultRow:
    return ResultRow(
        figure=figure,
        paper=paper,
        penstock=value,
        engine="simulation, row by row",
        command="python -m benchmarks.papers model-driven --figure rates",
    )


def _same(row: object) -> object:
    return row


FIGURES: dict[str, Figure] = {"slots": slots, "rates": rates}
