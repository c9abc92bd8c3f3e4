"""The objects that all parts of a running engine share."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow
from penstock.engines.spark.executors import Negotiator
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.settings import EngineSettings
from penstock.engines.spark.sources.contract import StreamSource


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run: its session, dataflow, directory, sources (by operator name), settings and executors."""

    spark: SparkSession
    flow: Dataflow
    directory: RunDirectory
    sources: dict[str, StreamSource]
    settings: EngineSettings
    executors: Negotiator
