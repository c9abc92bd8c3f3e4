"""Arrivals at sources in the row-by-row loop.

A gap is drawn in units of expected arrivals. It passes at the current rate, so a rate that changes within a gap
shortens or lengthens the rest of it.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.counts import SimulationCounts, count_arrivals
from penstock.engines.simulated.compiled.draws import Draws, draw, draw_count
from penstock.engines.simulated.compiled.event_heap import push
from penstock.engines.simulated.compiled.records import NONE
from penstock.engines.simulated.rows.records import IDLE, RowLayout, RowState
from penstock.engines.simulated.rows.routing import make_runnable
from penstock.engines.simulated.rows.row_pool import append_row


@compiled
def next_arrival_s(arrivals: np.ndarray, rates: np.ndarray, source: int) -> float:
    """Return the time at which the current gap of a source ends; infinity if the rate stays 0."""
    first, size = arrivals[source].rate_first, arrivals[source].rate_size
    at, left = arrivals[source].since_s, arrivals[source].gap
    repeat = arrivals[source].repeat_s
    offset = 0.0 if math.isinf(repeat) else math.floor(at / repeat) * repeat
    i = 0
    while i + 1 < size and offset + rates[first + i + 1].from_s <= at:
        i += 1
    while True:
        end = offset + (rates[first + i + 1].from_s if i + 1 < size else repeat)
        rate = rates[first + i].per_s
        if rate > 0.0 and at + left / rate <= end:
            return float(at + left / rate)
        if math.isinf(end):
            return math.inf
        left -= rate * (end - at)
        at = end
        i += 1
        if i == size:
            i = 0
            offset += repeat


@compiled
def append_arrivals(layout: RowLayout, state: RowState, draws: Draws, counts: SimulationCounts, source: int) -> None:
    """Append the rows that arrive now, and draw the next gap. A source that is not idle keeps the rows in its log."""
    arrivals, stations, replicas = state.arrivals, layout.stations, layout.replicas
    now_s = state.status[0].now_s
    operator = arrivals[source].operator
    station = layout.operators[operator].station
    replica = stations[station].first_replica
    rows = min(draw_count(draws, 2 * operator + 1, 3 * operator + 1), arrivals[source].rows_left)
    arrivals[source].rows_left -= rows
    if rows > 0:
        count_arrivals(counts.operators, operator, now_s, rows)
        if replicas[replica].state == IDLE:
            replicas[replica].born_s = now_s
            replicas[replica].unsent_rows = rows
            replicas[replica].stream = NONE
            counts.operators[operator].rows_in += rows
            counts.operators[operator].rows_out += rows
            make_runnable(layout, state, replica)
        else:
            append_row(state, state.queues, stations[station].first_queue, now_s, rows)
            stations[station].waiting_rows += rows
    if arrivals[source].rows_left > 0:
        arrivals[source].since_s = now_s
        arrivals[source].gap = draw(draws, 2 * operator, 3 * operator)
        arrivals[source].due_s = next_arrival_s(arrivals, state.rates, source)
        push(state.events, state.status, arrivals[source].due_s, -1 - source)
    else:
        arrivals[source].due_s = math.inf
