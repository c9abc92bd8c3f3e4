"""Micro-batch queries: batch time, steady-state batch time, and the finite optimal number of replicas."""

from penstock.models.microbatch.fit import BatchSample, Interval, MicroBatchFit, fit_microbatch
from penstock.models.microbatch.query import MicroBatchQuery, QueryStage
from penstock.models.microbatch.station import MicroBatch, expected_maximum

__all__ = [
    "BatchSample",
    "Interval",
    "MicroBatch",
    "MicroBatchFit",
    "MicroBatchQuery",
    "QueryStage",
    "expected_maximum",
    "fit_microbatch",
]
