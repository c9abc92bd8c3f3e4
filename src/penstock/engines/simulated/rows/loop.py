"""The compiled row-by-row loop: process events in order of time.

An event is the end of a service (`subject` is the replica) or an arrival at a source (`subject` is -1 - source). A
replica that finds a downstream queue full keeps its rows and waits: back-pressure. If the pool of rows is full, the
loop returns in a consistent state; the caller enlarges the pool and calls it again.
"""

from __future__ import annotations

import math

from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.counts import SimulationCounts, count_latency, count_service
from penstock.engines.simulated.compiled.draws import Draws, service_seconds
from penstock.engines.simulated.compiled.event_heap import pop, push
from penstock.engines.simulated.compiled.outputs import rows_out_of
from penstock.engines.simulated.compiled.records import NONE
from penstock.engines.simulated.rows.arrivals import append_arrivals
from penstock.engines.simulated.rows.calls import begin_call, count_waiting, end_call
from penstock.engines.simulated.rows.records import BLOCKED, BUSY, IDLE, RowLayout, RowState
from penstock.engines.simulated.rows.routing import make_runnable, send, unblock_next
from penstock.engines.simulated.rows.row_pool import take_row

DONE, POOL_FULL = 0, 1


@compiled
def take(layout: RowLayout, state: RowState, counts: SimulationCounts, replica: int) -> bool:
    """Let a replica take the next row of its queue. Return False and mark it idle if the queue is empty."""
    stations, replicas, queues = layout.stations, layout.replicas, state.queues
    station, queue = replicas[replica].station, replicas[replica].queue
    if queues[queue].size == 0:
        replicas[replica].state = IDLE
        replicas[replica].next = queues[queue].idle
        queues[queue].idle = replica
        return False
    i = take_row(state, queues, queue)
    count_waiting(layout, counts, station, state.status[0].now_s)
    stations[station].waiting_rows -= 1
    replicas[replica].state = BUSY
    replicas[replica].born_s = state.pool[i].born_s
    replicas[replica].rows = 1
    replicas[replica].position = layout.operators[state.pool[i].operator].position
    unblock_next(layout, state, station)
    return True


@compiled
def read_log(layout: RowLayout, state: RowState, counts: SimulationCounts, replica: int) -> bool:
    """Let a source read the next rows of its log. Return False and mark it idle if the log is empty."""
    stations, replicas, queues = layout.stations, layout.replicas, state.queues
    station = replicas[replica].station
    queue = stations[station].first_queue
    if queues[queue].size == 0:
        replicas[replica].state = IDLE
        return False
    i = take_row(state, queues, queue)
    rows = state.pool[i].operator
    operator = layout.chain[stations[station].chain_first]
    stations[station].waiting_rows -= rows
    replicas[replica].born_s = state.pool[i].born_s
    replicas[replica].unsent_rows = rows
    replicas[replica].stream = NONE
    counts.operators[operator].rows_in += rows
    counts.operators[operator].rows_out += rows
    return True


@compiled
def finish_operator(layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, replica: int) -> None:
    """Move the rows of a replica from one operator to the next one, or out of the station."""
    stations, replicas, operators, now_s = layout.stations, layout.replicas, counts.operators, state.status[0].now_s
    station = replicas[replica].station
    operator = layout.chain[stations[station].chain_first + replicas[replica].position]
    rows = replicas[replica].rows
    operators[operator].rows_in += rows * layout.operators[operator].inputs
    replicas[replica].position += 1
    at_end = replicas[replica].position == stations[station].chain_size
    if at_end and stations[station].is_sink:
        count_latency(counts, now_s - replicas[replica].born_s, float(rows))
        replicas[replica].rows = 0
        return
    rows = rows_out_of(draws, state.outputs, operator, rows, now_s)
    operators[operator].rows_out += rows
    replicas[replica].rows = rows
    if at_end:
        replicas[replica].unsent_rows = rows
        replicas[replica].stream = NONE
        replicas[replica].rows = 0


