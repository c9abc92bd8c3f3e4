"""The resource profile of each executor group.

Spark runs a stage with a resource profile only on executors that were started for this profile, and never runs other
stages on them. All groups request equal executors: a profile differs from the default one only in its id.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.resource import ExecutorResourceRequests, ResourceProfile, ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import DEFAULT_PROFILE, ExecutorAllocation

# The profiles of each Spark application, by the name of the group. Runs that follow each other in one session share
# them, so that each knows the executors that an earlier one has left.
_PROFILES: dict[str, dict[str, ResourceProfile]] = {}


class GroupProfiles:
    """The resource profiles of one session, created when they are first used."""

    def __init__(self, spark: SparkSession, allocation: ExecutorAllocation) -> None:
        self._conf = spark.sparkContext.getConf()
        self._allocation = allocation
        self._profiles = _PROFILES.setdefault(str(spark.sparkContext.applicationId), {})

    @property
    def names(self) -> tuple[str, ...]:
        """The groups that have had a profile in this session."""
        return tuple(self._profiles)

    def profile(self, group: str, cores: int) -> ResourceProfile:
        """Return the profile of a group, whose executors have this number of cores."""
        if group not in self._profiles:
            profile = self._new_profile(cores)
            self._allocation.add_profile(profile)
            self._profiles[group] = profile
        return self._profiles[group]

    def id(self, group: str) -> int:
        """Return Spark's id of the profile of a group in `names`."""
        return self._profiles[group].id

    def by_group(self, executors: Sequence[str]) -> dict[str | None, list[str]]:
        """Return the executors of each group in `names`, and under None those without a group."""
        members: dict[str | None, list[str]] = {None: []} | {name: [] for name in self._profiles}
        if not self._profiles:
            return {None: list(executors)}
        names: dict[int, str | None] = {profile.id: name for name, profile in self._profiles.items()}
        for executor in executors:
            profile = self._allocation.profile_of(executor)
            if profile in names or profile == DEFAULT_PROFILE:
                members[names.get(profile)].append(executor)
        return members

    def _new_profile(self, cores: int) -> ResourceProfile:
        requests = ExecutorResourceRequests().cores(cores)
        requests = requests.memory(self._conf.get("spark.executor.memory", "1g") or "1g")
        # A profile inherits no other property of the session's executors.
        if overhead := self._conf.get("spark.executor.memoryOverhead"):
            requests = requests.memoryOverhead(overhead)
        if python_memory := self._conf.get("spark.executor.pyspark.memory"):
            requests = requests.pysparkMemory(python_memory)
        if self._conf.get("spark.memory.offHeap.enabled", "false") == "true":
            requests = requests.offheapMemory(self._conf.get("spark.memory.offHeap.size", "0") or "0")
        tasks = TaskResourceRequests().cpus(int(self._conf.get("spark.task.cpus", "1") or 1))
        return ResourceProfileBuilder().require(requests).require(tasks).build
