"""Concurrent calls in the row-by-row loop: the threads of a replica are servers of one queue."""

from __future__ import annotations

import numpy as np

from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.counts import SimulationCounts
from penstock.engines.simulated.compiled.records import Records
from penstock.engines.simulated.rows.records import GROUP, RowLayout, RowState


@compiled
def group_of(layout: RowLayout, replica: int) -> int:
    """Return the group of calls to which the service of a replica belongs."""
    station = layout.stations[layout.replicas[replica].station]
    first = station.group_first + layout.replicas[replica].bundle * station.chain_size
    return int(first + layout.replicas[replica].position)


@compiled
def begin_call(layout: RowLayout, state: RowState, replica: int) -> None:
    group = group_of(layout, replica)
    if state.groups[group].in_flight == 0:
        state.groups[group].since_s = state.status[0].now_s
    state.groups[group].in_flight += 1


@compiled
def end_call(
    layout: RowLayout, state: RowState, counts: SimulationCounts, replica: int, operator: int, seconds: float
) -> None:
    """Count a call that took this time."""
    group, now_s = group_of(layout, replica), state.status[0].now_s
    counts.operators[operator].called_s += seconds
    counts.operators[operator].active_s += now_s - state.groups[group].since_s
    state.groups[group].since_s = now_s
    state.groups[group].in_flight -= 1


@compiled
def count_waiting(layout: RowLayout, counts: SimulationCounts, station: int, now_s: float) -> None:
    """Count the time of the waiting rows of a station. Call it before their number changes."""
    stations = layout.stations
    operator = layout.chain[stations[station].chain_first]
    waited_s = now_s - stations[station].waiting_since_s
    counts.operators[operator].waited_s += waited_s * stations[station].waiting_rows
    stations[station].waiting_since_s = now_s


def groups_in_flight(layout: RowLayout, now_s: float) -> Records:
    """Return the groups of calls for the services that the replicas have now."""
    stations = layout.stations
    sizes = stations["bundles"] * stations["chain_size"]
    groups = np.zeros(int(sizes.sum()), GROUP)
    groups["since_s"] = now_s
    for replica in np.flatnonzero(np.isfinite(layout.replicas["due_s"])):
        groups["in_flight"][group_of(layout, int(replica))] += 1
    return groups
