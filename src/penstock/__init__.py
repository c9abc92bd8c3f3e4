"""Penstock measures, models, plans and scales streaming pipelines on Spark Structured Streaming."""

from penstock.api.outline import outline
from penstock.api.policy_options import OptionError
from penstock.api.record import RunRecord, open_run
from penstock.api.running import Run, RunFailedError, run
from penstock.api.simulation import Simulation, simulate
from penstock.api.watching import watch
from penstock.dataflow import Dataflow, DataflowError, PenstockError, PlanError, Stream
from penstock.dataflow.kafka import kafka
from penstock.dataflow.sinks import foreach_batch, memory, noop, parquet
from penstock.dataflow.sources import backlog, files, generate, replay, spark_source
from penstock.plan import Plan, default_plan, diff, rescaled

__all__ = [
    "Dataflow",
    "DataflowError",
    "OptionError",
    "PenstockError",
    "Plan",
    "PlanError",
    "Run",
    "RunFailedError",
    "RunRecord",
    "Simulation",
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
    "open_run",
    "outline",
    "parquet",
    "replay",
    "rescaled",
    "run",
    "simulate",
    "spark_source",
    "watch",
]
