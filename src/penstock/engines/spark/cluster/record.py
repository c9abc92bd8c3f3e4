"""The record of a cluster on disk, by which other processes find it, inspect it and stop exactly what was started."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.store.lock import Owner

FILE = "cluster.json"
MAX_WORKERS = 100  # protects the machine from a typing error
MIN_MEMORY_MB = 472  # the smallest executor that Spark accepts


class ClusterError(PenstockError):
    """A cluster does not exist, does not start, or cannot have the requested size."""


class ClusterSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a cluster. Slots are concurrent tasks and may exceed the cores, for operators that mostly wait."""

    workers: int = 3
    slots: int = 2  # per worker; each worker runs one executor
    memory_mb: int = 1024  # per worker

    def check(self) -> None:
        """Raise ClusterError if a cluster cannot have this size."""
        if self.workers < 1 or self.slots < 1:
            raise ClusterError(
                f"A cluster of {self.workers} workers with {self.slots} slots each was requested; give 1 or more of "
                "both."
            )
        if self.workers > MAX_WORKERS:
            raise ClusterError(
                f"A cluster of {self.workers} workers was requested; each is a process on this machine, and at most "
                f"{MAX_WORKERS} are allowed."
            )
        if self.memory_mb < MIN_MEMORY_MB:
            raise ClusterError(
                f"{self.memory_mb} MB per worker were requested; Spark requires at least {MIN_MEMORY_MB} MB."
            )


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a supervisor."""

    size: ClusterSize
    starter: Owner  # the supervisor ends when this process ends
    outlives_starter: bool = False  # after the cluster is ready, it ends on SIGTERM only


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a master or a worker; `starts` counts its starts including this one."""

    name: str
    process: Owner
    starts: int = 1


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cluster. The supervisor replaces it whenever one of its processes changes."""

    size: ClusterSize
    master: str  # spark://127.0.0.1:port
    web_port: int  # port of the master's web page
    supervisor: Owner
    daemons: tuple[Daemon, ...] = ()
    ready: bool = False
    problems: tuple[str, ...] = ()

    def save(self, at: Path) -> None:
        write_atomically(at / FILE, msgspec.json.encode(self))

    @staticmethod
    def load(at: Path) -> ClusterRecord | None:
        """Return the record in a directory, or None if there is none."""
        try:
            return msgspec.json.decode((at / FILE).read_bytes(), type=ClusterRecord)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.DecodeError as error:
            raise ClusterError(
                f"'{at / FILE}' is not a valid record of a cluster ({error}). Give another directory."
            ) from None


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a cluster according to its record, its processes and its master."""

    master: str
    size: ClusterSize
    daemons: dict[str, str]  # name -> state in words
    workers_alive: int | None  # according to the master; None: it does not answer
    slots_used: int | None
    runs: tuple[str, ...] = ()  # names of the active applications
    problems: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return self.workers_alive == self.size.workers and not self.problems
