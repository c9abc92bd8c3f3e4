"""What a run has committed to: the plan in force and the queries that carry it out. One file, replaced in one step.

Everything else in the run's directory is either named here or rubbish of a change that never came to be.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.reading.gate import COMMITTED
from penstock.engines.spark.storage.files import write_whole
from penstock.plan.pipelines import Pipeline
from penstock.plan.plan import Plan


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """How a query names a source for Spark, and where it began to read it."""

    name: str
    start: dict[str, int]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline as it runs: its checkpoint, what it reads, and the channel that it appends to."""

    operators: tuple[str, ...]
    replicas: dict[str, int]
    checkpoint: str
    opens_at: int
    sources: dict[str, Use]  # source operator, or 'producer>consumer' of a channel -> its use
    reads: dict[str, str]  # 'producer>consumer' -> folder of the channel
    appends_to: str | None  # folder of the channel; None: a sink

    @property
    def pipeline(self) -> str:
        return self.operators[-1]

    def does(self, pipeline: Pipeline, channels: dict[str, str]) -> bool:
        """Whether it already is this pipeline, so that it can be left alone."""
        return (
            self.operators == pipeline.operators
            and self.replicas == dict(pipeline.replicas)
            and self.reads == {edge(*ends): channels[ends[0]] for ends in pipeline.inputs}
            and self.appends_to == channels.get(pipeline.output)
        )


class End(msgspec.Struct, frozen=True, kw_only=True):
    """A source or a sink as it was declared."""

    what: str  # in words; it stays for as long as the run lives
    rows_per_s: float | None = None
    looks_for: str | None = None  # the glob of files that appear


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    generation: int
    plan: Plan
    shape: str  # of the dataflow, to tell whether it is still the same
    queries: tuple[Query, ...]
    channels: dict[str, str]  # cut operator -> folder
    ends: dict[str, End] = {}  # source or sink -> what it was declared to be; runs of earlier versions have none

    def save(self, run: Path) -> None:
        write_whole(run / COMMITTED, msgspec.json.encode(self))

    @staticmethod
    def load(run: Path) -> Committed | None:
        try:
            return msgspec.json.decode((run / COMMITTED).read_bytes(), type=Committed)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PenstockError(
                f"'{run / COMMITTED}' is not a committed plan ({error}); restore it from a copy, or start a new run in "
                "another directory"
            ) from None


def edge(producer: str, consumer: str) -> str:
    return f"{producer}>{consumer}"
