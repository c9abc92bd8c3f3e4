"""Executors from the cluster manager that Spark runs on, by Spark's own calls: standalone, YARN and Kubernetes alike.

Spark's dynamic allocation looks at queued tasks, which says nothing of streams; it is switched on, because it is what
makes executors come and go, and parked: it never changes their number by itself. What each manager needs besides:

    standalone   spark.executor.cores and .memory, so that an executor has a known size
    YARN         the same; shuffles are tracked, so no shuffle service is needed
    Kubernetes   the same, and spark.kubernetes.allocation.batch.size as large as the steps that are wanted
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.engines.spark.error_text import first_words
from penstock.engines.spark.executors.contract import ExecutorsError, Negotiator, Standing
from penstock.engines.spark.executors.fixed import FixedExecutors
from penstock.engines.spark.executors.warm_up import warm_up
from penstock.engines.spark.jvm import ExecutorAllocation, JvmError, list_executors

_NEVER = "1000d"
PARKED = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": _NEVER,
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": _NEVER,
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": _NEVER,
    "spark.dynamicAllocation.schedulerBacklogTimeout": _NEVER,
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": _NEVER,
    # An executor that goes hands its blocks on first; it looks every half second whether it is done.
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.rddBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "500ms",
}
_POLL_S = 0.2


def negotiator_of(spark: SparkSession, *, patience_s: float = 60.0, warmed: bool = True) -> Negotiator:
    context = spark.sparkContext
    if context.master.startswith("local") and not context.master.startswith("local-cluster"):
        return FixedExecutors(int(context.defaultParallelism))
    return SparkNegotiator(spark, patience_s=patience_s, warmed=warmed)


class SparkNegotiator:
    """`patience_s` is how long the next executor is waited for, to come or to go; `warmed` ones count when they are."""

    def __init__(self, spark: SparkSession, *, patience_s: float = 60.0, warmed: bool = True) -> None:
        self._spark = spark
        self._master = spark.sparkContext.master
        self.patience_s = patience_s
        self._warmed = warmed
        self._allocation = ExecutorAllocation(spark)
        self._check_parked()
        self._slots_each: int | None = None
        self._planned = self._requested = 1
        self._warm: set[str] = set()

    @property
    def slots_each(self) -> int:
        if self._slots_each is None:
            cores = self._spark.conf.get("spark.executor.cores", None)
            self._slots_each = int(cores) if cores is not None else self._cores_seen()
        return self._slots_each

    def standing(self) -> Standing:
        return Standing(planned=self._planned, requested=self._requested, observed=tuple(self._active()))

    def check(self, slots: int) -> None:
        """Whether a cluster has so many is known only when they have been asked for."""

    def ask(self, count: int) -> None:
        if count < 1:
            raise ExecutorsError(f"{count} executors: a run needs 1 or more")
        self._requested = count
        self._allocation.request_total(count)

    def release(self, ids: Sequence[str]) -> None:
        self._check_decommissions()
        for executor in ids:
            self._allocation.decommission(executor, "the plan has fewer executors")

    def begin(self, slots: int | None) -> int:
        return self.settle(self.slots_each if slots is None else slots)

    def settle(self, slots: int) -> int:
        try:
            return self._settle(slots)
        except (JvmError, PySparkException) as error:  # a master that is gone, a session that has ended
            raise ExecutorsError(
                f"executors could not be changed: {first_words(error)}; see whether the master at {self._master} is up"
            ) from error

    def _settle(self, slots: int) -> int:
        count = math.ceil(slots / self.slots_each)
        if count < len(self._active()):
            self._check_decommissions()
        self._planned = count
        self.ask(count)
        self._await(lambda: count - len(self._active()))
        there = self._active()
        if len(there) > count:
            leaving = self._newest(there)[: len(there) - count]
            self.release(leaving)
            self._await(lambda: len(set(leaving) & set(self._registered())))
            there = [one for one in there if one not in leaving] + [one for one in leaving if one in self._active()]
        cold = [one for one in there if one not in self._warm] if self._warmed else []
        warm = warm_up(self._spark, cold, self.slots_each, most_s=self.patience_s)
        self._warm = {*self._warm.intersection(there), *warm}
        if cold:  # it takes seconds, in which some may be lost
            there = [one for one in there if one in self._active()]
        if not there:
            raise ExecutorsError(
                f"not one executor came within {self.patience_s:g} s of being asked for, and stayed; see whether the "
                f"master at {self._master} is up and has a worker with {self.slots_each} free slots"
            )
        if len(there) < count:
            self.ask(len(there))  # what did not come now is not to come in the middle of another plan
        return len(there) * self.slots_each

    # ---- what Spark says

    def _await(self, missing: Callable[[], int]) -> None:
        """Until nothing is missing, or no less has been for too long: one that comes and dies again is no progress."""
        least, give_up = missing(), time.monotonic() + self.patience_s
        while least > 0 and time.monotonic() < give_up:
            time.sleep(_POLL_S)
            if (now := missing()) < least:
                least, give_up = now, time.monotonic() + self.patience_s

    def _registered(self) -> list[str]:
        return self._allocation.registered_ids()

    def _active(self) -> list[str]:
        """Without those that are on their way out."""
        return [one for one in self._registered() if self._allocation.is_active(one)]

    def _newest(self, ids: Sequence[str]) -> list[str]:
        """Spark numbers them as they come: the oldest have the warmest state and code."""
        return sorted(ids, key=lambda one: int(one) if one.isdigit() else 0, reverse=True)

    def _cores_seen(self) -> int:
        self._await(lambda: 1 - len(self._registered()))
        for executor in list_executors(self._spark):
            return executor.cores
        raise ExecutorsError(
            "nobody knows how many slots an executor has: none is there, and spark.executor.cores is not set; set it"
        )

    def _check_decommissions(self) -> None:
        """Without it an executor that is let go gets no more tasks and stays for ever."""
        if self._spark.sparkContext.getConf().get("spark.decommission.enabled", "false") != "true":
            raise ExecutorsError(
                "executors of this session cannot be let go; start it with spark.decommission.enabled=true and "
                "spark.storage.decommission.enabled=true"
            )

    def _check_parked(self) -> None:
        """Two who both set the number of executors would undo each other's work."""
        conf = self._spark.sparkContext.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
            return
        for key in ("executorIdleTimeout", "schedulerBacklogTimeout"):
            name = f"spark.dynamicAllocation.{key}"
            if conf.get(name, "") != PARKED[name]:
                raise ExecutorsError(
                    f"Spark's dynamic allocation changes executors of this session by itself ({name}="
                    f"{conf.get(name, 'default')}); switch it off, or set {name}={PARKED[name]}"
                )
