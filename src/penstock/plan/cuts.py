"""Where a dataflow must be cut into queries, and why."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind, Operator, OutputMode
from penstock.dataflow.regions import Region, regions
from penstock.dataflow.sources import SparkSource


def required_cuts(flow: Dataflow, replicas: Mapping[str, int]) -> dict[str, str]:
    """Operator -> why its output has to go through a channel, for these replicas.

    The rules that need no replica counts first; then, walking downstream, what Spark cannot hold in one query.
    """
    reasons: dict[str, str] = {}
    for operator in flow.operators:
        for cut, reason in _by_shape(flow, operator):
            reasons.setdefault(cut, reason)
    region_by_operator = {name: region for region in regions(flow) for name in region.operators}
    held: dict[str, list[Operator]] = {}  # operator -> operators with state in its query, up to and with it
    for operator in flow.operators:
        together = [operator] if operator.kind.has_state else []
        for name in operator.inputs:
            if name in reasons or name in operator.feedback:
                continue
            if together and held[name]:
                reasons[name] = _clash(held[name][0], together[0], region_by_operator, replicas)
            else:
                together += held[name]
        held[operator.name] = together
    return reasons


def _by_shape(flow: Dataflow, operator: Operator) -> list[tuple[str, str]]:
    found = []
    consumers = flow.consumers(operator.name)
    if len(consumers) > 1:
        names = ", ".join(one.name for one in consumers)
        found.append((operator.name, f"fan-out: {names} all read it"))
    for name in operator.feedback:
        found.append((name, f"feedback: a loop closes on '{operator.name}' through a cut"))
    if isinstance(operator.source, SparkSource):
        found.append((operator.name, "only Spark knows this source's offsets, so its query is never changed"))
    if operator.kind is Kind.GLOBAL_STATE:
        reason = "global state: its one replica would leave the other slots idle"
        found += [(name, reason) for name in operator.inputs if flow[name].kind is not Kind.SOURCE]
        if any(one.kind is not Kind.SINK for one in consumers):
            found.append((operator.name, reason))
    return found


def _clash(
    one: Operator, other: Operator, region_by_operator: Mapping[str, Region], replicas: Mapping[str, int]
) -> str:
    """Why two operators with state do not share a query: the most telling of the reasons."""
    if Kind.GLOBAL_STATE in (one.kind, other.kind):
        return f"global state: '{one.name}' or '{other.name}' has one replica and needs a query of its own"
    counts = [replicas.get(region_by_operator[operator.name].name) for operator in (one, other)]
    if counts[0] != counts[1]:
        return (
            f"replicas: '{one.name}' has {counts[0]} and '{other.name}' {counts[1]}, and the states of one Spark query "
            "have one count"
        )
    if OutputMode.UPDATE in (one.output_mode, other.output_mode):
        return f"Spark allows '{one.name}' and '{other.name}' in one query only if both have output mode append"
    # Spark keeps all states of a query in one checkpoint, and there is no safe way to take it apart later.
    return f"state: '{one.name}' and '{other.name}' keep a checkpoint each, so that either can change without the other"
