"""Rows that sources append, in the compiled loop: gaps are drawn, and pass at the rate of the moment."""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.compiling import compiled
from penstock.engines.simulated.counts import note_arrivals
from penstock.engines.simulated.draws import draw, draw_count
from penstock.engines.simulated.heap import push
from penstock.engines.simulated.pool import put
from penstock.engines.simulated.records import IDLE, NONE
from penstock.engines.simulated.todo import do_soon


@compiled
def next_arrival(arrivals: np.ndarray, rates: np.ndarray, source: int) -> float:
    """When `gap` has passed, counted in expected arrivals since `since`: time runs at the rate of the moment."""
    first, size = arrivals[source].rate_first, arrivals[source].rate_size
    at, left = arrivals[source].since, arrivals[source].gap
    repeat = arrivals[source].repeat_s
    offset = 0.0 if math.isinf(repeat) else math.floor(at / repeat) * repeat
    i = 0
    while i + 1 < size and offset + rates[first + i + 1].at <= at:
        i += 1
    while True:
        end = offset + (rates[first + i + 1].at if i + 1 < size else repeat)
        rate = rates[first + i].rate
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
def append(
    operators: np.ndarray,
    stations: np.ndarray,
    laws: np.ndarray,
    values: np.ndarray,
    servers: np.ndarray,
    queues: np.ndarray,
    rows: np.ndarray,
    arrivals: np.ndarray,
    rates: np.ndarray,
    events: np.ndarray,
    todo: np.ndarray,
    one: np.ndarray,
    counts: np.ndarray,
    rng: np.ndarray,
    source: int,
) -> None:
    """Rows of a source: sent on at once if nothing holds them up, else they wait in its log."""
    now = one[0].now
    operator = arrivals[source].operator
    station = operators[operator].station
    server = stations[station].first_server
    n = min(draw_count(laws, values, 2 * operator + 1, rng, 3 * operator + 1), arrivals[source].left)
    arrivals[source].left -= n
    if n > 0:
        note_arrivals(counts, operator, now, n)
        if servers[server].state == IDLE:
            servers[server].birth = now
            servers[server].left = n
            servers[server].stream = NONE
            counts[operator].rows_in += n
            counts[operator].rows_out += n
            do_soon(todo, one, servers, server)
        else:
            put(rows, one, queues, stations[station].first_queue, now, n)
            stations[station].waiting += n
    if arrivals[source].left > 0:
        arrivals[source].since = now
        arrivals[source].gap = draw(laws, values, 2 * operator, rng, 3 * operator)
        arrivals[source].due = next_arrival(arrivals, rates, source)
        push(events, one, arrivals[source].due, -1 - source)
    else:
        arrivals[source].due = math.inf
