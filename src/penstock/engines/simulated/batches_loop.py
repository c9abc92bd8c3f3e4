"""The compiled loop of micro-batches: queries plan a batch, launch the tasks of one stage after another and commit.

A driver launches the k tasks of a stage, `task_s` each; then a task holds a slot for as long as its rows take. With n
rows and c seconds a row a stage takes k task_s + n c / k, and longer where slots are fewer or taken. A slot that is
free goes to the query with the fewest running tasks. Nothing counts before its batch is committed.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.batch_records import FREE, HALTED, LAUNCHING, PLANNING, RUNNING, WAITING
from penstock.engines.simulated.compiling import compiled
from penstock.engines.simulated.counts import note_service
from penstock.engines.simulated.draws import binomial, sum_of_counts, sum_of_times
from penstock.engines.simulated.heap import pop, push
from penstock.engines.simulated.logs import add_cohort, append_until, commit_log, note_cohort


@compiled
def look(
    queries: np.ndarray,
    reads: np.ndarray,
    logs: np.ndarray,
    readers: np.ndarray,
    work: np.ndarray,
    settings: np.ndarray,
    query: int,
) -> int:
    """Takes what there is into a batch; how many rows that are."""
    room = min(settings[0].most_rows, int(queries[query].cap))
    waiting = 0
    for at in range(queries[query].first_log, queries[query].first_log + queries[query].logs):
        waiting += logs[reads[at]].rows
    most, total = room, 0
    for at in range(queries[query].first_log, queries[query].first_log + queries[query].logs):
        log = reads[at]
        rows = logs[log].rows
        # Each log gives its part of what waits, rounded up so that none waits for ever.
        taken = min(rows, room) if waiting <= most else min(rows, room, -(-rows * most // waiting))
        logs[log].taken = taken
        room -= taken
        total += taken
        operator = logs[log].operator
        work[operator].rows += taken
        work[operator].logged += taken
        if readers[operator] >= -1:  # a source: it passes its rows on
            work[operator].came += taken
            work[operator].out += taken
            if readers[operator] >= 0:
                work[readers[operator]].rows += taken
    queries[query].given = total
    return total


@compiled
def task_seconds(
    stages: np.ndarray,
    chain: np.ndarray,
    shares: np.ndarray,
    sinks: np.ndarray,
    laws: np.ndarray,
    values: np.ndarray,
    work: np.ndarray,
    rng: np.ndarray,
    stage: int,
    task: int,
) -> float:
    """What the rows of one task take; what they become goes on."""
    first, tasks = stages[stage].chain_first, stages[stage].tasks
    seconds = 0.0
    n = 0
    for place in range(stages[stage].chain_size):
        operator = chain[first + place]
        rows = work[operator].rows
        if place > 0 or not stages[stage].by_share:
            n += rows // tasks + (1 if task < rows % tasks else 0)
        elif task == tasks - 1:
            n = stages[stage].left
        else:
            at = stages[stage].share_first + task
            rest = 1.0 - (shares[at - 1] if task > 0 else 0.0)
            own = shares[at] - (shares[at - 1] if task > 0 else 0.0)
            n = binomial(rng, 3 * operator + 2, stages[stage].left, own / rest if rest > 1e-12 else 1.0)
        if place == 0:
            stages[stage].left -= n
        if n == 0:
            continue
        took = sum_of_times(laws, values, 2 * operator, rng, 3 * operator, n)
        seconds += took
        note_service(work, operator, took, n, laws[2 * operator].mean)
        work[operator].came += n
        if not sinks[operator]:
            n = sum_of_counts(laws, values, 2 * operator + 1, rng, 3 * operator + 1, n)
            work[operator].out += n
    return seconds


@compiled
def give_slot(
    queries: np.ndarray, slots: np.ndarray, free: np.ndarray, ready_s: np.ndarray, events: np.ndarray, one: np.ndarray
) -> None:
    """Free slots take tasks that wait, of the query with the fewest running ones first."""
    while one[0].free > 0 and one[0].ready > 0:
        chosen = -1
        for query in range(len(queries)):
            if queries[query].ready > 0 and (chosen < 0 or queries[query].running < queries[chosen].running):
                chosen = query
        one[0].free -= 1
        one[0].ready -= 1
        slot = free[one[0].free]
        head = queries[chosen].ready_head
        seconds = ready_s[queries[chosen].ready_first + head]
        queries[chosen].ready_head = (head + 1) % queries[chosen].ready_room
        queries[chosen].ready -= 1
        queries[chosen].running += 1
        slots[slot].query = chosen
        slots[slot].seconds = seconds
        slots[slot].due = one[0].now + seconds
        push(events, one, slots[slot].due, len(queries) + slot)


@compiled
def make_ready(queries: np.ndarray, ready_s: np.ndarray, one: np.ndarray, query: int, seconds: float) -> None:
    at = (queries[query].ready_head + queries[query].ready) % queries[query].ready_room
    ready_s[queries[query].ready_first + at] = seconds
    queries[query].ready += 1
    one[0].ready += 1


@compiled
def begin_stage(
    queries: np.ndarray,
    stages: np.ndarray,
    chain: np.ndarray,
    work: np.ndarray,
    settings: np.ndarray,
    now: float,
    query: int,
) -> None:
    stage = queries[query].first_stage + queries[query].stage
    stages[stage].left = work[chain[stages[stage].chain_first]].rows
    queries[query].phase = LAUNCHING
    queries[query].due = now + stages[stage].tasks * settings[0].task_s
    queries[query].finished = 0
    queries[query].running = 0
    queries[query].ready_head = 0


@compiled
def commit(
    queries: np.ndarray,
    stages: np.ndarray,
    chain: np.ndarray,
    reads: np.ndarray,
    outs: np.ndarray,
    logs: np.ndarray,
    cohorts: np.ndarray,
    work: np.ndarray,
    settings: np.ndarray,
    counts: np.ndarray,
    stays: np.ndarray,
    stay_sum: np.ndarray,
    rng: np.ndarray,
    now: float,
    query: int,
) -> None:
    exit_at = queries[query].exit
    total_in = 0
    for at in range(queries[query].first_log, queries[query].first_log + queries[query].logs):
        total_in += logs[reads[at]].taken
    rows_out = work[exit_at].came if queries[query].sink else work[exit_at].out
    seen, sent = 0, 0
    for at in range(queries[query].first_log, queries[query].first_log + queries[query].logs):
        while True:
            rows, low, high = commit_log(logs, cohorts, reads[at])
            if rows == 0:
                break
            seen += rows
            # Rounded on the running sum, so that no row is lost to rounding.
            share = math.floor(rows_out * (seen / total_in) + 0.5) - sent
            sent += share
            if share <= 0:
                continue
            if queries[query].sink:
                note_cohort(stays, stay_sum, now, low, high, float(share))
                continue
            rest, gone = share, 0.0
            for out in range(queries[query].first_out, queries[query].first_out + queries[query].outs):
                part = share
                if queries[query].routed:
                    own = outs[out].share - gone
                    part = binomial(rng, 3 * exit_at + 2, rest, own / (1.0 - gone) if gone < 1.0 else 0.0)
                    gone = outs[out].share
                    rest -= part
                counts[logs[outs[out].log].operator].arrived += part
                add_cohort(logs, cohorts, outs[out].log, part, low, high)
    for stage in range(queries[query].first_stage, queries[query].first_stage + queries[query].stages):
        for place in range(stages[stage].chain_first, stages[stage].chain_first + stages[stage].chain_size):
            count(counts, work, chain[place])
    for at in range(queries[query].first_log, queries[query].first_log + queries[query].logs):
        count(counts, work, logs[reads[at]].operator)
    took = now - queries[query].began
    counts[exit_at].batches += 1
    counts[exit_at].batch_s += took
    counts[exit_at].batch_longest_s = max(counts[exit_at].batch_longest_s, took)
    counts[exit_at].task_s += queries[query].task_s
    resize(queries, stages, settings, query, took)


@compiled
def resize(queries: np.ndarray, stages: np.ndarray, settings: np.ndarray, query: int, took: float) -> None:
    """How many rows the next batch may have, so that it lasts for about `aim_s`.

    What a batch costs however few its rows is not made shorter by fewer rows, so rows get as much time as goes into
    that. Down by half at most and up fourfold at most, and up only after a batch that was full.
    """
    if math.isinf(settings[0].aim_s):
        return
    overhead = settings[0].batch_s
    for stage in range(queries[query].first_stage, queries[query].first_stage + queries[query].stages):
        overhead += stages[stage].tasks * settings[0].task_s
    budget = max(settings[0].aim_s - overhead, overhead)
    fit = queries[query].given * budget / max(took - overhead, budget / 4.0)
    if fit < queries[query].cap:
        queries[query].cap = max(1.0, queries[query].cap / 2.0, fit)
    elif queries[query].given >= queries[query].cap / 2.0:
        queries[query].cap = min(fit, queries[query].cap * 4.0)


@compiled
def count(counts: np.ndarray, work: np.ndarray, operator: int) -> None:
    """Once for each operator: what is counted is wiped out."""
    counts[operator].arrived += work[operator].came - work[operator].logged
    counts[operator].rows_in += work[operator].came
    counts[operator].rows_out += work[operator].out
    counts[operator].busy_s += work[operator].busy_s
    counts[operator].served += work[operator].served
    counts[operator].spread_s2 += work[operator].spread_s2
    work[operator].rows = 0
    work[operator].logged = 0
    work[operator].came = 0
    work[operator].out = 0
    work[operator].busy_s = 0.0
    work[operator].served = 0
    work[operator].spread_s2 = 0.0


@compiled
def run(
    queries: np.ndarray,
    stages: np.ndarray,
    chain: np.ndarray,
    shares: np.ndarray,
    reads: np.ndarray,
    outs: np.ndarray,
    readers: np.ndarray,
    sinks: np.ndarray,
    laws: np.ndarray,
    values: np.ndarray,
    logs: np.ndarray,
    cohorts: np.ndarray,
    inflows: np.ndarray,
    rates: np.ndarray,
    slots: np.ndarray,
    free: np.ndarray,
    ready_s: np.ndarray,
    work: np.ndarray,
    settings: np.ndarray,
    events: np.ndarray,
    one: np.ndarray,
    counts: np.ndarray,
    stays: np.ndarray,
    stay_sum: np.ndarray,
    rng: np.ndarray,
    until: float,
) -> None:
    while one[0].events > 0 and events[0].at <= until:
        what = events[0].what
        now = events[0].at
        one[0].now = now
        pop(events, one)
        if what >= len(queries):
            slot = what - len(queries)
            query = slots[slot].query
            slots[slot].query = FREE
            slots[slot].due = math.inf
            free[one[0].free] = slot
            one[0].free += 1
            queries[query].running -= 1
            queries[query].finished += 1
            queries[query].task_s += slots[slot].seconds
            give_slot(queries, slots, free, ready_s, events, one)
        else:
            query = what
            queries[query].due = math.inf
            if queries[query].phase == WAITING:
                for source in range(len(inflows)):
                    if inflows[source].query == query:
                        append_until(inflows, rates, laws, values, logs, cohorts, counts, rng, source, now)
                if look(queries, reads, logs, readers, work, settings, query) == 0:
                    queries[query].due = now + settings[0].poll_s
                else:
                    queries[query].phase = PLANNING
                    queries[query].began = now
                    queries[query].task_s = 0.0
                    queries[query].stage = 0
                    queries[query].due = now + settings[0].batch_s
                push(events, one, queries[query].due, query)
                continue
            if queries[query].phase == PLANNING and queries[query].stages > 0:
                begin_stage(queries, stages, chain, work, settings, now, query)
                push(events, one, queries[query].due, query)
                continue
            if queries[query].phase == LAUNCHING:
                stage = queries[query].first_stage + queries[query].stage
                for task in range(stages[stage].tasks):
                    seconds = task_seconds(stages, chain, shares, sinks, laws, values, work, rng, stage, task)
                    make_ready(queries, ready_s, one, query, seconds)
                queries[query].phase = RUNNING
                give_slot(queries, slots, free, ready_s, events, one)
                continue
        # Its stage, and with it perhaps its batch, is done when the last task is.
        if queries[query].phase == RUNNING:
            stage = queries[query].first_stage + queries[query].stage
            if queries[query].finished < stages[stage].tasks:
                continue
            last = chain[stages[stage].chain_first + stages[stage].chain_size - 1]
            if stages[stage].after >= 0:
                work[stages[stage].after].rows += work[last].out
            queries[query].stage += 1
            if queries[query].stage < queries[query].stages:
                begin_stage(queries, stages, chain, work, settings, now, query)
                push(events, one, queries[query].due, query)
                continue
        elif queries[query].phase != PLANNING:
            continue
        commit(
            queries, stages, chain, reads, outs, logs, cohorts, work, settings, counts, stays, stay_sum, rng, now,
            query,
        )  # fmt: skip
        queries[query].phase = WAITING
        queries[query].due = max(now, queries[query].began + settings[0].trigger_s)
        push(events, one, queries[query].due, query)
    one[0].now = max(one[0].now, until)
    for source in range(len(inflows)):
        append_until(inflows, rates, laws, values, logs, cohorts, counts, rng, source, until)


assert HALTED > RUNNING  # a halted query is in none of the phases above
