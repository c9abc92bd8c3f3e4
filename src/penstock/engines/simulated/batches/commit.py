"""The commit of a micro-batch: its rows leave their logs, its results are delivered, and its work is counted."""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.batches.batch_limit import update_limit
from penstock.engines.simulated.batches.logs import append_cohort, count_cohort_latency, remove_cohort
from penstock.engines.simulated.batches.records import WAITING, BatchState, QueryLayout
from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.counts import SimulationCounts
from penstock.engines.simulated.compiled.draws import Draws, binomial, choice_stream
from penstock.engines.simulated.compiled.event_heap import push
from penstock.engines.simulated.compiled.outputs import commit_waiting_rows


@compiled
def send_cohort(
    layout: QueryLayout,
    state: BatchState,
    draws: Draws,
    counts: SimulationCounts,
    query: int,
    cohort: tuple[int, float, float],
) -> None:
    """Append the rows that a cohort has become to the logs downstream of a query."""
    record, logs, outs = layout.queries[query], state.logs, layout.outs
    rows, first_s, last_s = cohort
    rest, cumulated = rows, 0.0
    for out in range(record.first_out, record.first_out + record.outs):
        part = rows
        if record.is_routed:
            own = outs[out].share - cumulated
            share = own / (1.0 - cumulated) if cumulated < 1.0 else 0.0
            part = binomial(draws.streams, choice_stream(record.last_operator), rest, share)
            cumulated = outs[out].share
            rest -= part
        counts.operators[logs[outs[out].log].operator].arrived += part
        append_cohort(state, outs[out].log, part, first_s, last_s)


@compiled
def commit_rows(
    layout: QueryLayout, state: BatchState, draws: Draws, counts: SimulationCounts, query: int, now_s: float
) -> None:
    """Remove the rows of a batch from its logs, and deliver what they have become."""
    record, work = layout.queries[query], state.work
    last = record.last_operator
    rows_out = work[last].rows_in if record.is_sink else work[last].rows_out
    total, removed, sent = record.batch_rows, 0, 0
    for at in range(record.first_log, record.first_log + record.logs):
        while True:
            rows, first_s, last_s = remove_cohort(state, layout.reads[at])
            if rows == 0:
                break
            removed += rows
            # Round the running sum, so that rounding loses no row.
            share = math.floor(rows_out * (removed / total) + 0.5) - sent
            sent += share
            if share <= 0:
                continue
            if record.is_sink:
                count_cohort_latency(counts, now_s, first_s, last_s, float(share))
            else:
                send_cohort(layout, state, draws, counts, query, (share, first_s, last_s))


@compiled
def commit(
    layout: QueryLayout, state: BatchState, draws: Draws, counts: SimulationCounts, query: int, now_s: float
) -> None:
    """Commit a batch, and schedule the next one."""
    queries, stages, settings = layout.queries, layout.stages, state.settings
    commit_rows(layout, state, draws, counts, query, now_s)
    for stage in range(queries[query].first_stage, queries[query].first_stage + queries[query].stages):
        for place in range(stages[stage].chain_first, stages[stage].chain_first + stages[stage].chain_size):
            commit_counts(counts, state.work, layout.chain[place])
            commit_waiting_rows(state.outputs, layout.chain[place])
    for at in range(queries[query].first_log, queries[query].first_log + queries[query].logs):
        commit_counts(counts, state.work, state.logs[layout.reads[at]].operator)
    took_s = now_s - queries[query].began_s
    last = queries[query].last_operator
    counts.operators[last].batches += 1
    counts.operators[last].batch_s += took_s
    counts.operators[last].batch_longest_s = max(counts.operators[last].batch_longest_s, took_s)
    counts.operators[last].task_s += queries[query].task_s
    update_limit(layout, settings, query, took_s)
    queries[query].phase = WAITING
    queries[query].due_s = max(now_s, queries[query].began_s + settings[0].trigger_s)
    push(state.events, state.status, queries[query].due_s, query)


@compiled
def commit_counts(counts: SimulationCounts, work: np.ndarray, operator: int) -> None:
    """Add the work of an operator in this batch to the counts, and reset it. A second call adds nothing."""
    operators = counts.operators
    operators[operator].arrived += work[operator].rows_in - work[operator].logged_rows
    operators[operator].rows_in += work[operator].rows_in
    operators[operator].rows_out += work[operator].rows_out
    operators[operator].busy_s += work[operator].busy_s
    operators[operator].services += work[operator].services
    operators[operator].spread_s2 += work[operator].spread_s2
    operators[operator].called_s += work[operator].called_s
    operators[operator].active_s += work[operator].busy_s
    operators[operator].waited_s += work[operator].waited_s
    work[operator].waiting_rows = 0
    work[operator].logged_rows = 0
    work[operator].rows_in = 0
    work[operator].rows_out = 0
    work[operator].busy_s = 0.0
    work[operator].services = 0
    work[operator].spread_s2 = 0.0
    work[operator].called_s = 0.0
    work[operator].waited_s = 0.0
