"""The committed plan of a run and the queries that execute it. It is one file, replaced in one step.

Everything else in the run directory is named here, or is left over from a change that was not committed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.dataflow.edge import Edge
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.plan.pipelines import Pipeline
from penstock.plan.plan import Plan

Origin = str | Edge  # where rows of a query come from: a source operator, or the edge whose channel is read


class SourceInput(msgspec.Struct, frozen=True, kw_only=True, tag="source"):
    """A source operator that a query reads."""

    operator: str
    name: str  # the name of the source in Spark's checkpoint
    start: Offset  # the offset at which the query began to read

    @property
    def origin(self) -> Origin:
        return self.operator


class ChannelInput(msgspec.Struct, frozen=True, kw_only=True, tag="channel"):
    """A channel that a query reads."""

    edge: Edge
    folder: str  # folder of the channel
    name: str  # the name of the source in Spark's checkpoint
    start: Offset  # the offset at which the query began to read

    @property
    def origin(self) -> Origin:
        return self.edge


QueryInput = SourceInput | ChannelInput


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """The query of one pipeline: its checkpoint, its inputs, and the channel to which it appends."""

    operators: tuple[str, ...]
    replicas: dict[str, int]
    checkpoint: str
    opens_at: int  # the generation of the plan that started the query
    inputs: tuple[QueryInput, ...]
    appends_to: str | None  # folder of the channel; None if the pipeline ends in a sink
    groups: dict[str, str] = {}  # operator -> group of executors, for those that have one
    shares: dict[str, tuple[float, ...]] = {}  # operator -> share of the rows of each replica, unless they are equal
    keeps_all_columns: bool = False  # in its state; False for state of earlier versions, which lacks unused columns

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
        """Return the input that comes from `origin`, which must be one of its inputs."""
        source = self.find_input(origin)
        if source is None:
            raise PenstockError(f"Pipeline '{self.pipeline}' does not read from '{origin}'.")
        return source

    def runs(self, pipeline: Pipeline, channels: dict[str, str]) -> bool:
        """Return whether the query already executes this pipeline, so that it can keep running."""
        return (
            self.operators == pipeline.operators
            and self.replicas == dict(pipeline.replicas)
            and self.groups == dict(pipeline.groups)
            and self.shares == dict(pipeline.shares)
            and self.channels_read == channels_read(pipeline, channels)
            and self.appends_to == channels.get(pipeline.output)
        )


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a source or a sink."""

    description: str  # must not change during the life of a run
    rows_per_s: float | None = None
    glob: str | None = None  # pattern of a source that reads files as they appear


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """The plan in force, and the queries and channels that execute it."""

    generation: int
    plan: Plan
    shape: str  # a fingerprint of the dataflow
    queries: tuple[Query, ...]
    channels: dict[str, str]  # cut operator -> folder of its channel
    endpoints: dict[str, Endpoint]  # keyed by source or sink
    aggregates: dict[str, tuple[str, ...]] = {}  # aggregate functions by operator with state

    def save(self, run: Path) -> None:
        write_atomically(run / PLAN_FILE, msgspec.json.encode(self))

    @staticmethod
    def load(run: Path) -> Committed | None:
        try:
            return msgspec.json.decode((run / PLAN_FILE).read_bytes(), type=Committed)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PenstockError(
                f"'{run / PLAN_FILE}' is not a valid committed plan ({error}); restore it from a copy, or begin a new "
                "run in another directory"
            ) from None


def channels_read(pipeline: Pipeline, channels: dict[str, str]) -> dict[Edge, str]:
    """Return the folder of each channel that a query of this pipeline reads.

    `channels` maps each cut operator to the folder of its channel.
    """
    return {edge: channels[edge.producer] for edge in pipeline.inputs}
