"""The part of a batch's time that does not depend on its rows, estimated from the recent batches of a query."""

from __future__ import annotations

from collections import deque

from penstock.engines.spark.metering.batches import Batch
from penstock.measure.window import Estimate

# Phases of a batch that do not depend on its rows, by Spark's names.
FIXED_PHASES = ("walCommit", "commitOffsets", "commitBatch", "latestOffset", "getBatch", "queryPlanning")
_BATCHES = 64
_FEWEST_BATCHES = 3


class FixedCosts:
    """The recent batches of each query, by checkpoint. A new start of a query begins with new batches."""

    def __init__(self) -> None:
        self._batches: dict[str, deque[Batch]] = {}

    def begin(self, checkpoint: str) -> None:
        """Forget the batches of an earlier start: the plan may have other replicas now."""
        self._batches[checkpoint] = deque(maxlen=_BATCHES)

    def add(self, checkpoint: str, batches: list[Batch]) -> None:
        self._batches.setdefault(checkpoint, deque(maxlen=_BATCHES)).extend(b for b in batches if _rows(b) > 0)

    def estimate(self, checkpoint: str) -> Estimate | None:
        """Return the fixed time of a batch; None before some batches had rows. The first one is left out."""
        warm = list(self._batches.get(checkpoint, ()))[1:]
        if len(warm) < _FEWEST_BATCHES:
            return None
        from penstock.models.microbatch.capacity import BatchRun, fixed_time  # it imports scipy, which delays a start

        return fixed_time(
            [
                BatchRun(
                    rows=_rows(batch),
                    batch_s=batch.seconds,
                    fixed_s=sum(batch.phases_s.get(phase, 0.0) for phase in FIXED_PHASES),
                    slots=1,
                    stages=None,
                )
                for batch in warm
            ]
        )


def _rows(batch: Batch) -> int:
    return sum(rows or 0 for rows in batch.rows_read.values())
