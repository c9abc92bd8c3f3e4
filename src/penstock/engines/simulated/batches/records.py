"""The records and arrays of the micro-batch loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.engines.simulated.compiled.outputs import Outputs
from penstock.engines.simulated.compiled.records import Records, record

_I, _F = np.int64, float

COHORTS = 64  # cohorts per log; a full log merges new rows into its newest cohort

WAITING, PLANNING, LAUNCHING, RUNNING, HALTED = range(5)  # phases of a query
IN_TURN, BY_KEY, BY_SHARE = range(3)  # distribution of the rows of a stage over its tasks
FREE, LOST = -1, -2  # replace the query of a slot without a task

LOG = record(
    operator=_I,  # the operator that reads it; for the log of a source: the source
    port=_I,  # input of this operator
    head=_I,  # its first cohort, within its own ring
    size=_I,
    rows=_I,
    taken_rows=_I,  # rows of these that the current batch has read; they are removed when it commits
)
COHORT = record(rows=_I, first_s=_F, last_s=_F)  # rows whose append times are spread evenly between two times
INFLOW = record(  # arrivals at a source
    operator=_I,
    log=_I,
    query=_I,  # the query that reads it
    rate_first=_I,  # index into the rates
    rate_size=_I,
    repeat_s=_F,  # infinite: the rates do not repeat
    since_s=_F,  # arrivals are counted up to this time
    carry=_F,  # fraction of an arrival
    rows_left=_I,
)
QUERY = record(
    last_operator=_I,
    is_sink=_I,
    is_routed=_I,
    first_stage=_I,
    stages=_I,
    first_log=_I,  # index into the list of logs that it reads
    logs=_I,
    first_out=_I,  # index into the list of streams out of it
    outs=_I,
    phase=_I,
    stage=_I,
    finished_tasks=_I,
    running_tasks=_I,
    ready_first=_I,  # index of its ring of tasks that wait for a slot
    ready_capacity=_I,
    ready_head=_I,
    ready_tasks=_I,
    due_s=_F,  # next step of the driver
    began_s=_F,
    task_s=_F,  # slot time of the current batch
    batch_rows=_I,  # rows of the current batch
    limit_rows=_F,  # limit of the next batch
    stretch=_F,  # factor of the target duration, as in `penstock.engines.batch_size`
)
STAGE = record(
    chain_first=_I,  # index into the chain of operators
    chain_size=_I,
    tasks=_I,
    distribution=_I,
    share_first=_I,  # index into the shares
    unassigned_rows=_I,  # rows that are not in a task yet
    next_operator=_I,  # operator of the same query that reads its rows; NONE if they leave the query
    task_first=_I,  # index into the paces and the threads of tasks
)
WORK = record(  # work of an operator in the current batch
    waiting_rows=_I,  # rows at its input
    logged_rows=_I,  # rows of these that were read from a log
    rows_in=_I,
    rows_out=_I,
    busy_s=_F,
    services=_I,
    spread_s2=_F,
    called_s=_F,
    waited_s=_F,
)
OUT = record(log=_I, share=_F)  # shares are cumulated over the streams of a query
SLOT = record(query=_I, due_s=_F, task_s=_F)
SETTINGS = record(batch_s=_F, task_s=_F, trigger_s=_F, poll_s=_F, max_rows=_I, target_s=_F)
STATUS = record(
    events=_I,  # size of the event heap
    free_slots=_I,
    ready_tasks=_I,
    now_s=_F,
)


class QueryLayout(NamedTuple):
    """The queries of a plan. Operators are numbered by their position in `flow.operators`."""

    queries: Records
    stages: Records
    chain: np.ndarray  # the operators of all stages
    shares: np.ndarray  # cumulated share of the rows of each task
    paces: np.ndarray  # time of each task relative to one thread
    threads: np.ndarray  # calls that each task has in flight
    reads: np.ndarray  # the logs that each query reads
    outs: Records  # the streams out of each query
    readers: np.ndarray  # by source: operator that reads it within its query, or NONE; other operators: NOT_A_SOURCE
    is_sink: np.ndarray  # by operator
    ports: np.ndarray  # by operator: the input of its first consumer that reads it


NOT_A_SOURCE = -2


class BatchState(NamedTuple):
    """Logs, running tasks, upcoming events and the current time."""

    logs: Records
    cohorts: Records  # a ring of COHORTS for each log
    inflows: Records  # by source
    rates: Records
    outputs: Outputs
    slots: Records
    free_slots: np.ndarray
    ready_s: np.ndarray  # durations of the tasks that wait for a slot
    work: Records  # by operator
    settings: Records  # one SETTINGS record
    events: Records
    status: Records  # one STATUS record
