"""A standalone Spark cluster of real processes on this machine: started, looked at, stopped."""

from penstock.engines.spark.cluster.cluster import Cluster, running, start, status, stop
from penstock.engines.spark.cluster.record import Asked, ClusterError, Status

__all__ = ["Asked", "Cluster", "ClusterError", "Status", "running", "start", "status", "stop"]
