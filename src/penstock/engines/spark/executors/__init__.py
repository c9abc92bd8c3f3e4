"""Executors: how many a plan needs, how many were requested, and which are registered."""

from penstock.engines.spark.executors.fixed_executors import FixedExecutors
from penstock.engines.spark.executors.negotiator import ExecutorCounts, ExecutorsError, Negotiator
from penstock.engines.spark.executors.spark_negotiator import SparkNegotiator, negotiator_of

__all__ = ["ExecutorCounts", "ExecutorsError", "FixedExecutors", "Negotiator", "SparkNegotiator", "negotiator_of"]
