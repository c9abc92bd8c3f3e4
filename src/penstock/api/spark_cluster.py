"""`penstock.start_cluster`, `cluster_status` and `stop_cluster`: a standalone Spark cluster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.engines.spark.cluster import ClusterStatus

CLUSTER_DIRECTORY = Path("runs/cluster")


class StartedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that has started. Pass `at` to `penstock.run(cluster=...)` or `master` to Spark."""

    master: str
    workers: int
    executor_cores: int  # per worker
    at: str


class StoppedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The master URL of a cluster that was stopped."""

    stopped: str


def start_cluster(
    at: str | Path = CLUSTER_DIRECTORY, *, workers: int = 3, executor_cores: int = 2, memory_mb: int = 1024
) -> StartedCluster:
    """Start a master and workers as processes of this machine, and wait until all workers have registered.

    The cluster outlives this process. It accepts connections from this machine only.

    Args:
        at: Directory of the cluster's record and logs.
        workers: Number of workers. Each of them runs one executor.
        executor_cores: Cores (slots) of an executor, which may exceed the cores of the machine.
        memory_mb: Memory of an executor.

    Raises:
        ClusterError: The cluster does not start.
    """
    from penstock.engines.spark import cluster

    started = cluster.start(
        local_directory(at), cluster.ClusterSize(workers=workers, slots=executor_cores, memory_mb=memory_mb)
    )
    return StartedCluster(master=started.master, workers=workers, executor_cores=executor_cores, at=str(at))


def cluster_status(at: str | Path = CLUSTER_DIRECTORY) -> ClusterStatus:
    """Return the processes of the cluster and the master's view of them.

    Raises:
        ClusterError: No cluster is running.
    """
    from penstock.engines.spark import cluster

    return cluster.status(local_directory(at))


def stop_cluster(at: str | Path = CLUSTER_DIRECTORY) -> StoppedCluster:
    """Stop the master, the workers and their executors.

    Raises:
        ClusterError: No cluster is running.
    """
    from penstock.engines.spark import cluster

    master = cluster.running(local_directory(at)).master
    cluster.stop(local_directory(at))
    return StoppedCluster(stopped=master)
