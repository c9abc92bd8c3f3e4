"""The rows that operators emit in compiled loops.

Most operators draw their rows out from their selectivity for each row in. Three kinds need more:

- The output of a logic-dependent operator, such as a ranking that is emitted once per period, does not depend on its
  input. The rows of all periods since its last output leave with the next row.
- The selectivity of a workload-dependent operator differs between consecutive parts of its input.
- An operator class is invoked when its schedule says so, by the rule that the Spark engine uses. Rows that it has
  processed wait until an invocation takes them. All keys count as one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.dataflow import Dataflow
from penstock.dataflow.schedule import RowSchedule
from penstock.engines.scheduling import codes
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.compiled.compiler import compiled, next_invocation
from penstock.engines.simulated.compiled.draws import Draws, sum_of_counts, uniform
from penstock.engines.simulated.compiled.records import Records, record

OUTPUT = record(
    period_s=float,  # 0: the output depends on the input
    emitted_periods=np.int64,
    first_factor=np.int64,  # index into the factors
    factors=np.int64,  # 0: the selectivity is the same for all parts of the input
    part_rows=np.int64,
    rows_in=np.int64,  # rows since the start; counted only for an operator with factors
    first_port=np.int64,  # index into the ports
    ports=np.int64,  # 0: the operator has no schedule
    schedule_ports=np.int64,  # ALL or ANY
    schedule_count=np.int64,  # EXACT, AT_LEAST or EQUAL
)


class Outputs(NamedTuple):
    """Rules of the output, by operator, and how much was emitted."""

    rules: Records  # OUTPUT records
    factors: np.ndarray
    required: np.ndarray  # rows that each port needs for an invocation, by port of all operators
    arrived: np.ndarray  # rows that arrived at a port and were not processed yet
    waiting: np.ndarray  # rows that were processed and wait for an invocation
    committed: np.ndarray  # values at the end of the last batch that was committed
    taken: np.ndarray  # rows that an invocation takes


def new_outputs(flow: Dataflow, behaviour: Behaviour) -> Outputs:
    records, factors, required = [], list[float](), list[int]()
    for name in [operator.name for operator in flow.operators]:
        own, scheduled = behaviour.of(name), behaviour.schedule(flow, name)
        period_s = behaviour.period_s(flow, name) or 0.0
        record = [period_s, 0, len(factors), len(own.workload), own.workload_rows, 0, len(required), 0, 0, 0]
        if scheduled is not None and isinstance(scheduled.schedule, RowSchedule):
            record[-3:] = [len(scheduled.required), *codes(scheduled.schedule)]
            required += scheduled.required
        records.append(tuple(record))
        factors += own.workload
    return Outputs(
        np.array(records, OUTPUT),
        np.array(factors, float),
        np.array(required, np.int64),
        *(np.zeros(len(required), np.int64) for _ in range(4)),
    )


@compiled
def arrive_at_port(outputs: Outputs, operator: int, port: int, rows: int) -> None:
    """Count rows that arrive at an input of an operator; the input is its port."""
    if outputs.rules[operator].ports > 0:
        outputs.arrived[outputs.rules[operator].first_port + port] += rows


@compiled
def commit_waiting_rows(outputs: Outputs, operator: int) -> None:
    """Make the waiting rows of an operator permanent, because its batch is committed."""
    first = outputs.rules[operator].first_port
    for port in range(first, first + outputs.rules[operator].ports):
        outputs.committed[port] = outputs.waiting[port]


def abort_waiting_rows(outputs: Outputs, operator: int) -> None:
    """Return to the waiting rows at the last commit, because the batch of an operator is aborted."""
    first = outputs.rules["first_port"][operator]
    own = slice(first, first + outputs.rules["ports"][operator])
    outputs.waiting[own] = outputs.committed[own]
    outputs.arrived[own] = 0


@compiled
def invocations_after(outputs: Outputs, operator: int, rows: int) -> int:
    """Return how many invocations follow when an operator has processed `rows` rows.

    The rows are those that have arrived at its ports, in equal shares of each port.
    """
    rules, waiting = outputs.rules, outputs.waiting
    first, size = rules[operator].first_port, rules[operator].ports
    arrived = 0
    for port in range(first, first + size):
        arrived += outputs.arrived[port]
    left = rows
    for port in range(first, first + size):
        own = left
        if port < first + size - 1:
            own = 0
            if arrived > 0:
                share = math.floor(outputs.arrived[port] * left / arrived + 0.5)
                own = min(left, int(share), outputs.arrived[port])
            arrived -= outputs.arrived[port]
        outputs.arrived[port] = max(0, outputs.arrived[port] - own)
        waiting[port] += own
        left -= own
    invocations = 0
    while next_invocation(
        rules[operator].schedule_ports,
        rules[operator].schedule_count,
        outputs.required,
        waiting,
        outputs.taken,
        first,
        size,
    ):
        for port in range(first, first + size):
            waiting[port] -= outputs.taken[port]
        invocations += 1
    return invocations


@compiled
def rows_out_of(draws: Draws, outputs: Outputs, operator: int, rows: int, now_s: float) -> int:
    """Draw how many rows an operator emits for `rows` rows that it has processed now."""
    number, stream = 2 * operator + 1, 3 * operator + 1
    rules = outputs.rules
    if rules[operator].ports > 0:
        return sum_of_counts(draws, number, stream, invocations_after(outputs, operator, rows))
    if rules[operator].period_s > 0.0:
        periods = math.floor(now_s / rules[operator].period_s)
        due = periods - rules[operator].emitted_periods
        rules[operator].emitted_periods = periods
        return sum_of_counts(draws, number, stream, due)
    if rules[operator].factors == 0:
        return sum_of_counts(draws, number, stream, rows)
    total = 0
    while rows > 0:
        part, position = divmod(rules[operator].rows_in, rules[operator].part_rows)
        own = min(rows, rules[operator].part_rows - position)
        factor = outputs.factors[rules[operator].first_factor + part % rules[operator].factors]
        scaled = factor * sum_of_counts(draws, number, stream, own)
        whole = math.floor(scaled)
        total += int(whole) + (1 if uniform(draws.streams, stream) <= scaled - whole else 0)
        rules[operator].rows_in += own
        rows -= own
    return total
