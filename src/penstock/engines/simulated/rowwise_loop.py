"""The compiled loop of stations that work row by row: events in order of time, until a given moment.

Rows that wait lie in linked lists within one pool. An event is a replica that has finished an operator, or a source
whose next rows are due. A replica whose rows find no room downstream keeps them and waits for it: back-pressure. When
the pool is full the loop returns in good order, is given a larger one and goes on.

`one` is the single record of SIZES: how much of the pool, of the events and of the list of things to do is in use.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.arrivals import append
from penstock.engines.simulated.compiling import compiled
from penstock.engines.simulated.counts import note_arrivals, note_service
from penstock.engines.simulated.draws import sum_of_counts, sum_of_times, uniform
from penstock.engines.simulated.heap import pop, push
from penstock.engines.simulated.histogram import note
from penstock.engines.simulated.pool import put, take_first
from penstock.engines.simulated.records import BLOCKED, BUSY, IDLE, IN_TURN, NONE, SHARED
from penstock.engines.simulated.todo import do_soon

DONE, POOL_FULL = 0, 1


@compiled
def queue_of(stations: np.ndarray, shares: np.ndarray, rng: np.ndarray, station: int, operator: int) -> int:
    """Where an arriving row waits: on the one queue, on the next replica's, or on the one that has its key."""
    first = stations[station].first_queue
    dealing = stations[station].dealing
    if dealing == SHARED:
        return int(first)
    if dealing == IN_TURN:
        turn = stations[station].turn
        stations[station].turn = (turn + 1) % stations[station].replicas
        return int(first + turn)
    u = uniform(rng, 3 * operator + 2)
    low, high = 0, stations[station].replicas - 1
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
    operators: np.ndarray,
    stations: np.ndarray,
    shares: np.ndarray,
    servers: np.ndarray,
    queues: np.ndarray,
    rows: np.ndarray,
    todo: np.ndarray,
    one: np.ndarray,
    rng: np.ndarray,
    station: int,
    operator: int,
    birth: float,
) -> None:
    """A row comes to a station: an idle replica takes it, or it waits."""
    queue = queue_of(stations, shares, rng, station, operator)
    if stations[station].dealing == SHARED:
        server = stations[station].idle
        if server != NONE:
            stations[station].idle = servers[server].after
    else:
        server = stations[station].first_server + queue - stations[station].first_queue
        if servers[server].state != IDLE:
            server = NONE
    if server == NONE:
        put(rows, one, queues, queue, birth, operator)
        stations[station].waiting += 1
    else:
        servers[server].birth = birth
        servers[server].rows = 1
        servers[server].place = operators[operator].place
        do_soon(todo, one, servers, server)


@compiled
def arrive(
    operators: np.ndarray,
    stations: np.ndarray,
    streams: np.ndarray,
    shares: np.ndarray,
    servers: np.ndarray,
    queues: np.ndarray,
    pairs: np.ndarray,
    rows: np.ndarray,
    todo: np.ndarray,
    one: np.ndarray,
    counts: np.ndarray,
    rng: np.ndarray,
    stream: int,
    birth: float,
) -> None:
    operator = streams[stream].target
    note_arrivals(counts, operator, one[0].now, 1)
    station = operators[operator].station
    waits_on = streams[stream].pair
    if waits_on != NONE:
        put(rows, one, pairs, waits_on, birth, operator)
        first, size = operators[operator].pair_first, operators[operator].pair_size
        for other in range(first, first + size):
            if pairs[other].size == 0:
                return
        for other in range(first, first + size):
            birth = min(birth, rows[take_first(rows, one, pairs, other)].birth)
    enter(operators, stations, shares, servers, queues, rows, todo, one, rng, station, operator, birth)


@compiled
def wait_for_room(stations: np.ndarray, servers: np.ndarray, station: int, server: int) -> None:
    servers[server].state = BLOCKED
    servers[server].after = NONE
    if stations[station].blocked_head == NONE:
        stations[station].blocked_head = server
    else:
        servers[stations[station].blocked_tail].after = server
    stations[station].blocked_tail = server


