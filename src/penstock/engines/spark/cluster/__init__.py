"""A standalone Spark cluster of real processes on this machine."""

from penstock.engines.spark.cluster.cluster import SparkCluster, running, start, status, stop
from penstock.engines.spark.cluster.record import ClusterError, ClusterSize, ClusterStatus

__all__ = ["ClusterError", "ClusterSize", "ClusterStatus", "SparkCluster", "running", "start", "status", "stop"]
