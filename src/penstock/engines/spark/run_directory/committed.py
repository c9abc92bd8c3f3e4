"""What a run has committed to: the plan in force and the queries that carry it out. One file, replaced in one step.

Everything else in the run's directory is either named here or rubbish of a change that never came to be.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.dataflow.edge import Edge
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.reading.gate import COMMITTED
from penstock.engines.spark.storage.files import write_whole
from penstock.plan.pipelines import Pipeline
from penstock.plan.plan import Plan

Origin = str | Edge  # where rows of a query come from: a source operator, or the edge whose channel is read


class SourceInput(msgspec.Struct, frozen=True, kw_only=True, tag="source"):
    """A source operator that a query reads."""

    operator: str
    name: str  # the name of the source in Spark's checkpoint
    start: dict[str, int]  # the offset at which the query began to read

    @property
    def origin(self) -> Origin:
        return self.operator


class ChannelInput(msgspec.Struct, frozen=True, kw_only=True, tag="channel"):
    """A channel that a query reads."""

    edge: Edge
    folder: str  # of the channel
    name: str  # the name of the source in Spark's checkpoint
    start: dict[str, int]  # the offset at which the query began to read

    @property
    def origin(self) -> Origin:
        return self.edge


QueryInput = SourceInput | ChannelInput


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline as it runs: its checkpoint, what it reads, and the channel that it appends to."""

    operators: tuple[str, ...]
    replicas: dict[str, int]
    checkpoint: str
    opens_at: int
    inputs: tuple[QueryInput, ...]
    appends_to: str | None  # folder of the channel; None: a sink

    @property
    def pipeline(self) -> str:
        return self.operators[-1]

    @property
    def channels_read(self) -> dict[Edge, str]:
        """Return the folder of each channel that the query reads."""
        return {source.edge: source.folder for source in self.inputs if isinstance(source, ChannelInput)}

    def find_input(self, origin: Origin) -> QueryInput | None:
        """Return the input that comes from `origin`, or None if the query does not read it."""
        return next((source for source in self.inputs if source.origin == origin), None)

    def input(self, origin: Origin) -> QueryInput:
        """Return the input that comes from `origin`."""
        return next(source for source in self.inputs if source.origin == origin)

    def does(self, pipeline: Pipeline, channels: dict[str, str]) -> bool:
        """Whether it already is this pipeline, so that it can be left alone."""
        return (
            self.operators == pipeline.operators
            and self.replicas == dict(pipeline.replicas)
            and self.channels_read == channels_read(pipeline, channels)
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


def channels_read(pipeline: Pipeline, channels: dict[str, str]) -> dict[Edge, str]:
    """Return the folder of each channel that a query of this pipeline reads.

    `channels` maps each cut operator to the folder of its channel.
    """
    return {edge: channels[edge.producer] for edge in pipeline.inputs}
