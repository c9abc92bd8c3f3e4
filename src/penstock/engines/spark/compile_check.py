"""A check that Spark accepts all queries of a plan, before anything runs."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, Kind, Operator
from penstock.dataflow.sources import SparkSource, generate
from penstock.engines.spark.change.changeover import Changeover
from penstock.engines.spark.change.query_changes import plan_query_changes
from penstock.engines.spark.executors import FixedExecutors
from penstock.engines.spark.queries.query_runner import QueryRunner
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.settings import EngineSettings
from penstock.engines.spark.sources.factory import create_source
from penstock.plan import Plan


def check_compiles(flow: Dataflow, plan: Plan, spark: SparkSession) -> None:
    """Compile all queries of a plan in a temporary directory; raise PenstockError if Spark would refuse one of them.

    No file and no broker is needed: sources are replaced by empty ones with the same columns.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-check-", ignore_cleanup_errors=True) as folder:
        run = Path(folder)
        sources = {
            operator.name: create_source(_without_rows(operator), run / "sources")
            for operator in flow.operators
            if operator.kind is Kind.SOURCE
        }
        directory = RunDirectory(run)
        context = RunContext(
            spark=spark,
            flow=flow,
            directory=directory,
            sources=sources,
            settings=EngineSettings(),
            executors=FixedExecutors(slots_per_executor=plan.slots),  # nothing is run
        )
        plan = plan.replace(groups={})  # groups do not change the queries that Spark accepts
        queries = QueryRunner(context, on_start=lambda _: None, on_stop=lambda _: None)
        Changeover(context, queries, plan_query_changes(flow, None, plan), None).compile_all()


def _without_rows(operator: Operator) -> Operator:
    source = operator.source
    if source is None or isinstance(source, SparkSource):
        return operator
    return replace(operator, source=generate(lambda _: None, schema=source.schema, rows=0))
