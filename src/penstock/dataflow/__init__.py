"""Declarations of dataflows: operators, streams and keys; validation; and which operators are replicated together."""

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import DataflowError, PenstockError, PlanError, SparkUnavailableError
from penstock.dataflow.operators import Kind, Operator, OutputMode, RowFunction, Watermark
from penstock.dataflow.regions import Region, regions
from penstock.dataflow.stream import Stream

__all__ = [
    "Dataflow",
    "DataflowError",
    "Kind",
    "Operator",
    "OutputMode",
    "PenstockError",
    "PlanError",
    "Region",
    "RowFunction",
    "SparkUnavailableError",
    "Stream",
    "Watermark",
    "regions",
]
