"""Penstock measures, models, plans and scales streaming pipelines on Spark Structured Streaming."""

from penstock.api.watching import watch
from penstock.dataflow import Dataflow, DataflowError, PenstockError, PlanError, Stream
from penstock.dataflow.kafka import kafka
from penstock.dataflow.sinks import foreach_batch, memory, noop, parquet
from penstock.dataflow.sources import backlog, files, generate, replay, spark_source
from penstock.plan import Plan, default_plan, diff, rescaled

__all__ = [
    "Dataflow",
    "DataflowError",
    "PenstockError",
    "Plan",
    "PlanError",
    "Stream",
    "backlog",
    "default_plan",
    "diff",
    "files",
    "foreach_batch",
    "generate",
    "kafka",
    "memory",
    "noop",
    "parquet",
    "replay",
    "rescaled",
    "spark_source",
    "watch",
]
