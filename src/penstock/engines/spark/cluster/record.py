"""What is written down of a cluster, so that others can find it, look at it and end exactly what was started."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.store.lock import Owner

FILE = "cluster.json"
MOST_WORKERS = 100  # a slip of the finger is not to start JVMs until nothing else runs


class ClusterError(PenstockError):
    """A cluster that is not there, does not come up, or cannot be what was asked for."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Slots are tasks at once, not cores: operators that wait for something else use more of them than there are."""

    workers: int = 3
    slots: int = 2  # of each worker, which is one executor of a run
    memory_mb: int = 1024  # of each worker

    def check(self) -> None:
        if self.workers < 1 or self.slots < 1:
            raise ClusterError(f"{self.workers} workers of {self.slots} slots each: give 1 or more of both")
        if self.workers > MOST_WORKERS:
            raise ClusterError(
                f"{self.workers} workers: each is a process of this one machine, which takes {MOST_WORKERS} at most"
            )
        if self.memory_mb < 472:
            raise ClusterError(f"{self.memory_mb} MB a worker: Spark starts no executor below 472 MB")


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor is told."""

    asked: Asked
    starter: Owner  # it ends when this process does
    lives_on: bool = False  # but not once all is up: then it ends when it is told to


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A master or a worker as a process; `starts` counts this one too."""

    name: str
    process: Owner
    starts: int = 1


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Replaced whole by the supervisor whenever one of its processes changes."""

    asked: Asked
    master: str  # spark://127.0.0.1:port
    web_port: int  # of the master, where it says how it is
    supervisor: Owner
    daemons: tuple[Daemon, ...] = ()
    ready: bool = False
    trouble: tuple[str, ...] = ()

    def save(self, at: Path) -> None:
        write_atomically(at / FILE, msgspec.json.encode(self))

    @staticmethod
    def load(at: Path) -> Record | None:
        try:
            return msgspec.json.decode((at / FILE).read_bytes(), type=Record)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.DecodeError as error:
            raise ClusterError(f"'{at / FILE}' is no record of a cluster ({error}); give another directory") from None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """As the record, the processes and the master itself say."""

    master: str
    asked: Asked
    daemons: dict[str, str]  # name -> running, or what it is instead
    workers_alive: int | None  # as the master counts them; None: it does not answer
    slots_used: int | None
    runs: tuple[str, ...] = ()  # applications that it serves now
    trouble: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        return self.workers_alive == self.asked.workers and not self.trouble
