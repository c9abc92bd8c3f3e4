"""Executors from the cluster manager on which Spark runs: standalone, YARN or Kubernetes.

Spark's dynamic allocation adds and removes executors, but it decides by queued tasks, which do not reflect the load of
a stream. Penstock therefore enables dynamic allocation with timeouts that never expire, and sets the number of
executors itself through the same calls. Each cluster manager needs these settings:

    standalone   spark.executor.cores and spark.executor.memory, so that the size of an executor is known
    YARN         the same; shuffle tracking is on, so no shuffle service is needed
    Kubernetes   the same, and spark.kubernetes.allocation.batch.size at least as large as the largest increase
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfile
from pyspark.sql import SparkSession

from penstock.engines.spark.error_text import first_line
from penstock.engines.spark.executors.fixed_executors import FixedExecutors
from penstock.engines.spark.executors.group_profiles import GroupProfiles
from penstock.engines.spark.executors.negotiator import ExecutorCounts, ExecutorsError, Negotiator
from penstock.engines.spark.executors.warm_up import warm_up
from penstock.engines.spark.jvm import ExecutorAllocation, JvmError, list_executors
from penstock.engines.spark.properties import PASSIVE_ALLOCATION
from penstock.plan import ExecutorGroup
from penstock.plan.counts import slots_text

_POLL_S = 0.2


def negotiator_of(
    spark: SparkSession,
    *,
    patience_s: float = 60.0,
    warms_up: bool = True,
    directory: Path | None = None,
    outputs: Sequence[Path] = (),
    cancelled: threading.Event | None = None,
) -> Negotiator:
    """Return the negotiator for the master of a session.

    All executors must be able to access `directory` and the folders `outputs`.

    `cancelled` ends the wait for executors.
    """
    context = spark.sparkContext
    master = str(context.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return FixedExecutors(int(context.defaultParallelism))
    return SparkNegotiator(
        spark, patience_s=patience_s, warms_up=warms_up, directory=directory, outputs=outputs, cancelled=cancelled
    )


def await_zero(missing: Callable[[], int], patience_s: float, cancelled: threading.Event) -> None:
    """Wait until nothing is missing, or until the lowest count has not decreased for `patience_s`.

    An executor that registers and is lost again is no progress. Raises ExecutorsError if the wait is cancelled.
    """
    lowest, deadline = missing(), time.monotonic() + patience_s
    while lowest > 0 and time.monotonic() < deadline:
        if cancelled.wait(_POLL_S):
            raise ExecutorsError("The wait for executors was cancelled.")
        if (now := missing()) < lowest:
            lowest, deadline = now, time.monotonic() + patience_s


def newest(executors: Sequence[str], count: int) -> list[str]:
    """Return the newest executors. They are released first, because the oldest have the most state and compiled code.

    >>> newest(["1", "10", "2"], 2), newest(["1"], -1)
    (['10', '2'], [])
    """
    by_age = sorted(executors, key=lambda executor: int(executor) if executor.isdigit() else 0)
    return by_age[::-1][: max(0, count)]


def _paired(wanted: Mapping[str | None, int], members: Mapping[str | None, list[str]]) -> list[tuple[int, list[str]]]:
    """Return the wanted number and the executors of each group."""
    return [(count, members[name]) for name, count in wanted.items()]


class SparkNegotiator:
    """Obtains executors through Spark.

    `patience_s` is how long to wait for the next executor to register or to leave. If `warms_up` is set, new executors
    count as available only after Python has started on them, and after a task has accessed `directory` and the
    folders `outputs`.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        patience_s: float = 60.0,
        warms_up: bool = True,
        directory: Path | None = None,
        outputs: Sequence[Path] = (),
        cancelled: threading.Event | None = None,
    ) -> None:
        self._spark = spark
        self._cancelled = threading.Event() if cancelled is None else cancelled
        self._master = spark.sparkContext.master
        self.patience_s = patience_s
        self._warms_up = warms_up
        self._allocation = ExecutorAllocation(spark)
        self._check_allocation_is_passive()
        self._profiles = GroupProfiles(spark, self._allocation)
        self._slots_per_executor: int | None = None
        self._planned = self._requested = 1
        self._requested_in_groups: dict[str, int] = {}
        self._directory = directory
        self._outputs = tuple(outputs)
        self._admission = threading.Lock()  # guards the next two
        self._warm: set[str] = set()
        self._rejected: dict[str, str] = {}  # executor -> the place that it cannot access, and why

    @property
    def slots_per_executor(self) -> int:
        if self._slots_per_executor is None:
            cores = self._spark.conf.get("spark.executor.cores", None)
            self._slots_per_executor = int(cores) if cores is not None else self._registered_cores()
        return self._slots_per_executor

    def counts(self) -> ExecutorCounts:
        active = self._active()
        members = self._profiles.by_group(active)
        groups = {name: tuple(members[name]) for name, count in self._requested_in_groups.items() if count}
        surplus = sum(max(0, len(members[name]) - count) for name, count in self._requested_in_groups.items())
        registered = tuple(executor for name in (None, *groups) for executor in members[name])
        requested = self._requested + sum(self._requested_in_groups.values())
        return ExecutorCounts(
            planned=self._planned, requested=requested, registered=registered, groups=groups, surplus=surplus
        )

    def check(self, slots: int) -> None:
        """Accept any number: only a request shows how many executors the cluster has."""

    def check_groups(self, groups: Mapping[str, ExecutorGroup]) -> None:
        if groups and self._spark.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false") != "true":
            raise ExecutorsError(
                "This session cannot group executors, because its dynamic allocation is disabled. Let Penstock create "
                'the session, start it with spark.dynamicAllocation.enabled=true, or remove "groups" from the plan.'
            )
        for name, group in groups.items():
            missing = -group.slots % self.slots_per_executor
            if missing:
                raise ExecutorsError(
                    f"Group '{name}' has {slots_text(group.slots)}, but each executor has {self.slots_per_executor}. "
                    f"Give the group {group.slots + missing}, or use a cluster with smaller executors."
                )

    def profile(self, group: str) -> ResourceProfile:
        return self._profiles.profile(group, self.slots_per_executor)

    def request(self, count: int, groups: Mapping[str, int] | None = None) -> None:
        if count < 1:
            raise ExecutorsError(f"{count} executors were requested; a run needs 1 or more.")
        self._requested = count
        # The executors of a removed group must not be replaced.
        self._requested_in_groups = dict.fromkeys(self._profiles.names, 0) | dict(groups or {})
        by_profile = {self._profiles.id(name): number for name, number in self._requested_in_groups.items()}
        self._allocation.request_total(count, by_profile)

    def release(self, ids: Sequence[str]) -> None:
        self._check_decommissioning()
        for executor in ids:
            self._allocation.decommission(executor, "the run does not use it any more")

    def start(self, slots: int | None, groups: Mapping[str, ExecutorGroup] | None = None) -> int:
        return self.resize(self.slots_per_executor if slots is None else slots, groups)

    def resize(self, slots: int, groups: Mapping[str, ExecutorGroup] | None = None) -> int:
        try:
            return self._resize(slots, groups or {})
        except (JvmError, PySparkException) as error:
            raise ExecutorsError(
                f"The number of executors could not be changed: {first_line(error)}. Check that the master at "
                f"{self._master} is running."
            ) from error

    def _resize(self, slots: int, groups: Mapping[str, ExecutorGroup]) -> int:
        per_executor = self.slots_per_executor
        in_groups = {name: math.ceil(group.slots / per_executor) for name, group in groups.items()}
        for name in groups:
            self.profile(name)
        shared = math.ceil((slots - sum(group.slots for group in groups.values())) / per_executor)
        wanted: dict[str | None, int] = {None: shared}
        wanted |= {name: in_groups.get(name, 0) for name in self._profiles.names}
        if any(count < len(executors) for count, executors in _paired(wanted, self._members())):
            self._check_decommissioning()
        planned_before, rejections_before = self._planned, self.rejections
        self._planned = sum(wanted.values())
        self.request(shared, in_groups)
        leaving: set[str] = set()

        def missing() -> int:
            # Executors that are not needed leave at once, because the missing ones may need their workers.
            pairs = _paired(wanted, self._members())
            surplus = [executor for count, executors in pairs for executor in newest(executors, len(executors) - count)]
            if surplus:
                self.release(surplus)
                leaving.update(surplus)
            return sum(max(0, count - len(executors)) for count, executors in pairs)

        self._await_zero(missing)
        self._await_zero(lambda: len(leaving & set(self._registered())))
        available = self._active()
        members = self._profiles.by_group(self._admit(available))
        if self.rejections > rejections_before:
            self._planned = planned_before
            raise ExecutorsError(self._rejection())
        if not members[None]:
            raise ExecutorsError(
                f"No executor registered within {self.patience_s:g} s. Check that the master at {self._master} is "
                f"running and has a worker with {per_executor} free slots."
            )
        for name, count in in_groups.items():
            if len(members[name]) < count:
                raise ExecutorsError(
                    f"Group '{name}' has {len(members[name])} of its {count} executors, and no other one registered "
                    f"within {self.patience_s:g} s. Add workers to the cluster, or give the group fewer slots."
                )
        if len(members[None]) < shared:
            self.request(len(members[None]), in_groups)  # missing executors must not arrive later, under another plan
        return sum(len(members[name]) for name in wanted) * per_executor

    @property
    def rejections(self) -> int:
        return len(self._rejected)

    def admit_new(self) -> str | None:
        if self._directory is None or not self._warms_up:
            return None
        # The tasks of the finished batch ran on executors that had registered by now. Others may register meanwhile.
        present, before = self._active(), self.rejections
        self._admit(present)
        if self.rejections > before or set(self._active()) & self._rejected.keys():
            return self._rejection()
        unchecked = sorted(set(present).intersection(self._active()) - self._warm)
        if unchecked:
            return (
                f"Executor {unchecked[0]} completed no task within {self.patience_s:g} s, so its access to the run "
                f"directory '{self._directory}' could not be checked."
            )
        return None

    def _admit(self, available: list[str]) -> list[str]:
        """Warm up new executors and release those that cannot access the run directory; return the admitted ones."""
        if not self._warms_up:
            return available
        with self._admission:
            cold = [executor for executor in available if executor not in self._warm | self._rejected.keys()]
            results: dict[str, str | None] = {}
            for name, executors in self._profiles.by_group(cold).items():
                results |= warm_up(
                    self._spark,
                    executors,
                    self.slots_per_executor,
                    max_s=self.patience_s,
                    directory=self._directory,
                    outputs=self._outputs,
                    profile=None if name is None else self.profile(name),
                )
            rejected = {executor: failure for executor, failure in results.items() if failure is not None}
            self._warm |= results.keys() - rejected.keys()
            self._rejected |= rejected
            if rejected:
                admitted = [executor for executor in available if executor not in self._rejected]
                members = self._profiles.by_group(admitted)
                in_groups = {name: len(members[name]) for name, count in self._requested_in_groups.items() if count}
                # A replacement would come from the same machine.
                self.request(max(1, len(members[None])), in_groups)
                with contextlib.suppress(ExecutorsError):  # the caller refuses to use them in any case
                    self.release([executor for executor in rejected if executor in self._registered()])
        if not cold:
            return available
        active = self._active()
        return [executor for executor in available if executor in active and executor not in self._rejected]

    def _rejection(self) -> str:
        executor, failure = list(self._rejected.items())[-1]
        return (
            f"Executor {executor} cannot access {failure}; use a directory on a disk that the driver and all executors "
            "share under the same path."
        )

    # ---- state of the cluster

    def _await_zero(self, missing: Callable[[], int]) -> None:
        await_zero(missing, self.patience_s, self._cancelled)

    def _registered(self) -> list[str]:
        return self._allocation.registered_ids()

    def _active(self) -> list[str]:
        """Return the registered executors that are not being decommissioned."""
        return [executor for executor in self._registered() if self._allocation.is_active(executor)]

    def _members(self) -> dict[str | None, list[str]]:
        """Return the active executors of each group, and under None those without a group."""
        return self._profiles.by_group(self._active())

    def _registered_cores(self) -> int:
        self._await_zero(lambda: 1 - len(self._registered()))
        for executor in list_executors(self._spark):
            return executor.cores
        raise ExecutorsError(
            "Cannot determine the slots per executor: none has registered and spark.executor.cores is not set. Set "
            "spark.executor.cores."
        )

    def _check_decommissioning(self) -> None:
        """Raise unless decommissioning is enabled; a released executor would otherwise never exit."""
        if self._spark.sparkContext.getConf().get("spark.decommission.enabled", "false") != "true":
            raise ExecutorsError(
                "This session cannot release executors. Start it with spark.decommission.enabled=true and "
                "spark.storage.decommission.enabled=true."
            )

    def _check_allocation_is_passive(self) -> None:
        """Raise if dynamic allocation also changes the number of executors; both would undo each other's changes."""
        conf = self._spark.sparkContext.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
            return
        for key in ("executorIdleTimeout", "schedulerBacklogTimeout"):
            name = f"spark.dynamicAllocation.{key}"
            if conf.get(name, "") != PASSIVE_ALLOCATION[name]:
                raise ExecutorsError(
                    f"Spark's dynamic allocation changes the executors of this session by itself ({name}="
                    f"{conf.get(name, 'default')}). Disable it, or set {name}={PASSIVE_ALLOCATION[name]}."
                )
