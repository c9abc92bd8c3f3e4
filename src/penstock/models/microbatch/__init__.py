"""A query that works in micro-batches: what a batch takes, where it settles, and its finite best number of replicas."""

from penstock.models.microbatch.fit import BatchSample, Interval, MicroBatchFit, fit_microbatch
from penstock.models.microbatch.query import MicroBatchQuery, Stage
from penstock.models.microbatch.station import MicroBatch, slowest_of

__all__ = [
    "BatchSample",
    "Interval",
    "MicroBatch",
    "MicroBatchFit",
    "MicroBatchQuery",
    "Stage",
    "fit_microbatch",
    "slowest_of",
]
