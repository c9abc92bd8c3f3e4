"""The compiled micro-batch loop: queries plan a batch, launch the tasks of one stage after another and commit.

The driver launches the k tasks of a stage in `task_s` each. A task then occupies a slot for the service time of its
rows. A stage with n rows of c seconds takes k task_s + n c / k, and longer if slots are scarce. A free slot goes to
the query with the fewest running tasks. Nothing is counted before its batch commits.

The subject of an event is a query (its driver's next step), or `len(queries)` + slot (the end of a task).
"""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.batches.batch_limit import next_stretch
from penstock.engines.simulated.batches.commit import commit
from penstock.engines.simulated.batches.logs import append_arrivals
from penstock.engines.simulated.batches.records import (
    BY_SHARE,
    FREE,
    IN_TURN,
    LAUNCHING,
    NOT_A_SOURCE,
    PLANNING,
    RUNNING,
    WAITING,
    BatchState,
    QueryLayout,
)
from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.counts import SimulationCounts, count_service
from penstock.engines.simulated.compiled.draws import Draws, binomial, choice_stream, service_seconds
from penstock.engines.simulated.compiled.event_heap import pop, push
from penstock.engines.simulated.compiled.outputs import arrive_at_port, rows_out_of
from penstock.engines.simulated.compiled.records import NONE


