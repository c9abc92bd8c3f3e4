"""The rows that operators emit in compiled loops.

Most operators draw their rows out from their selectivity for each row in. Two kinds need more:

- The output of a logic-dependent operator, such as a ranking that is emitted once per period, does not depend on its
  input. The rows of all periods since its last output leave with the next row.
- The selectivity of a workload-dependent operator differs between consecutive parts of its input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.engines.simulated.behaviour import OperatorBehaviour
from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.draws import Draws, sum_of_counts, uniform
from penstock.engines.simulated.compiled.records import Records, record

OUTPUT = record(
    period_s=float,  # 0: the output depends on the input
    emitted_periods=np.int64,
    first_factor=np.int64,  # index into the factors
    factors=np.int64,  # 0: the selectivity is the same for all parts of the input
    part_rows=np.int64,
    rows_in=np.int64,  # rows since the start; counted only for an operator with factors
)


class Outputs(NamedTuple):
    """Rules of the output, by operator, and how much was emitted."""

    rules: Records  # OUTPUT records
    factors: np.ndarray


def new_outputs(operators: Sequence[OperatorBehaviour]) -> Outputs:
    records, factors = [], list[float]()
    for operator in operators:
        records.append((operator.period_s or 0.0, 0, len(factors), len(operator.workload), operator.workload_rows, 0))
        factors += operator.workload
    return Outputs(np.array(records, OUTPUT), np.array(factors, float))


@compiled
def rows_out_of(draws: Draws, outputs: Outputs, operator: int, rows: int, now_s: float) -> int:
    """Draw how many rows an operator emits for `rows` rows that it has processed now."""
    number, stream = 2 * operator + 1, 3 * operator + 1
    rules = outputs.rules
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
