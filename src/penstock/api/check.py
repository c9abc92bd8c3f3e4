"""`penstock.check`: whether Spark accepts a dataflow, before it runs."""

from __future__ import annotations

from typing import Any

from penstock.api.input_files import dataflow_from
from penstock.dataflow import Dataflow
from penstock.plan import Plan, default_plan, validated


def check(flow: Dataflow | str, plan: Plan | None = None, *, spark: Any = None) -> None:
    """Compile all queries of a dataflow on Spark without running any of them.

    It finds the mistakes that only Spark can see: unknown columns, results that no output mode allows, a lost event
    time. Files and brokers of sources are not opened.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]".
        plan: Plan of the dataflow; None takes the default plan.
        spark: An existing session; None uses the active one, or starts a local one and stops it at the end.

    Raises:
        DataflowError: A function fails, or Spark refuses its result.
        PlanError: Spark refuses a query of this plan.
        SparkUnavailableError: Spark does not start.
    """
    from penstock.api.spark_session import active_session, prepared_session
    from penstock.engines.spark.compile.compiler import SharedQueryError
    from penstock.engines.spark.compile_check import check_compiles
    from penstock.engines.spark.session import end, session

    dataflow = dataflow_from(flow)
    chosen = default_plan(dataflow) if plan is None else validated(dataflow, plan)
    given = spark if spark is not None else active_session()
    used = session("local[1]", "penstock check") if given is None else prepared_session(given)
    try:
        try:
            check_compiles(dataflow, chosen, used)
        except SharedQueryError:
            if plan is not None:
                raise
            check_compiles(dataflow, default_plan(dataflow, share_queries=False), used)  # a run does the same
    finally:
        if given is None:
            end(used)
