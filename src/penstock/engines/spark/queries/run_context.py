"""The objects that all parts of a running engine share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, PenstockError
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
    start_cancelled: threading.Event = field(default_factory=threading.Event)

    def check_not_cancelled(self) -> None:
        """Raise PenstockError if the start of the run has been cancelled. Called between the steps of the start."""
        if self.start_cancelled.is_set():
            raise PenstockError("The start of the run was cancelled.")
