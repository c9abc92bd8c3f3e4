"""The simulator sizes batches by the rule of the Spark engine: same functions, same sequence of limits."""

from __future__ import annotations

import random

import pytest

from penstock.engines import batch_size
from penstock.engines.simulated import (
    Behaviour,
    Fixed,
    OperatorBehaviour,
    SimulatedBatchCosts,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.engines.simulated.batches.batch_limit import next_limit, next_stretch
from tests.support.simulated_flows import chain, plan_for

# Powers of two, so that sums of times are exact.
OVERHEAD_S, ROW_S, TARGET_S, POLL_S = 0.5, 2**-10, 2.0, 2**-6


def test_the_compiled_rule_equals_the_rule_of_the_spark_engine() -> None:
    chance = random.Random(3)
    compiled_limit = limit = batch_size.FIRST_BATCH_ROWS
    compiled_stretch = stretch = 1.0
    for _ in range(1_000):
        rows_left = chance.random() < 0.5
        stretch = batch_size.next_stretch(stretch, rows_left)
        compiled_stretch = next_stretch(compiled_stretch, rows_left)
        rows = int(limit * chance.choice([0.1, 0.6, 1.0])) + 1
        overhead_s = chance.choice([0.0, 0.1, 5.0])
        batch_s = overhead_s + rows * ROW_S * chance.uniform(0.1, 3.0)
        limit = batch_size.next_limit(limit, rows, batch_s, overhead_s, TARGET_S, stretch)
        compiled_limit = next_limit(compiled_limit, rows, batch_s, overhead_s, TARGET_S, compiled_stretch)
        assert (compiled_limit, compiled_stretch) == (limit, stretch)


@pytest.mark.parametrize("rows_per_s", [256.0, 4_096.0])
def test_a_simulated_query_takes_the_batches_that_the_rule_gives(rows_per_s: float) -> None:
    """A batch of n rows takes OVERHEAD_S + n ROW_S, so the rule alone determines all batches."""
    flow = chain("work")
    behaviour = Behaviour(
        operators={"work": OperatorBehaviour(service_s=Fixed(value=ROW_S))},
        sources={"source": SourceBehaviour(rates=((0.0, rows_per_s),), interarrival=Fixed(value=1.0))},
        batch=SimulatedBatchCosts(batch_s=OVERHEAD_S, task_s=0.0, target_s=TARGET_S, poll_s=POLL_S),
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow), mode="micro-batch")
    engine.start()
    now_s, taken, limit, stretch = POLL_S, 0, batch_size.FIRST_BATCH_ROWS, 1.0
    for _ in range(30):
        waiting = int(now_s * rows_per_s) - taken
        rows = min(int(limit), waiting)
        taken += rows
        stretch = batch_size.next_stretch(stretch, rows < waiting)
        batch_s = OVERHEAD_S + rows * ROW_S
        limit = batch_size.next_limit(limit, rows, batch_s, OVERHEAD_S, TARGET_S, stretch)
        now_s += batch_s
        engine.advance(now_s - engine.now_s)
        assert engine.simulation.counts.operators["rows_in"][1] == taken
