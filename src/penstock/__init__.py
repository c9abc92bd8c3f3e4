"""Penstock measures, models, plans and scales streaming pipelines on Spark Structured Streaming.

The names of the API are imported when they are used. Every Python worker of Spark imports this package, and a starting
query waits for several workers in turn.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.api.arena import arena
    from penstock.api.check import check
    from penstock.api.comparison import compare
    from penstock.api.curve_measurement import measure_curves, measured_curves, plot_curves
    from penstock.api.demonstration import demonstrate
    from penstock.api.fission_calibration import calibrate
    from penstock.api.kafka_broker import (
        broker_status,
        connector_jars,
        create_topic,
        load_topic,
        start_broker,
        stop_broker,
    )
    from penstock.api.mst_measurement import measure_mst, predict_mst
    from penstock.api.mst_models import choose_vm_counts, compare_elastic, fit_mst
    from penstock.api.mst_phases import choose_training_counts
    from penstock.api.operator_runner import OperatorRunner
    from penstock.api.planning import allocate, assign, outline
    from penstock.api.platform_curve import profile_platforms
    from penstock.api.policy_comparison import compare_policies
    from penstock.api.policy_options import OptionError
    from penstock.api.profiling import profile
    from penstock.api.record import RunRecord, open_run
    from penstock.api.running import Run, RunFailedError, run
    from penstock.api.schemas import schema
    from penstock.api.simulation import Simulation, simulate
    from penstock.api.spark_cluster import cluster_status, start_cluster, stop_cluster
    from penstock.api.watching import watch
    from penstock.api.whatif import whatif
    from penstock.control.policies.adaptation_parameters import AdaptationParameters
    from penstock.control.requests import RequestError
    from penstock.dataflow import Dataflow, DataflowError, PenstockError, PlanError, SparkUnavailableError, Stream
    from penstock.dataflow.kafka import kafka
    from penstock.dataflow.operator_class import operator
    from penstock.dataflow.schedule import every, never, when_all, when_any
    from penstock.dataflow.sinks import foreach_batch, memory, noop, parquet
    from penstock.dataflow.sources import backlog, files, generate, replay, spark_source
    from penstock.plan import Plan, default_plan, diff, recut, rescaled
    from penstock.store import StoreError

__all__ = [
    "AdaptationParameters",
    "Dataflow",
    "DataflowError",
    "OperatorRunner",
    "OptionError",
    "PenstockError",
    "Plan",
    "PlanError",
    "RequestError",
    "Run",
    "RunFailedError",
    "RunRecord",
    "Simulation",
    "SparkUnavailableError",
    "StoreError",
    "Stream",
    "allocate",
    "arena",
    "assign",
    "backlog",
    "broker_status",
    "calibrate",
    "check",
    "choose_training_counts",
    "choose_vm_counts",
    "cluster_status",
    "compare",
    "compare_elastic",
    "compare_policies",
    "connector_jars",
    "create_topic",
    "default_plan",
    "demonstrate",
    "diff",
    "every",
    "files",
    "fit_mst",
    "foreach_batch",
    "generate",
    "kafka",
    "load_topic",
    "measure_curves",
    "measure_mst",
    "measured_curves",
    "memory",
    "never",
    "noop",
    "open_run",
    "operator",
    "outline",
    "parquet",
    "plot_curves",
    "predict_mst",
    "profile",
    "profile_platforms",
    "recut",
    "replay",
    "rescaled",
    "run",
    "schema",
    "simulate",
    "spark_source",
    "start_broker",
    "start_cluster",
    "stop_broker",
    "stop_cluster",
    "watch",
    "whatif",
    "when_all",
    "when_any",
]

_NAMES = {  # module -> names
    "penstock.api.arena": "arena",
    "penstock.api.check": "check",
    "penstock.api.comparison": "compare",
    "penstock.api.curve_measurement": "measure_curves measured_curves plot_curves",
    "penstock.api.demonstration": "demonstrate",
    "penstock.api.fission_calibration": "calibrate",
    "penstock.api.kafka_broker": "broker_status connector_jars create_topic load_topic start_broker stop_broker",
    "penstock.api.mst_measurement": "measure_mst predict_mst",
    "penstock.api.mst_phases": "choose_training_counts",
    "penstock.api.mst_models": "choose_vm_counts compare_elastic fit_mst",
    "penstock.api.operator_runner": "OperatorRunner",
    "penstock.api.planning": "allocate assign outline",
    "penstock.api.platform_curve": "profile_platforms",
    "penstock.api.policy_comparison": "compare_policies",
    "penstock.api.policy_options": "OptionError",
    "penstock.api.profiling": "profile",
    "penstock.api.record": "RunRecord open_run",
    "penstock.api.running": "Run RunFailedError run",
    "penstock.api.schemas": "schema",
    "penstock.api.simulation": "Simulation simulate",
    "penstock.api.spark_cluster": "cluster_status start_cluster stop_cluster",
    "penstock.api.watching": "watch",
    "penstock.api.whatif": "whatif",
    "penstock.control.policies.adaptation_parameters": "AdaptationParameters",
    "penstock.control.requests": "RequestError",
    "penstock.dataflow": "Dataflow DataflowError PenstockError PlanError SparkUnavailableError Stream",
    "penstock.dataflow.kafka": "kafka",
    "penstock.dataflow.operator_class": "operator",
    "penstock.dataflow.schedule": "every never when_all when_any",
    "penstock.dataflow.sinks": "foreach_batch memory noop parquet",
    "penstock.dataflow.sources": "backlog files generate replay spark_source",
    "penstock.plan": "Plan default_plan diff recut rescaled",
    "penstock.store": "StoreError",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name == "operators":
        return importlib.import_module("penstock.operators")
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
