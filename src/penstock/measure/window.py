"""Window: what was observed of a run over a span of time. Names carry units; what cannot be known is None."""

from __future__ import annotations

from typing import Any

import msgspec


class OperatorWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One operator over the window. A *true* rate counts busy time only: what a replica could do if always fed."""

    operator: str
    pipeline: str
    replicas: int | None  # None of a source, which the replicas behind it read
    rows_in_total: int | None  # since the run began
    rows_out_total: int | None
    rows_in: int | None  # within this window
    rows_out: int | None
    input_rows_per_s: float | None  # arriving, whether processed or not
    processed_rows_per_s: float | None
    true_rows_per_s: float | None  # per replica: rows / busy time
    selectivity: float | None
    seconds_per_row: float | None  # busy seconds of one replica
    utilisation: float | None  # busy time / (replicas x window)
    backlog_rows: int | None  # waiting at the entrance of its pipeline; None inside a pipeline
    state_rows: int | None
    state_bytes: int | None
    arrival_scv: float | None = None  # squared coefficient of variation of the times between arriving rows
    service_scv: float | None = None  # and of the seconds a row
    sent: dict[str, float] | None = None  # share of its rows for each consumer; None: all rows for all of them

    def share_for(self, consumer: str) -> float:
        return 1.0 if self.sent is None else self.sent.get(consumer, 0.0)

    @staticmethod
    def knowing(operator: str, pipeline: str, **known: Any) -> OperatorWindow:
        """With these fields, and nothing known of the others."""
        unknown = dict.fromkeys(OperatorWindow.__struct_fields__)
        return OperatorWindow(**unknown | {"operator": operator, "pipeline": pipeline} | known)  # type: ignore[arg-type]


class PipelineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One query over the window."""

    pipeline: str
    operators: tuple[str, ...]
    batches: int
    rows_in: int
    batch_s: float | None  # mean time of a batch
    batch_max_s: float | None
    phases_s: dict[str, float]  # mean time of a batch by Spark's phases
    busy_s: float | None  # task time within the window, all slots added up
    backlog_rows: int | None


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Time from a row's append at the source to its result's commit at a sink, over the rows of a window."""

    rows: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


class Window(msgspec.Struct, frozen=True, kw_only=True):
    start_s: float  # wall clock, seconds since the epoch
    end_s: float
    generation: int  # of the plan in force
    external_rows_per_s: float | None  # appended at all sources
    latency: Latency | None
    pipelines: tuple[PipelineWindow, ...]
    operators: tuple[OperatorWindow, ...]  # upstream first

    def operator(self, name: str) -> OperatorWindow:
        return next(one for one in self.operators if one.operator == name)
