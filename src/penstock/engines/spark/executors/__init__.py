"""Executors: how many a plan wants, how many were asked for, and which are there."""

from penstock.engines.spark.executors.contract import ExecutorsError, Negotiator, Standing
from penstock.engines.spark.executors.fixed import FixedExecutors
from penstock.engines.spark.executors.spark_negotiator import SparkNegotiator, negotiator_of

__all__ = ["ExecutorsError", "FixedExecutors", "Negotiator", "SparkNegotiator", "Standing", "negotiator_of"]