@compiled
def entry_seconds(layout: RowLayout, replica: int) -> float:
    """Return the time to take the rows in service from the queue, if their first service is the next one."""
    if layout.replicas[replica].position > 0:
        return 0.0
    return float(layout.stations[layout.replicas[replica].station].entry_s)


@compiled
def begin_work(layout: RowLayout, state: RowState, replica: int) -> float:
    """Return how much longer a service takes that begins now: the work on its cores may need more."""
    core_share = layout.replicas[replica].core_share
    if core_share == 0.0:
        return 1.0
    pool = layout.replicas[replica].pool
    state.cores[pool] += core_share
    return max(1.0, float(state.cores[pool]))


@compiled
def begin_service(layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, replica: int) -> bool:
    """Start the next service of a replica that takes time. Return False if its rows left the station without one."""
    stations, replicas, status = layout.stations, layout.replicas, state.status
    while replicas[replica].rows > 0:
        station = replicas[replica].station
        operator = layout.chain[stations[station].chain_first + replicas[replica].position]
        seconds = service_seconds(draws, operator, replicas[replica].rows) + entry_seconds(layout, replica)
        if seconds > 0.0:
            replicas[replica].began_s = status[0].now_s
            replicas[replica].stretch = begin_work(layout, state, replica)
            slower = replicas[replica].slowdown * replicas[replica].stretch
            replicas[replica].due_s = status[0].now_s + seconds * slower
            push(state.events, status, replicas[replica].due_s, replica)
            begin_call(layout, state, replica)
            return True
        finish_operator(layout, state, draws, counts, replica)
    return False


@compiled
def continue_replica(layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, replica: int) -> int:
    """Let a replica work until it is idle, blocked or in service. Return DONE or POOL_FULL."""
    replicas = layout.replicas
    while True:
        if replicas[replica].unsent_rows > 0:
            sent = send(layout, state, draws, counts, replica)
            if sent == BUSY:
                return POOL_FULL
            if sent == BLOCKED:
                return DONE
        if replicas[replica].is_source:
            if not read_log(layout, state, counts, replica):
                return DONE
            continue
        if replicas[replica].rows == 0 and not take(layout, state, counts, replica):
            return DONE
        if begin_service(layout, state, draws, counts, replica):
            return DONE


@compiled
def end_service(layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, replica: int) -> None:
    """Count a service that ends now, and make the replica runnable."""
    replicas = layout.replicas
    operator = layout.chain[layout.stations[replicas[replica].station].chain_first + replicas[replica].position]
    slower = replicas[replica].slowdown * replicas[replica].stretch
    state.cores[replicas[replica].pool] -= replicas[replica].core_share
    mean_s = draws.distributions[2 * operator].mean * slower
    entry_s = entry_seconds(layout, replica) * slower
    counts.operators[operator].entry_s += entry_s
    seconds = replicas[replica].due_s - replicas[replica].began_s - entry_s
    count_service(counts.operators, operator, seconds, replicas[replica].rows, mean_s)
    end_call(layout, state, counts, replica, operator, seconds)
    replicas[replica].due_s = math.inf
    finish_operator(layout, state, draws, counts, replica)
    make_runnable(layout, state, replica)


@compiled
def run(layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, until_s: float) -> int:
    """Process all events until `until_s`. Return DONE, or POOL_FULL if the pool has no free place."""
    events, status = state.events, state.status
    while True:
        while status[0].runnable > 0:
            status[0].runnable -= 1
            replica = state.runnable[status[0].runnable]
            if continue_replica(layout, state, draws, counts, replica) == POOL_FULL:
                return POOL_FULL
        if status[0].events == 0 or events[0].at_s > until_s:
            status[0].now_s = max(status[0].now_s, until_s)
            return DONE
        subject = events[0].subject
        if subject < 0 and status[0].free_places < 1:  # the log of the source may need a place
            return POOL_FULL
        status[0].now_s = events[0].at_s
        pop(events, status)
        if subject < 0:
            append_arrivals(layout, state, draws, counts, -1 - subject)
        else:
            end_service(layout, state, draws, counts, subject)
