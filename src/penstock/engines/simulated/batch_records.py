"""The records that the compiled loop of micro-batches reads and writes."""

from __future__ import annotations

import numpy as np

from penstock.engines.simulated.records import record

_I, _F = np.int64, float


COHORTS = 64  # of one log; when it is full its newest ones become one

WAITING, PLANNING, LAUNCHING, RUNNING, HALTED = range(5)  # phases of a query
FREE, GONE = -1, -2  # in place of the query whose task a slot runs

LOG = record(
    operator=_I,  # that reads it; of a source: the source itself
    head=_I,  # its first cohort, within its own ring
    size=_I,
    rows=_I,
    taken=_I,  # rows of these that are in the batch at hand; they go when it is committed
)
COHORT = record(rows=_I, low=_F, high=_F)  # rows that were born evenly between two moments
INFLOW = record(
    operator=_I,
    log=_I,
    query=_I,  # that reads it
    rate_first=_I,
    rate_size=_I,
    repeat_s=_F,
    since=_F,  # arrivals are counted up to here
    carry=_F,  # what is left of an arrival
    left=_I,  # rows still to come
)
QUERY = record(
    exit=_I,  # its last operator
    sink=_I,
    routed=_I,
    first_stage=_I,
    stages=_I,
    first_log=_I,  # into the list of logs that it reads
    logs=_I,
    first_out=_I,  # into the list of streams out
    outs=_I,
    phase=_I,
    stage=_I,
    finished=_I,
    running=_I,
    ready_first=_I,  # into the times of tasks that wait for a slot: a ring of its own
    ready_room=_I,
    ready_head=_I,
    ready=_I,
    due=_F,  # the driver's next step
    began=_F,
    task_s=_F,  # of the batch at hand
    given=_I,  # rows of the batch at hand
    cap=_F,  # rows that the next one may have
)
STAGE = record(
    chain_first=_I,
    chain_size=_I,
    tasks=_I,
    by_share=_I,
    share_first=_I,
    left=_I,  # rows that are not in a task yet
    after=_I,  # the operator of this query that its rows go to; -1: they leave the query
)
OPERATOR = record(  # within the batch at hand
    rows=_I,  # at its entrance
    logged=_I,  # of these: read from a log
    came=_I,
    out=_I,
    busy_s=_F,
    served=_I,
    spread_s2=_F,
)
OUT = record(log=_I, share=_F)  # cumulated
SLOT = record(query=_I, due=_F, seconds=_F)
SETTINGS = record(batch_s=_F, task_s=_F, trigger_s=_F, poll_s=_F, most_rows=_I, aim_s=_F)
SIZES = record(events=_I, free=_I, ready=_I, now=_F)
