"""Mean latency of a plan in micro-batches, from performance curves.

Each query has the steady batch time D of `models/microbatch`. A task with n rows calls its function with t threads: it
lasts as long as n rows at the peak rate w(t) of its curve, and at least as long as one call, t / w(t):

    D = a + sum over operators of max(lambda D / capacity, t / w(t))

a: seconds per batch, independent of its rows; lambda: rows/s of the sources; capacity: lambda at which the first
replica reaches w(t). A row takes 1.5 D from its arrival at a query to the end of its batch. Streams that meet in an
operator count by their rows, and so do sinks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.models.flow import Flow
from penstock.plan import Plan, pipelines

ROWS_PER_LATENCY = 1.5  # mean time of a row in a query, in batch times


def steady_batch_s(fixed_s: float, work: Iterable[tuple[float, float]]) -> float:
    """Return D for operators with (load, seconds of a call); infinite if their loads reach 1.

    >>> steady_batch_s(0.1, [(0.5, 0.0)]), steady_batch_s(0.1, [(0.5, 0.4)]), steady_batch_s(0.1, [(1.0, 0.4)])
    (0.2, 0.5, inf)
    """
    operators = list(work)
    if math.fsum(load for load, _ in operators) >= 1.0:
        return math.inf
    loaded: set[int] = set()  # operators whose rows take longer than one call
    while True:
        calls = math.fsum(call_s for at, (_, call_s) in enumerate(operators) if at not in loaded)
        load = math.fsum(load for at, (load, _) in enumerate(operators) if at in loaded)
        batch_s = (fixed_s + calls) / (1.0 - load)
        longer = {at for at, (load, call_s) in enumerate(operators) if load * batch_s > call_s} - loaded
        if not longer:
            return batch_s
        loaded |= longer


def mean_latency_s(
    plan: Plan,
    flow: Dataflow,
    tasks: Flow,
    work: Mapping[str, tuple[float, float]],
    *,
    fixed_s: float,
    gain_of: Mapping[str, float],
) -> float | None:
    """Return the mean latency at the sinks; None if a query is unstable.

    Args:
        plan: The plan.
        flow: The dataflow.
        tasks: Its operators with their selectivities.
        work: (load, seconds of a call) by operator with a curve.
        fixed_s: Seconds per batch that do not depend on its rows.
        gain_of: Rows into each operator per row of the sources.
    """
    query_of: dict[str, str] = {}
    time_s: dict[str, float] = {}
    for query in pipelines(flow, plan):
        query_of |= dict.fromkeys(query.operators, query.name)
        time_s[query.name] = ROWS_PER_LATENCY * steady_batch_s(
            fixed_s, [work[name] for name in query.operators if name in work]
        )
    if math.inf in time_s.values():
        return None
    leaves_s = {operator.name: 0.0 for operator in flow.operators if operator.kind is Kind.SOURCE}
    for operator in flow.operators:
        if operator.kind is Kind.SOURCE:
            if operator.name in plan.cuts:  # a query only copies its rows
                leaves_s[operator.name] = time_s[query_of[operator.name]]
            continue
        arrivals = []
        for before in operator.inputs:
            if before in operator.feedback or before not in leaves_s:
                continue
            is_new = before in plan.cuts or flow[before].kind is Kind.SOURCE
            rows = math.fsum(
                gain_of.get(before, 1.0) * stream.selectivity
                for stream in tasks.streams
                if stream.target == operator.name
                and stream.source == (None if flow[before].kind is Kind.SOURCE else before)
            )
            arrivals.append((rows, leaves_s[before] + (time_s[query_of[operator.name]] if is_new else 0.0)))
        leaves_s[operator.name] = _mean(arrivals)
    sinks = [
        (gain_of[operator.name], leaves_s[operator.name]) for operator in flow.operators if operator.kind is Kind.SINK
    ]
    return _mean(sinks)


def _mean(weighted: list[tuple[float, float]]) -> float:
    total = math.fsum(weight for weight, _ in weighted)
    return math.fsum(weight * value for weight, value in weighted) / total if total > 0 else 0.0
