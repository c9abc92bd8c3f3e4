"""Settings of a run on Spark that depend neither on the dataflow nor on the plan."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.brokers.cluster import KafkaCluster
from penstock.dataflow.errors import PenstockError
from penstock.plan.plan import Routing

SAMPLE_EVERY = 16  # for a function of 1 ms per row, the clocks then cost less than can be measured


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """
    batch_s: target duration of a batch; it limits the rows that a batch takes.
    max_batch_rows: upper limit of the rows that a batch takes from each source; None for no limit.
    sample_every: one row in this many is timed by itself in row functions; None switches all measurement off.
    executor_patience_s: how long to wait for the next executor to register or to leave.
    kafka: Kafka cluster that stores the rows of new cuts; None stores them in the run directory.
    routing: routing of rows to replicas from the start on; None keeps that of the plan.
    """

    batch_s: float = 2.0
    max_batch_rows: int | None = None
    sample_every: int | None = SAMPLE_EVERY
    executor_patience_s: float = 60.0
    kafka: KafkaCluster | None = None
    routing: Routing | None = None

    def __post_init__(self) -> None:
        if self.sample_every is not None and self.sample_every < 1:
            raise PenstockError(f"sample_every is {self.sample_every}; give 1 (time every row) or more.")

    @property
    def drain_patience_s(self) -> float:
        """How long to wait for the end of a batch that may also be interrupted."""
        return 2 * self.batch_s
