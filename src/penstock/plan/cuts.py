"""Determine after which operators a dataflow must be cut into queries, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from penstock.dataflow.complete_results import operators_with_whole_result
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind, Operator, OutputMode
from penstock.dataflow.regions import regions
from penstock.dataflow.sources import SparkSource


def required_cuts(flow: Dataflow, replicas: Mapping[str, int], *, share_queries: bool = True) -> dict[str, str]:
    """Return the operators whose output must go through a channel, each with the reason.

    Args:
        flow: The dataflow to cut.
        replicas: Replicas under the first operator of each group that is replicated together, as in a validated plan.
            Groups without a number count as equal.
        share_queries: Whether operators with state may share a query if Spark allows it. False cuts between all.
    """
    reasons: dict[str, str] = {}
    for operator in flow.operators:
        for cut, reason in _cuts_by_shape(flow, operator):
            reasons.setdefault(cut, reason)
    # Downstream from the sources: operators with state share a query as long as Spark allows it.
    counts = {name: replicas.get(region.name) for region in regions(flow) for name in region.operators}
    stateful: dict[str, list[Operator]] = {}  # operator -> operators with state in its query, up to and including it
    has_new_event_time: set[str] = set()  # operators behind a state and a watermark that is declared after this state
    for operator in flow.operators:
        together = [operator] if operator.kind.has_state else []
        for name in operator.inputs:
            if name in reasons or name in operator.feedback:
                continue
            against = _reason_against_sharing(stateful[name], together, counts, share_queries)
            if against is None and operator.kind.has_state and name in has_new_event_time:
                against = (
                    f"event time: a watermark is declared between '{stateful[name][0].name}' and '{operator.name}', "
                    "and Spark allows one watermark per path in a query"
                )
            if against is not None:
                reasons[name] = against
                continue
            together += stateful[name]
            if name in has_new_event_time:
                has_new_event_time.add(operator.name)
        if together and operator.watermark is not None:
            has_new_event_time.add(operator.name)
        stateful[operator.name] = together
    return reasons


def forbidden_cuts(flow: Dataflow) -> dict[str, str]:
    """Return the operators whose output cannot go through a channel, each with the operator that is the reason."""
    return {
        behind.name: operator.name
        for operator in flow.operators
        if operator.output_mode is OutputMode.COMPLETE
        for behind in operators_with_whole_result(flow, operator)
    }


def _cuts_by_shape(flow: Dataflow, operator: Operator) -> Iterator[tuple[str, str]]:
    """Yield the cuts that do not depend on replica counts."""
    consumers = flow.consumers(operator.name)
    if len(consumers) > 1:
        yield operator.name, f"fan-out: {', '.join(consumer.name for consumer in consumers)} read it"
    for name in operator.feedback:
        yield name, f"feedback: the loop to '{operator.name}' must be closed through a cut"
    if isinstance(operator.source, SparkSource):
        yield operator.name, "only Spark knows the offsets of this source, so its query must never change"
    if operator.kind is Kind.GLOBAL_STATE:
        reason = "global state: its one replica would leave the other slots idle"
        for name in operator.inputs:
            if flow[name].kind is not Kind.SOURCE:
                yield name, reason
        is_complete = operator.output_mode is OutputMode.COMPLETE  # its result cannot pass through a channel
        if any(consumer.kind is not Kind.SINK for consumer in consumers) and not is_complete:
            yield operator.name, reason


def _reason_against_sharing(
    before: Sequence[Operator], together: Sequence[Operator], counts: Mapping[str, int | None], share_queries: bool
) -> str | None:
    """Return why two groups of operators with state cannot share a query, or None if they can."""
    for first, second in product(before, together):
        reason = _reason_for_two_states(first, second, counts)
        if reason is None and not share_queries:
            reason = f"state: '{first.name}' and '{second.name}' are to run in separate queries"
        if reason is not None:
            return reason
    return None


def _reason_for_two_states(first: Operator, second: Operator, counts: Mapping[str, int | None]) -> str | None:
    """Explain why two operators with state cannot share a query; the most specific reason applies."""
    if Kind.GLOBAL_STATE in (first.kind, second.kind):
        return f"global state: '{first.name}' or '{second.name}' has one replica and needs a query of its own"
    if {first.output_mode, second.output_mode} != {OutputMode.APPEND}:
        return f"Spark allows '{first.name}' and '{second.name}' in one query only if both have output mode append"
    if counts[first.name] != counts[second.name]:
        return (
            f"replicas: '{first.name}' has {counts[first.name]} and '{second.name}' has {counts[second.name]}, but all "
            "operators with state in one Spark query have the same number"
        )
    return None
