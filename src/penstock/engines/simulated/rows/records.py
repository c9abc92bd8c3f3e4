"""The records and arrays of the row-by-row loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.engines.simulated.compiled.outputs import Outputs
from penstock.engines.simulated.compiled.records import Records, record

_I, _F = np.int64, float

IDLE, BUSY, BLOCKED, DOWN = range(4)  # states of a replica
SHARED, ROUND_ROBIN, BY_KEY = range(3)  # dispatch of arriving rows to replicas

OPERATOR = record(
    station=_I,
    position=_I,  # within its station
    inputs=_I,  # rows that it takes at once: more than 1 if it pairs rows
    pair_first=_I,  # index of its first pairing list
    pair_size=_I,
)
STATION = record(
    chain_first=_I,  # index into the chain of operators
    chain_size=_I,
    first_replica=_I,
    replicas=_I,
    dispatch=_I,
    queues=_I,
    share_first=_I,  # index into the shares
    first_queue=_I,
    capacity=_I,  # rows that may wait
    out_first=_I,  # index into the streams
    out_size=_I,
    is_routed=_I,  # 1: an outgoing row goes to at most one stream; 0: it goes to all of them
    is_sink=_I,
    entry_s=_F,  # time to take a row from the queue
    bundles=_I,  # replicas of the plan, each with some threads
    group_first=_I,  # index of the first group of calls
    waiting_rows=_I,
    waiting_since_s=_F,  # the last change of `waiting_rows`
    next_replica=_I,  # replica that gets the next row in round-robin dispatch
    blocked_head=_I,  # replicas that wait for space in this station's queue
    blocked_tail=_I,
)
STREAM = record(
    target=_I,  # operator
    share=_F,  # cumulated over the streams of a station
    is_bounded=_I,  # 0 for a channel, which is an unbounded log
    pair=_I,  # pairing list that its rows join; NONE if the target does not pair rows
    port=_I,  # input of the target
)
REPLICA = record(
    station=_I,
    is_source=_I,
    slowdown=_F,
    stretch=_F,  # how much longer the service in progress takes, because other work needs the core of the slot
    bundle=_I,  # the replica of the plan to which the thread belongs, within the station
    pool=_I,  # of cores
    core_share=_F,  # cores of its pool that it uses while it works; 0: not shared
    queue=_I,
    state=_I,
    born_s=_F,  # append time of the row in service
    rows=_I,  # number of rows that it has become within the station
    position=_I,  # within the station
    began_s=_F,
    due_s=_F,
    unsent_rows=_I,
    stream=_I,  # stream of the next unsent row; NONE if it was not drawn yet
    next=_I,  # next replica in the list of idle or blocked replicas
)
GROUP = record(  # calls of one operator in one replica of the plan
    in_flight=_I,
    since_s=_F,  # since when the time with calls in flight is not counted
)
QUEUE = record(
    head=_I,
    tail=_I,
    size=_I,
    idle=_I,  # head of the list of idle replicas that take rows from it
)
ROW = record(
    born_s=_F,
    operator=_I,  # operator that the row waits for; in the log of a source: the number of rows that arrived together
    next=_I,
)
ARRIVALS = record(
    operator=_I,
    rate_first=_I,  # index into the rates
    rate_size=_I,
    repeat_s=_F,  # infinite: the rates do not repeat
    since_s=_F,  # the last arrival, or the last change of the rate
    gap=_F,  # expected arrivals between `since_s` and the next arrival
    due_s=_F,
    rows_left=_I,
)
STATUS = record(
    first_free=_I,  # free place in the pool of rows
    free_places=_I,
    events=_I,  # size of the event heap
    runnable=_I,  # size of the list of runnable replicas
    now_s=_F,
)


class RowLayout(NamedTuple):
    """The stations of a plan. Operators are numbered by their position in `flow.operators`."""

    operators: Records
    stations: Records
    chain: np.ndarray  # the operators of all stations
    streams: Records
    shares: np.ndarray  # cumulated share of the rows of each queue
    replicas: Records


class RowState(NamedTuple):
    """Waiting rows, upcoming events and the current time."""

    queues: Records
    pairs: Records  # rows that wait for a row of another input
    pool: Records  # all waiting rows; queues and pairing lists are linked lists in it
    arrivals: Records  # by source
    rates: Records
    outputs: Outputs
    events: Records
    groups: Records  # one row per replica of the plan and operator of its station
    cores: np.ndarray  # by pool: the sum of the core shares of the replicas in service
    runnable: np.ndarray  # replicas that can continue without time passing
    status: Records  # one STATUS record
