"""How rows move between stations in the row-by-row loop: dispatch, pairing and back-pressure."""

from __future__ import annotations

import numpy as np

from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.counts import SimulationCounts, count_arrivals
from penstock.engines.simulated.compiled.draws import Draws, choice_stream, uniform
from penstock.engines.simulated.compiled.outputs import arrive_at_port
from penstock.engines.simulated.compiled.records import NONE
from penstock.engines.simulated.rows.calls import count_waiting
from penstock.engines.simulated.rows.records import BLOCKED, BUSY, IDLE, ROUND_ROBIN, SHARED, RowLayout, RowState
from penstock.engines.simulated.rows.row_pool import append_row, take_row


@compiled
def make_runnable(layout: RowLayout, state: RowState, replica: int) -> None:
    """Let a replica continue before the next event."""
    layout.replicas[replica].state = BUSY
    state.runnable[state.status[0].runnable] = replica
    state.status[0].runnable += 1


@compiled
def queue_for(layout: RowLayout, streams: np.ndarray, station: int, operator: int) -> int:
    """Return the queue of an arriving row: the shared one, that of the next replica, or that of its key's replica."""
    stations, shares = layout.stations, layout.shares
    first = stations[station].first_queue
    dispatch = stations[station].dispatch
    if dispatch == SHARED:
        return int(first)
    if dispatch == ROUND_ROBIN:
        replica = stations[station].next_replica
        stations[station].next_replica = (replica + 1) % stations[station].replicas
        return int(first + replica)
    u = uniform(streams, choice_stream(operator))
    low, high = 0, stations[station].queues - 1
    share_first = stations[station].share_first
    while low < high:
        middle = (low + high) >> 1
        if shares[share_first + middle] < u:
            low = middle + 1
        else:
            high = middle
    return int(first + low)


@compiled
def enter(
    layout: RowLayout,
    state: RowState,
    draws: Draws,
    counts: SimulationCounts,
    station: int,
    operator: int,
    born_s: float,
) -> None:
    """Give a row to an idle replica of the station, or put it into a queue."""
    stations, replicas = layout.stations, layout.replicas
    queue = queue_for(layout, draws.streams, station, operator)
    replica = state.queues[queue].idle
    if replica == NONE:
        append_row(state, state.queues, queue, born_s, operator)
        count_waiting(layout, counts, station, state.status[0].now_s)
        stations[station].waiting_rows += 1
    else:
        state.queues[queue].idle = replicas[replica].next
        replicas[replica].born_s = born_s
        replicas[replica].rows = 1
        replicas[replica].position = layout.operators[operator].position
        make_runnable(layout, state, replica)


@compiled
def arrive(
    layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, stream: int, born_s: float
) -> None:
    """Deliver a row to the target of a stream. A paired row enters with the last row that it waits for."""
    operators, pairs = layout.operators, state.pairs
    operator = layout.streams[stream].target
    count_arrivals(counts.operators, operator, state.status[0].now_s, 1)
    arrive_at_port(state.outputs, operator, layout.streams[stream].port, 1)
    station = operators[operator].station
    pair = layout.streams[stream].pair
    if pair != NONE:
        append_row(state, pairs, pair, born_s, operator)
        first, size = operators[operator].pair_first, operators[operator].pair_size
        for other in range(first, first + size):
            if pairs[other].size == 0:
                return
        for other in range(first, first + size):
            born_s = min(born_s, state.pool[take_row(state, pairs, other)].born_s)
    enter(layout, state, draws, counts, station, operator, born_s)


@compiled
def wait_for_space(layout: RowLayout, station: int, replica: int) -> None:
    """Block a replica until the queue of a downstream station has space."""
    stations, replicas = layout.stations, layout.replicas
    replicas[replica].state = BLOCKED
    replicas[replica].next = NONE
    if stations[station].blocked_head == NONE:
        stations[station].blocked_head = replica
    else:
        replicas[stations[station].blocked_tail].next = replica
    stations[station].blocked_tail = replica


@compiled
def unblock_next(layout: RowLayout, state: RowState, station: int) -> None:
    """If the station's queue has space, unblock the replica that has waited longest for it."""
    stations = layout.stations
    blocked = stations[station].blocked_head
    if blocked != NONE and stations[station].waiting_rows < stations[station].capacity:
        stations[station].blocked_head = layout.replicas[blocked].next
        make_runnable(layout, state, blocked)


@compiled
def first_stream(layout: RowLayout, draws: Draws, station: int) -> int:
    """Return the first stream that an outgoing row takes, counted within its station. A routed row takes only one."""
    stations = layout.stations
    if not stations[station].is_routed:
        return 0
    first, size = stations[station].out_first, stations[station].out_size
    last = layout.chain[stations[station].chain_first + stations[station].chain_size - 1]
    u = uniform(draws.streams, choice_stream(last))
    at = 0
    while at < size and layout.streams[first + at].share < u:
        at += 1
    return at


@compiled
def send(layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, replica: int) -> int:
    """Send the unsent rows of a replica. Return its state.

    IDLE: all rows are sent. BLOCKED: a downstream queue is full. BUSY: the pool of rows is full.
    """
    stations, replicas, streams = layout.stations, layout.replicas, layout.streams
    station = replicas[replica].station
    first, size = stations[station].out_first, stations[station].out_size
    while replicas[replica].unsent_rows > 0:
        at = replicas[replica].stream
        if at == NONE:
            at = first_stream(layout, draws, station)
        while at < size:
            replicas[replica].stream = at
            stream = first + at
            target = layout.operators[streams[stream].target].station
            if streams[stream].is_bounded and stations[target].waiting_rows >= stations[target].capacity:
                wait_for_space(layout, target, replica)
                return BLOCKED
            if state.status[0].free_places < 1:
                make_runnable(layout, state, replica)
                return BUSY
            arrive(layout, state, draws, counts, stream, replicas[replica].born_s)
            if streams[stream].is_bounded:  # the row took no space if a replica was idle or if it waits for its pair
                unblock_next(layout, state, target)
            at = size if stations[station].is_routed else at + 1
        replicas[replica].unsent_rows -= 1
        replicas[replica].stream = NONE
    return IDLE