@compiled
def give_room(stations: np.ndarray, servers: np.ndarray, todo: np.ndarray, one: np.ndarray, station: int) -> None:
    """Where there is room, to the one that has waited longest for it."""
    blocked = stations[station].blocked_head
    if blocked != NONE and stations[station].waiting < stations[station].capacity:
        stations[station].blocked_head = servers[blocked].after
        do_soon(todo, one, servers, blocked)


@compiled
def send(
    operators: np.ndarray,
    stations: np.ndarray,
    chain: np.ndarray,
    streams: np.ndarray,
    shares: np.ndarray,
    servers: np.ndarray,
    queues: np.ndarray,
    pairs: np.ndarray,
    rows: np.ndarray,
    todo: np.ndarray,
    one: np.ndarray,
    counts: np.ndarray,
    rng: np.ndarray,
    server: int,
) -> int:
    """Sends out what a replica holds: IDLE if all is gone, BLOCKED if there is no room, BUSY if the pool is full."""
    station = servers[server].station
    first, size = stations[station].out_first, stations[station].out_size
    routed = stations[station].routed
    while servers[server].left > 0:
        at = servers[server].stream
        if at == NONE:
            at = 0
            if routed:
                last = chain[stations[station].chain_first + stations[station].chain_size - 1]
                u = uniform(rng, 3 * last + 2)
                while at < size and streams[first + at].share < u:
                    at += 1
        while at < size:
            servers[server].stream = at
            stream = first + at
            if streams[stream].bounded:
                target = operators[streams[stream].target].station
                if stations[target].waiting >= stations[target].capacity:
                    wait_for_room(stations, servers, target, server)
                    return BLOCKED
            if one[0].free_rows < 1:
                do_soon(todo, one, servers, server)
                return BUSY
            arrive(
                operators, stations, streams, shares, servers, queues, pairs, rows, todo, one, counts, rng,
                stream, servers[server].birth,
            )  # fmt: skip
            if streams[stream].bounded:  # a row that found an idle replica, or waits for its pair, took no room
                give_room(stations, servers, todo, one, operators[streams[stream].target].station)
            at = size if routed else at + 1
        servers[server].left -= 1
        servers[server].stream = NONE
    return IDLE


@compiled
def take(
    operators: np.ndarray,
    stations: np.ndarray,
    servers: np.ndarray,
    queues: np.ndarray,
    rows: np.ndarray,
    todo: np.ndarray,
    one: np.ndarray,
    server: int,
) -> bool:
    """The next row of its queue, if there is one; the room that it leaves is given to who waits for it."""
    station = servers[server].station
    queue = stations[station].first_queue
    if stations[station].dealing != SHARED:
        queue += server - stations[station].first_server
    if queues[queue].size == 0:
        servers[server].state = IDLE
        if stations[station].dealing == SHARED:
            servers[server].after = stations[station].idle
            stations[station].idle = server
        return False
    i = take_first(rows, one, queues, queue)
    stations[station].waiting -= 1
    servers[server].state = BUSY
    servers[server].birth = rows[i].birth
    servers[server].rows = 1
    servers[server].place = operators[rows[i].operator].place
    give_room(stations, servers, todo, one, station)
    return True


@compiled
def read_log(
    stations: np.ndarray,
    chain: np.ndarray,
    servers: np.ndarray,
    queues: np.ndarray,
    rows: np.ndarray,
    one: np.ndarray,
    counts: np.ndarray,
    server: int,
) -> bool:
    """The next rows of a source's log, if there are any."""
    station = servers[server].station
    queue = stations[station].first_queue
    if queues[queue].size == 0:
        servers[server].state = IDLE
        return False
    i = take_first(rows, one, queues, queue)
    n = rows[i].operator
    operator = chain[stations[station].chain_first]
    stations[station].waiting -= n
    servers[server].birth = rows[i].birth
    servers[server].left = n
    servers[server].stream = NONE
    counts[operator].rows_in += n
    counts[operator].rows_out += n
    return True


