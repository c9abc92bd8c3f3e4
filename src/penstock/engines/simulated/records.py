"""The records that the compiled loop of stations reads and writes. One array of records is one argument and one place
in memory, which is what makes the loop fast; outside of it a field is an array of its own, as in `servers["due"]`."""

from __future__ import annotations

from typing import Any

import numpy as np

_I, _F = np.int64, float

NONE = -1  # in place of an index
IDLE, BUSY, BLOCKED, DOWN = range(4)  # states of a replica
SHARED, IN_TURN, BY_SHARE = range(3)  # who gets an arriving row


Records = Any  # an array of records: numpy's types know nothing of fields, and mypy takes seconds to find that out


def record(**fields: type) -> Any:
    return np.dtype(list(fields.items()))


OPERATOR = record(
    station=_I,
    place=_I,  # within its station
    inputs=_I,  # rows that it takes at once: more than 1 where it pairs them
    pair_first=_I,  # into the pairing lists
    pair_size=_I,
)
STATION = record(
    chain_first=_I,  # into the chain of operators
    chain_size=_I,
    first_server=_I,
    replicas=_I,
    dealing=_I,
    share_first=_I,  # into the shares, which are cumulated by replica
    first_queue=_I,
    capacity=_I,  # rows that may wait
    out_first=_I,  # into the streams
    out_size=_I,
    routed=_I,  # 1: a row goes out on one stream or on none; 0: on all of them
    sink=_I,
    waiting=_I,  # rows
    turn=_I,  # whose turn it is, where rows are dealt in turn
    idle=_I,  # the first idle replica
    blocked_head=_I,  # replicas that wait for room here
    blocked_tail=_I,
)
STREAM = record(
    target=_I,  # operator
    share=_F,  # cumulated within the streams out of a station
    bounded=_I,  # 0: through a channel, which is a log without bound
    pair=_I,  # the pairing list that its rows wait on; -1: none
)
SERVER = record(
    station=_I,
    source=_I,
    slowdown=_F,
    state=_I,
    birth=_F,  # of the row at hand
    rows=_I,  # what it has become so far
    place=_I,  # within the station
    began=_F,
    due=_F,
    left=_I,  # rows still to send out
    stream=_I,  # that the next of them is for; -1: not drawn
    after=_I,  # next in the list of idle or of blocked ones
)
QUEUE = record(head=_I, tail=_I, size=_I)
ROW = record(
    birth=_F,
    operator=_I,  # where it is to enter; in a source's log: how many rows arrived together
    after=_I,
)
EVENT = record(at=_F, what=_I)  # a replica, or -1 - source
ARRIVALS = record(
    operator=_I,
    rate_first=_I,  # into the rates
    rate_size=_I,
    repeat_s=_F,  # infinite: never
    since=_F,  # the last arrival, or the last change of rate
    gap=_F,  # drawn then: at a rate of 1 the next arrival is so many seconds later
    due=_F,
    left=_I,  # rows still to come
)
RATE = record(at=_F, rate=_F)  # of batches of rows, not of rows
SIZES = record(free=_I, free_rows=_I, events=_I, todo=_I, now=_F)
COUNT = record(
    arrived=_I,  # rows that came to its queue or log
    rows_in=_I,  # rows that it has taken in and dealt with
    rows_out=_I,
    busy_s=_F,
    # What the spread of times follows from.
    last_s=_F,  # when the last row arrived, where rows arrive one by one
    gap_s2=_F,  # squares of the times between arrivals
    served=_I,  # times that rows were served, one or several together
    spread_s2=_F,  # squares of how far each was from its mean, over its rows
    # Of micro-batches; by the last operator of a pipeline, which gives it its name.
    batches=_I,
    batch_s=_F,
    batch_longest_s=_F,  # since the last window
    task_s=_F,
)
