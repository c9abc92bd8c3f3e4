"""Window: the measurements of a run over a span of time. Field names carry units; unknown values are None."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class SharedCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of operators that run fused in the same tasks, so that only their total can be measured."""

    operators: tuple[str, ...]  # upstream first
    seconds_per_row: float | None  # busy time of all of them per row that enters the first one
    utilisation: float | None  # utilisation of all of them together; at most 1


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate with the ends of its interval. None: the value is not known, or has no upper end."""

    low: float
    value: float | None
    high: float | None


class CallWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The concurrent calls of one operator over the window. Means are None if there were no calls."""

    threads: int  # calls that each replica may have in flight, according to the plan
    calls: int  # including retries
    in_flight: float | None  # mean per replica while it is busy
    call_s: float | None  # mean time of a call
    wait_s: float | None  # mean time of a row from its arrival in the task to the start of its first call
    retries: int
    timeouts: int
    failed_rows: int  # rows without a result after all attempts
    abandoned: int  # calls that had not returned after their timeout when their task ended

    @staticmethod
    def none(threads: int) -> CallWindow:
        """Return a window without calls."""
        return CallWindow(
            threads=threads,
            calls=0,
            in_flight=None,
            call_s=None,
            wait_s=None,
            retries=0,
            timeouts=0,
            failed_rows=0,
            abandoned=0,
        )


class OperatorWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One operator over the window. A *true* rate is per busy time: the rate of a replica that always has input.

    If the cost is shared, `seconds_per_row` and `utilisation` are the part of the total that the operator has by its
    number of rows. The parts add up to the total, so models count the total once. They are not measurements of the
    operator.
    """

    operator: str
    pipeline: str
    replicas: int | None  # None for a source, which the downstream replicas read
    rows_in_total: int | None  # since the start of the run
    rows_out_total: int | None
    rows_in: int | None  # within this window
    rows_out: int | None
    input_rows_per_s: float | None  # arriving rows, processed or not
    processed_rows_per_s: float | None
    true_rows_per_s: float | None  # per replica: rows / busy time; None if the cost is shared
    selectivity: float | None
    seconds_per_row: float | None  # busy time of one replica
    utilisation: float | None  # busy time / (replicas x time of the batches and between them); at most 1
    backlog_rows: int | None  # at the input of its pipeline; None inside a pipeline
    state_rows: int | None
    state_bytes: int | None
    arrival_scv: float | None = None  # squared coefficient of variation of the interarrival times
    service_scv: float | None = None  # squared coefficient of variation of the seconds per row
    late_rows: int | None = None  # dropped because they were older than the watermark; Spark counts after grouping
    late_rows_total: int | None = None  # since the start of the run
    dropped_rows_total: int | None = None  # waiting rows above the limit of an operator class, since the start
    open_windows: int | None = None  # groups (window and key) whose result append mode has not emitted yet
    shared_cost: SharedCost | None = None  # None: the cost was measured for this operator alone
    # Part of the time in which its replicas move rows between pipelines; only at the first operator of a pipeline. It
    # is not part of `utilisation`. None: the engine does not measure it.
    overhead: float | None = None
    sent: dict[str, float] | None = None  # share of its rows per consumer; None: every consumer receives all rows
    # Time that the utilisation refers to: the batches that ended and the pauses between them. None: the whole window.
    utilisation_s: float | None = None
    calls: CallWindow | None = None  # None: it processes one row after the other
    min_seconds_per_row: float | None = None  # low quantile over the latest windows; None: only the mean is known

    def share_for(self, consumer: str) -> float:
        """Return the share of the output rows that a consumer receives."""
        return 1.0 if self.sent is None else self.sent.get(consumer, 0.0)

    @staticmethod
    def knowing(operator: str, pipeline: str, **known: Any) -> OperatorWindow:
        """Return a window with these fields; all other fields are None."""
        unknown = dict.fromkeys(OperatorWindow.__struct_fields__)
        return OperatorWindow(**unknown | {"operator": operator, "pipeline": pipeline} | known)  # type: ignore[arg-type]


class PipelineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One query over the window."""

    pipeline: str
    operators: tuple[str, ...]
    batches: int
    rows_in: int
    batch_s: float | None  # mean time per batch
    batch_max_s: float | None
    phases_s: dict[str, float]  # mean time per batch in each phase of Spark
    busy_s: float | None  # task time within the window, summed over all slots
    backlog_rows: int | None  # None: the source does not expose it
    fixed_s: Estimate | None = None  # time of a batch that does not depend on its rows
    last_batch_ended_s: float | None = None  # wall clock; None: no batch ended, or the time is not known
    # Only for the queries of a watched program:
    state: Literal["running", "ended", "crashed"] = "running"
    error: str | None = None  # first line of the error of a crashed query
    trigger: str | None = None  # such as "2 s" or "availableNow"; None: batches follow each other immediately
    input_rows_per_s: float | None = None  # arriving rows of this query
    capacity: tuple[Estimate, ...] = ()  # rows/s that the query sustains with 1, 2, ... executors
    task_s_per_row: float | None = None  # task time per row, summed over all slots
    bottleneck: str | None = None  # the part of a batch that limits the capacity
    saturated: bool | None = None  # whether the waiting rows grow without bound; None: unknown


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Time from the append of a row at the source to the commit of its result at a sink, over the rows of a window."""

    rows: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    sd_s: float | None = None  # standard deviation; None: unknown


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of a run between `start_s` and `end_s`."""

    start_s: float  # wall clock, in seconds since the epoch
    end_s: float
    generation: int  # generation of the active plan
    external_rows_per_s: float | None  # appended at all sources
    latency: Latency | None
    pipelines: tuple[PipelineWindow, ...]
    operators: tuple[OperatorWindow, ...]  # upstream first
    warm_up: bool = False  # whether it began shortly after a start; headline figures leave it out

    @property
    def used_slots(self) -> int:
        """Slots that the plan can use at once: the replicas of the widest stage of each query."""
        replicas: dict[str, int] = {}
        for operator in self.operators:
            replicas[operator.pipeline] = max(replicas.get(operator.pipeline, 0), operator.replicas or 0)
        return sum(replicas.values())

    def operator(self, name: str) -> OperatorWindow:
        """Return the window of the operator with this name."""
        return next(operator for operator in self.operators if operator.operator == name)
