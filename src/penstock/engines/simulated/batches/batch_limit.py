"""The row limit of the next batch, by the rule that the Spark engine uses too."""

from __future__ import annotations

import math

import numpy as np

from penstock.engines import batch_size
from penstock.engines.simulated.batches.records import QueryLayout
from penstock.engines.simulated.compiled.compiler import compiled

next_limit = compiled(batch_size.next_limit)
next_stretch = compiled(batch_size.next_stretch)


@compiled
def update_limit(layout: QueryLayout, settings: np.ndarray, query: int, batch_s: float) -> None:
    """Set the row limit of the next batch by the rule of the Spark engine. The overhead is known exactly here."""
    target_s = settings[0].target_s
    if math.isinf(target_s):
        return
    record, stages = layout.queries[query], layout.stages
    overhead_s = settings[0].batch_s
    for stage in range(record.first_stage, record.first_stage + record.stages):
        overhead_s += stages[stage].tasks * settings[0].task_s
    limit = next_limit(record.limit_rows, record.batch_rows, batch_s, overhead_s, target_s, record.stretch)
    layout.queries[query].limit_rows = limit
