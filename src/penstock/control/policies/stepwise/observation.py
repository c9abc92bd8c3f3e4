"""The throughput and the features of the application in live windows, and the capacity that other plans would have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.control.demand import Demand, demand_of
from penstock.control.policy import Hold, Situation
from penstock.control.topology import Topology
from penstock.dataflow.operators import Kind
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.store import ProfiledOperator
from penstock.study.stepwise.configuration import OperatorMeasurement
from penstock.study.stepwise.features import relative_stream_sizes
from penstock.study.stepwise.operator_types import OperatorType


def visits(demand: Demand, topology: Topology, window: Window) -> dict[str, float]:
    """Return the rows that reach each operator per external row."""
    seen = {operator.operator: operator for operator in window.operators}
    result = {name: rate / demand.external_per_s for name, rate in demand.entering.items()}
    for region in topology.regions:
        rows = demand.arrivals[region.name] / demand.external_per_s
        for name in region.operators:
            result[name] = rows
            selectivity = seen[name].selectivity if name in seen else None
            rows *= 1.0 if selectivity is None else selectivity
    return result


def throughput_per_s(situation: Situation, ignored: Collection[str] = ()) -> float | None:
    """Return the external rows/s that the slowest query or region processed in the latest window; None: unknown.

    Rows of a batch are counted at its end, so they are divided by the duration of the batches. `ignored` are the
    regions whose input does not grow with the input of the dataflow.
    """
    window = situation.latest
    if window is None:
        return None
    demand = demand_of(replace(situation, window=window))
    if isinstance(demand, Hold):
        return None
    reached = visits(demand, situation.topology, window)
    rows = {operator.operator: float(operator.rows_in or 0) for operator in window.operators}
    rates = []
    if situation.micro_batch:
        for pipeline in window.pipelines:
            entries = [name for name in _entries(situation.topology, pipeline.operators) if name not in ignored]
            share = sum(reached.get(name, 0.0) for name in entries)
            if share <= 0:
                continue
            seconds = pipeline.batches * (pipeline.batch_s or 0.0)
            if seconds <= 0:
                return None
            rates.append(sum(rows.get(name, 0.0) for name in entries) / seconds / share)
    else:
        seconds = window.end_s - window.start_s
        rates = [
            rows[name] / seconds / reached[name]
            for name in (region.name for region in situation.topology.regions)
            if name in rows and name not in ignored and reached[name] > 0
        ]
    return min(rates, default=None)


def _entries(topology: Topology, operators: Collection[str]) -> list[str]:
    """Return the operators through which rows enter a query."""
    return [
        name
        for name in operators
        if name in topology.operators
        and (
            topology.operators[name].kind is Kind.SOURCE
            or any(before not in operators for before in topology.operators[name].inputs)
        )
    ]


def live_operators(
    situation: Situation, demand: Demand, min_latency_s: Mapping[str, float], types: Mapping[str, str]
) -> tuple[ProfiledOperator, ...]:
    """Return the features of step 1 from live windows. A type that is not known counts as proportional.

    The data of a live run cannot be repeated at another rate, so types come from the profile.
    """
    window, flow = situation.window, situation.topology.flow
    assert window is not None
    reached = visits(demand, situation.topology, window)
    seen = {operator.operator: operator for operator in window.operators}
    out = {name: rows * (seen[name].selectivity or 0.0) for name, rows in reached.items() if name in seen}
    out |= {name: reached[name] for name in demand.entering}
    streams = {
        (name, consumer.name): rows * (seen[name].share_for(consumer.name) if name in seen else 1.0)
        for name, rows in out.items()
        for consumer in flow.consumers(name)
    }
    shares = relative_stream_sizes(streams).rows
    return tuple(
        ProfiledOperator(
            operator=operator.name,
            type=types.get(operator.name, OperatorType.PROPORTIONAL.value),
            min_latency_s=0.0 if operator.kind is Kind.SOURCE else min_latency_s.get(operator.name, 0.0),
            rows_in=reached.get(operator.name, 0.0),
            streams={
                consumer.name: shares.get((operator.name, consumer.name), 0.0)
                for consumer in flow.consumers(operator.name)
            },
        )
        for operator in flow.operators
    )


def costs_s(window: Window) -> dict[str, float]:
    """Return the seconds per row of each operator with a known cost."""
    return {
        operator.operator: operator.seconds_per_row
        for operator in window.operators
        if operator.seconds_per_row is not None
    }


def region_measurements(situation: Situation, demand: Demand) -> dict[str, OperatorMeasurement]:
    """Return the capacity (Equation 2) and the latency of a row, waiting included (Little's law), of each region."""
    window = situation.latest
    assert window is not None
    seen = {operator.operator: operator for operator in window.operators}
    measured = {}
    for name, load in demand.loads.items():
        rate = seen[name].processed_rows_per_s or 0.0 if name in seen else 0.0
        waiting_s = (seen[name].backlog_rows or 0) / rate if rate > 0 else 0.0
        measured[name] = OperatorMeasurement(
            latency_s=load.row_s + waiting_s, capacity=load.row_s * rate / load.replicas
        )
    return measured


def capacity_per_s(situation: Situation, demand: Demand, plan: Plan) -> float:
    """Return the external rows/s that a plan can process at the measured costs.

    Replicas beyond the available slots share them. The stages of a micro-batch take turns.
    """
    slots = situation.max_slots
    seconds = {name: load.work / demand.external_per_s for name, load in demand.loads.items()}
    tasks = situation.topology.slots(plan, micro_batch=situation.micro_batch)
    if not situation.micro_batch:
        tasks = sum(plan.replicas[name] for name in seconds)
    share = min(1.0, slots / tasks)
    if situation.micro_batch:
        busy_s = [
            sum(seconds.get(name, 0.0) / min(plan.replicas[name], slots) for name in query)
            for query in situation.topology.queries(plan.cuts)
        ]
    else:
        busy_s = [cost_s / plan.replicas[name] for name, cost_s in seconds.items()]
    slowest_s = max(busy_s, default=0.0)
    return share / slowest_s if slowest_s > 0 else float("inf")
