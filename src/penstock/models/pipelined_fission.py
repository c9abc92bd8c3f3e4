"""The throughput of regions with pipelines and replicas, from the costs of their operators.

Source of the model: Gedik, Ozsema and Ozturk, "Pipelined fission for stream programs with dynamic selectivity and
partitioned state", JPDC 96, 2016, as Joker (JPDC 2020, section 5.5) describes it: operator costs, selectivities, a
thread switching overhead and a replication cost factor. Its formulas are stated here in the terms of Penstock; the
logarithm of the replicas is an assumption of this implementation.

A row that enters a pipeline costs its thread

    thread_s + sum over operators of rows x seconds per row

and replica_s log2(k) more in the first pipeline of a region with k replicas, where rows are distributed. Within a
region a row stays with its replica. The throughput is that of the slowest pipeline: k / (visits x cost).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.models.fission_costs import FissionCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class FissionRegion:
    """A region as a chain of operators. Rows are counted per external row, so that regions can be compared."""

    name: str
    operators: tuple[str, ...]
    rows: tuple[float, ...]  # rows into each operator per external row
    seconds_per_row: tuple[float, ...]  # by operator
    required_cuts: frozenset[int] = frozenset()  # position p: a pipeline must begin with operator p
    allowed_cuts: frozenset[int] = frozenset()  # position p: a pipeline may begin with operator p
    max_replicas: int | None = None  # 1 for global state
    min_replicas: int = 1

    def pipeline_s(self, first: int, last: int, replicas: int, costs: FissionCosts) -> float:
        """Return the time per external row that operators `first` to `last` - 1 need as one pipeline."""
        work_s = math.fsum(self.rows[i] * self.seconds_per_row[i] for i in range(first, last))
        if work_s == 0.0:  # a sink without a cost runs in the thread before it
            return 0.0
        return (self.rows[first] * costs.per_row_s(replicas if first == 0 else 1) + work_s) / replicas

    def seconds(self, cuts: Sequence[int], replicas: int, costs: FissionCosts) -> float:
        """Return the time per external row of the slowest pipeline.

        >>> pair = FissionRegion(name="a", operators=("a", "b"), rows=(1.0, 2.0), seconds_per_row=(0.3, 0.2))
        >>> costs = FissionCosts(thread_s=0.1)
        >>> [round(pair.seconds(cuts, 1, costs), 3) for cuts in ([], [1])], round(pair.seconds([1], 2, costs), 3)
        ([0.8, 0.6], 0.3)
        """
        bounds = [0, *sorted(cuts), len(self.operators)]
        return max(self.pipeline_s(i, j, replicas, costs) for i, j in pairwise(bounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTrial:
    """A saturated run of one pipeline: its replicas, its throughput, and the work of its operators per row."""

    replicas: int
    rows_per_s: float
    work_s: float


def fitted_costs(trials: Sequence[CalibrationTrial]) -> FissionCosts:
    """Return the costs that explain the trials best: k / rate - work = thread_s + replica_s log2(k).

    Raises:
        PenstockError: All trials have the same number of replicas.

    >>> trials = [CalibrationTrial(replicas=k, rows_per_s=k / (0.5 + 0.1 + 0.05 * n), work_s=0.5) for n, k in
    ...           enumerate((1, 2, 4))]
    >>> costs = fitted_costs(trials)
    >>> round(costs.thread_s, 6), round(costs.replica_s, 6)
    (0.1, 0.05)
    """
    if len({trial.replicas for trial in trials}) < 2:
        raise PenstockError(
            "The costs of threads and replicas cannot be told apart; measure with 1 and with several replicas."
        )
    matrix = np.array([[1.0, math.log2(trial.replicas)] for trial in trials])
    overheads = np.array([trial.replicas / trial.rows_per_s - trial.work_s for trial in trials])
    thread_s, replica_s = np.linalg.lstsq(matrix, overheads, rcond=None)[0]
    return FissionCosts(thread_s=max(0.0, float(thread_s)), replica_s=max(0.0, float(replica_s)))