@compiled
def read_batch(layout: QueryLayout, state: BatchState, query: int) -> int:
    """Read the next batch of a query from its logs. Return the number of rows."""
    logs, work, readers = state.logs, state.work, layout.readers
    record = layout.queries[query]
    room = min(state.settings[0].max_rows, int(record.limit_rows))
    waiting = 0
    for at in range(record.first_log, record.first_log + record.logs):
        waiting += logs[layout.reads[at]].rows
    limit, total = room, 0
    for at in range(record.first_log, record.first_log + record.logs):
        log = layout.reads[at]
        rows = logs[log].rows
        # Each log contributes in proportion to its rows, rounded up so that no log starves.
        taken = min(rows, room) if waiting <= limit else min(rows, room, -(-rows * limit // waiting))
        logs[log].taken_rows = taken
        room -= taken
        total += taken
        operator = logs[log].operator
        work[operator].waiting_rows += taken
        work[operator].logged_rows += taken
        arrive_at_port(state.outputs, operator, logs[log].port, taken)
        if readers[operator] != NOT_A_SOURCE:
            work[operator].rows_in += taken
            work[operator].rows_out += taken
            if readers[operator] != NONE:
                work[readers[operator]].waiting_rows += taken
                arrive_at_port(state.outputs, readers[operator], layout.ports[operator], taken)
    layout.queries[query].batch_rows = total
    if total > 0:  # a reader on Spark does not count a poll without rows either
        layout.queries[query].stretch = next_stretch(record.stretch, total < waiting)
    return total


@compiled
def begin_batch(
    layout: QueryLayout, state: BatchState, draws: Draws, counts: SimulationCounts, query: int, now_s: float
) -> None:
    """Start a batch, or poll again later if there are no rows."""
    queries, settings = layout.queries, state.settings
    for source in range(len(state.inflows)):
        if state.inflows[source].query == query:
            append_arrivals(state, draws, counts, source, now_s)
    if read_batch(layout, state, query) == 0:
        queries[query].due_s = now_s + settings[0].poll_s
    else:
        queries[query].phase = PLANNING
        queries[query].began_s = now_s
        queries[query].task_s = 0.0
        queries[query].stage = 0
        queries[query].due_s = now_s + settings[0].batch_s
    push(state.events, state.status, queries[query].due_s, query)


@compiled
def begin_stage(layout: QueryLayout, state: BatchState, query: int, now_s: float) -> None:
    """Start to launch the tasks of the current stage."""
    queries, stages = layout.queries, layout.stages
    stage = queries[query].first_stage + queries[query].stage
    stages[stage].unassigned_rows = state.work[layout.chain[stages[stage].chain_first]].waiting_rows
    queries[query].phase = LAUNCHING
    queries[query].due_s = now_s + stages[stage].tasks * state.settings[0].task_s
    queries[query].finished_tasks = 0
    queries[query].running_tasks = 0
    queries[query].ready_head = 0
    push(state.events, state.status, queries[query].due_s, query)


@compiled
def rows_by_key(layout: QueryLayout, streams: np.ndarray, stage: int, task: int, operator: int) -> int:
    """Return the rows of one task: drawn if rows are distributed by key, or exactly its share of the rows."""
    record, shares = layout.stages[stage], layout.shares
    if task == record.tasks - 1:
        return int(record.unassigned_rows)
    at = record.share_first + task
    before = shares[at - 1] if task > 0 else 0.0
    rest = 1.0 - before
    own = shares[at] - before
    if record.distribution == BY_SHARE:
        return int(record.unassigned_rows * own / rest + 0.5) if rest > 1e-12 else 0
    return binomial(streams, choice_stream(operator), record.unassigned_rows, own / rest if rest > 1e-12 else 1.0)


@compiled
def task_seconds(layout: QueryLayout, state: BatchState, draws: Draws, stage: int, task: int) -> float:
    """Take the rows of one task through the operators of its stage. Return the duration of the task."""
    stages, work = layout.stages, state.work
    first, tasks = stages[stage].chain_first, stages[stage].tasks
    seconds = 0.0
    rows = 0
    for position in range(stages[stage].chain_size):
        operator = layout.chain[first + position]
        if position == 0 and stages[stage].distribution != IN_TURN:
            rows = rows_by_key(layout, draws.streams, stage, task, operator)
        else:
            waiting = work[operator].waiting_rows
            rows += waiting // tasks + (1 if task < waiting % tasks else 0)
        if position == 0:
            stages[stage].unassigned_rows -= rows
        if rows == 0:
            continue
        pace = layout.paces[stages[stage].task_first + task]
        took_s = service_seconds(draws, operator, rows) * pace
        seconds += took_s
        count_service(work, operator, took_s, rows, draws.distributions[2 * operator].mean * pace)
        # The calls of a task begin in rounds, as many at once as there are threads.
        in_flight = min(rows, layout.threads[stages[stage].task_first + task])
        work[operator].called_s += took_s * in_flight
        work[operator].waited_s += took_s * (rows - in_flight) / 2.0
        work[operator].rows_in += rows
        if not layout.is_sink[operator]:
            rows = rows_out_of(draws, state.outputs, operator, rows, state.status[0].now_s)
            work[operator].rows_out += rows
    return seconds


@compiled
def launch_tasks(layout: QueryLayout, state: BatchState, draws: Draws, query: int) -> None:
    """Make the tasks of the current stage ready, and give them the free slots."""
    queries = layout.queries
    stage = queries[query].first_stage + queries[query].stage
    for task in range(layout.stages[stage].tasks):
        seconds = task_seconds(layout, state, draws, stage, task)
        at = (queries[query].ready_head + queries[query].ready_tasks) % queries[query].ready_capacity
        state.ready_s[queries[query].ready_first + at] = seconds
        queries[query].ready_tasks += 1
        state.status[0].ready_tasks += 1
    queries[query].phase = RUNNING
    assign_slots(layout, state)


@compiled
def assign_slots(layout: QueryLayout, state: BatchState) -> None:
    """Give free slots to ready tasks. The query with the fewest running tasks comes first."""
    queries, slots, status = layout.queries, state.slots, state.status
    while status[0].free_slots > 0 and status[0].ready_tasks > 0:
        chosen = -1
        for query in range(len(queries)):
            if queries[query].ready_tasks > 0 and (
                chosen < 0 or queries[query].running_tasks < queries[chosen].running_tasks
            ):
                chosen = query
        status[0].free_slots -= 1
        status[0].ready_tasks -= 1
        slot = state.free_slots[status[0].free_slots]
        head = queries[chosen].ready_head
        seconds = state.ready_s[queries[chosen].ready_first + head]
        queries[chosen].ready_head = (head + 1) % queries[chosen].ready_capacity
        queries[chosen].ready_tasks -= 1
        queries[chosen].running_tasks += 1
        slots[slot].query = chosen
        slots[slot].task_s = seconds
        slots[slot].due_s = status[0].now_s + seconds
        push(state.events, status, slots[slot].due_s, len(queries) + slot)


@compiled
def end_task(layout: QueryLayout, state: BatchState, slot: int) -> int:
    """Free the slot of a task that ends now. Return the query of the task."""
    queries, slots, status = layout.queries, state.slots, state.status
    query = slots[slot].query
    slots[slot].query = FREE
    slots[slot].due_s = math.inf
    state.free_slots[status[0].free_slots] = slot
    status[0].free_slots += 1
    queries[query].running_tasks -= 1
    queries[query].finished_tasks += 1
    queries[query].task_s += slots[slot].task_s
    assign_slots(layout, state)
    return int(query)


@compiled
def finish_stage(layout: QueryLayout, state: BatchState, query: int, now_s: float) -> bool:
    """If all tasks of the current stage are done, start the next stage. Return True if that was the last stage."""
    queries, stages, work = layout.queries, layout.stages, state.work
    stage = queries[query].first_stage + queries[query].stage
    if queries[query].finished_tasks < stages[stage].tasks:
        return False
    last = layout.chain[stages[stage].chain_first + stages[stage].chain_size - 1]
    if stages[stage].next_operator != NONE:
        work[stages[stage].next_operator].waiting_rows += work[last].rows_out
        arrive_at_port(state.outputs, stages[stage].next_operator, layout.ports[last], work[last].rows_out)
    queries[query].stage += 1
    if queries[query].stage < queries[query].stages:
        begin_stage(layout, state, query, now_s)
        return False
    return True


@compiled
def continue_query(
    layout: QueryLayout, state: BatchState, draws: Draws, counts: SimulationCounts, query: int, now_s: float
) -> bool:
    """Execute the next step of a query's driver. Return True if its batch is complete."""
    queries = layout.queries
    queries[query].due_s = math.inf
    phase = queries[query].phase
    if phase == WAITING:
        begin_batch(layout, state, draws, counts, query, now_s)
    elif phase == LAUNCHING:
        launch_tasks(layout, state, draws, query)
    elif phase == PLANNING and queries[query].stages > 0:
        begin_stage(layout, state, query, now_s)
    elif phase == PLANNING:  # a query that only copies rows has no stages
        return True
    return False


@compiled
def run(layout: QueryLayout, state: BatchState, draws: Draws, counts: SimulationCounts, until_s: float) -> None:
    """Process all events until `until_s`. Halted queries have no events."""
    queries, events, status = layout.queries, state.events, state.status
    while status[0].events > 0 and events[0].at_s <= until_s:
        subject, now_s = events[0].subject, events[0].at_s
        status[0].now_s = now_s
        pop(events, status)
        if subject < len(queries):
            query = subject
            is_complete = continue_query(layout, state, draws, counts, query, now_s)
        else:
            query = end_task(layout, state, subject - len(queries))
            is_complete = finish_stage(layout, state, query, now_s)
        if is_complete:
            commit(layout, state, draws, counts, query, now_s)
    status[0].now_s = max(status[0].now_s, until_s)
    for source in range(len(state.inflows)):
        append_arrivals(state, draws, counts, source, until_s)