@compiled
def finish(
    operators: np.ndarray,
    stations: np.ndarray,
    chain: np.ndarray,
    laws: np.ndarray,
    values: np.ndarray,
    servers: np.ndarray,
    counts: np.ndarray,
    stays: np.ndarray,
    stay_sum: np.ndarray,
    rng: np.ndarray,
    now: float,
    server: int,
) -> None:
    """A replica has taken its rows through one operator: on to the next one, or out."""
    station = servers[server].station
    operator = chain[stations[station].chain_first + servers[server].place]
    n = servers[server].rows
    counts[operator].rows_in += n * operators[operator].inputs
    servers[server].place += 1
    at_end = servers[server].place == stations[station].chain_size
    if at_end and stations[station].sink:
        note(stays, stay_sum, now - servers[server].birth, float(n))
        servers[server].rows = 0
        return
    n = sum_of_counts(laws, values, 2 * operator + 1, rng, 3 * operator + 1, n)
    counts[operator].rows_out += n
    servers[server].rows = n
    if at_end:
        servers[server].left = n
        servers[server].stream = NONE
        servers[server].rows = 0


@compiled
def run(
    operators: np.ndarray,
    stations: np.ndarray,
    chain: np.ndarray,
    streams: np.ndarray,
    shares: np.ndarray,
    laws: np.ndarray,
    values: np.ndarray,
    servers: np.ndarray,
    queues: np.ndarray,
    pairs: np.ndarray,
    rows: np.ndarray,
    arrivals: np.ndarray,
    rates: np.ndarray,
    events: np.ndarray,
    todo: np.ndarray,
    one: np.ndarray,
    counts: np.ndarray,
    stays: np.ndarray,
    stay_sum: np.ndarray,
    rng: np.ndarray,
    until: float,
) -> int:
    while True:
        while one[0].todo > 0:
            one[0].todo -= 1
            server = todo[one[0].todo]
            working = True
            while working:  # takes the replica as far as it comes without time passing
                if servers[server].left > 0:
                    after = send(
                        operators, stations, chain, streams, shares, servers, queues, pairs, rows, todo, one, counts,
                        rng, server,
                    )  # fmt: skip
                    if after == BUSY:
                        return POOL_FULL
                    if after == BLOCKED:
                        break
                if servers[server].source:
                    working = read_log(stations, chain, servers, queues, rows, one, counts, server)
                    continue
                if servers[server].rows == 0 and not take(
                    operators, stations, servers, queues, rows, todo, one, server
                ):
                    break
                while servers[server].rows > 0:
                    station = servers[server].station
                    operator = chain[stations[station].chain_first + servers[server].place]
                    service = sum_of_times(laws, values, 2 * operator, rng, 3 * operator, servers[server].rows)
                    if service > 0.0:
                        servers[server].began = one[0].now
                        servers[server].due = one[0].now + service * servers[server].slowdown
                        push(events, one, servers[server].due, server)
                        working = False
                        break
                    finish(
                        operators, stations, chain, laws, values, servers, counts, stays, stay_sum, rng, one[0].now,
                        server,
                    )  # fmt: skip
        if one[0].events == 0 or events[0].at > until:
            one[0].now = max(one[0].now, until)
            return DONE
        what = events[0].what
        if what < 0:
            if one[0].free_rows < 1:  # a source may have to keep rows
                return POOL_FULL
            one[0].now = events[0].at
            pop(events, one)
            append(
                operators, stations, laws, values, servers, queues, rows, arrivals, rates, events, todo, one, counts,
                rng, -1 - what,
            )  # fmt: skip
        else:
            one[0].now = events[0].at
            pop(events, one)
            operator = chain[stations[servers[what].station].chain_first + servers[what].place]
            mean_s = laws[2 * operator].mean * servers[what].slowdown
            note_service(counts, operator, servers[what].due - servers[what].began, servers[what].rows, mean_s)
            servers[what].due = math.inf
            finish(operators, stations, chain, laws, values, servers, counts, stays, stay_sum, rng, one[0].now, what)
            do_soon(todo, one, servers, what)
