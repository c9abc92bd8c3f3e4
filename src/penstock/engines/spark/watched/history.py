"""The history of one watched query: its batches, arrivals and waiting rows, and the window computed from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.engines.spark.jvm import FileSource, Trigger
from penstock.engines.spark.metering.fixed_cost import FIXED_PHASES
from penstock.engines.spark.queries.progress import Progress
from penstock.engines.spark.watched.backlog import FileCount, left_rows, reads_files_only, rows_read
from penstock.measure.arrivals import Arrivals
from penstock.measure.estimators import ratio
from penstock.measure.stage_run import StageRun
from penstock.measure.window import Estimate, PipelineWindow
from penstock.models.microbatch.bottleneck import bottleneck
from penstock.models.microbatch.capacity import BatchRun, capacities, fixed_time
from penstock.models.microbatch.saturation import WaitingRows, is_saturated, successor_slope

_BATCHES = 300  # batches that are fitted
_OLDEST_S = 900.0  # older batches are not fitted, because the cost of a row may change
_OBSERVED_BATCHES = 60  # batches that are tested for saturation
_CERTAIN_BATCHES = 12  # growing batches that are evidence although the upper end of the capacity may suffice
_CLEAR_GROWTH = 1.2  # growth from batch to batch that is evidence after fewer batches
Stages = tuple[StageRun, ...]


@dataclass(slots=True)
class WindowSums:
    """Sums over the batches of one query in one window. Cold and empty batches count as rows only."""

    batches: int = 0
    rows: int = 0
    all_batches: int = 0  # including cold and empty batches
    all_rows: int = 0
    seconds: float = 0.0
    max_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    timed_batches: int = 0  # batches whose task time is known
    busy_s: float = 0.0  # task time of these batches

    def add(self, batch: Progress, rows: int, busy_s: float | None) -> None:
        self.batches += 1
        self.rows += rows
        self.seconds += batch.batch_s
        self.max_s = max(self.max_s, batch.batch_s)
        if busy_s is not None:
            self.timed_batches, self.busy_s = self.timed_batches + 1, self.busy_s + busy_s
        for phase, seconds in batch.phases_s.items():
            self.phases_s[phase] = self.phases_s.get(phase, 0.0) + seconds

    def extrapolate(self, factor: float) -> None:
        """Scale the sums, because Spark has discarded the reports of some batches."""
        if factor > 1:
            self.batches, self.rows = round(self.batches * factor), round(self.rows * factor)
            self.all_batches, self.all_rows = round(self.all_batches * factor), round(self.all_rows * factor)
            self.seconds *= factor
            self.phases_s = {phase: seconds * factor for phase, seconds in self.phases_s.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """The executors of the program during a window."""

    slots: int
    slots_per_executor: int
    max_executors: int
    changed: bool  # their number is another one than in the previous window
    shared: bool = False  # several queries use them


@dataclass(slots=True)
class QueryHistory:
    """The recorded measurements of one query."""

    arrivals: Arrivals = field(default_factory=Arrivals)
    last_batch: int = -1
    last_report_s: float = 0.0
    last_end_s: float = 0.0
    run_id: str | None = None  # run id of the last batch
    backlog_rows: float | None = None  # None: unknown
    files: FileCount | None = None  # for a query that reads files only
    reports_backlog: bool = True  # the source reports rows that it has and that no batch has read
    _warm_run_id: str | None = None  # run id of the last batch with rows
    _fitted: deque[tuple[float, BatchRun]] = field(default_factory=lambda: deque(maxlen=_BATCHES))
    _waiting: deque[WaitingRows] = field(default_factory=lambda: deque(maxlen=_OBSERVED_BATCHES))

    def add(
        self,
        reports: Sequence[Progress],
        stages: Callable[[str, int], Stages | None],
        executors: Executors,
        *,
        is_running: bool,
    ) -> WindowSums:
        """Add the reports since the last call; return the sums over their batches."""
        sums, before = WindowSums(), self.last_batch
        batches = [report for report in reports if report.ran_batch]
        for report in reports:
            self.last_report_s = max(self.last_report_s, report.began_s)
            if report.ran_batch and report.batch_id > self.last_batch:
                self._add_batch(report, sums, stages, executors, is_running=is_running)
            elif not report.ran_batch and self.files is None:  # the trigger found no rows
                self.arrivals.add_batch(report.began_s, 0.0, self.backlog_rows)
        if batches and before >= 0:  # Spark may have discarded older reports
            missing = (self.last_batch - before) / len(batches)
            if missing > 1:
                self.arrivals.skip((missing - 1) * sums.all_rows)
                sums.extrapolate(missing)
                if self.files is not None:
                    self.files.skip()
        return sums

    def _add_batch(
        self,
        batch: Progress,
        sums: WindowSums,
        stages: Callable[[str, int], Stages | None],
        executors: Executors,
        *,
        is_running: bool,
    ) -> None:
        # The first rows of a start compile code and start Python. If the query has ended, it may be the only batch.
        is_cold = batch.run_id != self._warm_run_id and is_running
        if self.run_id is not None and batch.run_id != self.run_id:
            self._waiting.clear()
        rows, left = rows_read(batch), left_rows(batch) if self.reports_backlog else None
        if self.files is None and self.last_batch < 0 and reads_files_only(batch):
            self.files = FileCount()
        self.last_batch, self.run_id, self.last_end_s = batch.batch_id, batch.run_id, batch.ended_s
        sums.all_batches, sums.all_rows = sums.all_batches + 1, sums.all_rows + rows
        if self.files is not None:
            self.files.add_batch(rows)
        else:
            self.backlog_rows = left
            self.arrivals.add_batch(batch.began_s, rows, left)
        if rows > 0:
            self._warm_run_id = batch.run_id
        if is_cold or rows == 0:  # an empty batch does not show the cost of rows
            return
        runs = stages(batch.run_id, batch.batch_id)
        sums.add(batch, rows, None if runs is None else sum(run.task_s for run in runs))
        is_limited = bool(left) if self.files is None else self.files.is_full(rows)
        if not executors.changed:
            fixed_s = sum(batch.phases_s.get(phase, 0.0) for phase in FIXED_PHASES)
            run = BatchRun(
                rows=rows,
                batch_s=batch.batch_s,
                fixed_s=fixed_s,
                slots=executors.slots,
                stages=runs,
                limited=is_limited,
                shared=executors.shared,
            )
            self._fitted.append((batch.began_s, run))
        if self.files is None or not self.files.is_limited:
            self._waiting.append(WaitingRows(batch.began_s, batch.batch_s, rows + (left or 0.0), left or 0.0))

    def add_files(self, sources: list[FileSource], now_s: float, *, in_batch: bool) -> None:
        """Add a listing of the input files, which takes the place of the offsets of other sources."""
        assert self.files is not None
        was_limited = self.files.is_limited
        self.files.update(sources, in_batch=in_batch)
        self.backlog_rows = self.files.pending_rows
        if self.files.arrived_files is not None:
            self.arrivals.set_total(now_s, self.files.arrived_files)
        if self.files.is_limited and not was_limited:
            self._waiting.clear()
        if (pending := self.files.pending_rows) is not None and self.files.is_limited:
            self._waiting.append(WaitingRows(now_s, 0.0, pending, pending))

    def _arriving(self, horizon_s: float) -> float | None:
        rate = self.arrivals.rate_per_s(horizon_s=horizon_s)
        if self.files is None or not rate:
            return rate
        return None if self.files.rows_per_file is None else rate * self.files.rows_per_file

    def add_idle_time(self, now_s: float, window_s: float) -> None:
        """Note that no batch has ended and none is running. If a batch is overdue, no rows are arriving."""
        if self.last_batch >= 0 and now_s - self.last_end_s > 2 * max(window_s, self.arrivals.interval_s):
            self.arrivals.set_idle()

    def forget_executors(self) -> None:
        """Forget the waiting rows that grew under another number of executors."""
        self._waiting.clear()

    def window(
        self,
        name: str,
        operators: tuple[str, ...],
        sums: WindowSums,
        trigger: Trigger | None,
        executors: Executors,
        *,
        now_s: float,
        horizon_s: float,
        limit_rows: int | None = None,
    ) -> PipelineWindow:
        interval_s = 0.0 if trigger is None else trigger.interval_s
        if self.files is not None:
            limit_rows = self.files.limit_rows
        batches = [batch for began_s, batch in self._fitted if began_s >= now_s - _OLDEST_S]
        capacity = capacities(
            batches,
            slots_per_executor=executors.slots_per_executor,
            max_executors=max(executors.max_executors, executors.slots // executors.slots_per_executor),
            trigger_s=interval_s,
            limit_rows=limit_rows,
        )
        arriving = self._arriving(horizon_s)
        task_s = [
            (batch.rows, sum(run.task_s for run in batch.stages)) for batch in batches if batch.stages is not None
        ]
        return PipelineWindow(
            pipeline=name,
            operators=operators,
            batches=sums.batches,
            rows_in=sums.rows,
            batch_s=ratio(sums.seconds, sums.batches),
            batch_max_s=sums.max_s if sums.batches else None,
            phases_s={phase: seconds / sums.batches for phase, seconds in sums.phases_s.items()},
            busy_s=sums.busy_s * sums.batches / sums.timed_batches if sums.timed_batches else None,
            backlog_rows=None if self.backlog_rows is None else round(self.backlog_rows),
            trigger=_trigger_text(trigger),
            input_rows_per_s=arriving,
            capacity=capacity,
            fixed_s=fixed_time([batch for batch in batches if batch.slots == executors.slots]),
            task_s_per_row=ratio(sum(seconds for _, seconds in task_s), sum(rows for rows, _ in task_s)),
            bottleneck=bottleneck([batch for batch in batches if batch.slots == executors.slots], trigger_s=interval_s),
            saturated=self._saturated(arriving, capacity, executors, trigger),
        )

    def _saturated(
        self, arriving: float | None, capacity: tuple[Estimate, ...], executors: Executors, trigger: Trigger | None
    ) -> bool | None:
        if trigger is not None and trigger.kind != "ProcessingTime":
            return None  # the query ends by itself, or has no batches
        waiting = list(self._waiting)
        grows = is_saturated(waiting)
        is_steep = all(after.rows >= _CLEAR_GROWTH * before.rows for before, after in pairwise(waiting))
        if grows and not is_steep and not is_saturated(waiting[:-1]):  # a single batch is no evidence
            return None
        if not grows or arriving is None or not capacity:
            return grows
        if waiting[-1].left_rows > 0:  # the source reports the growing backlog itself
            return True
        # A load that has risen makes longer batches until they settle. It does not saturate a sufficient capacity.
        count = max(1, executors.slots // executors.slots_per_executor)
        estimate = capacity[min(count, len(capacity)) - 1]
        if estimate.high is not None and arriving > estimate.high:
            return True
        is_clear = successor_slope([batch.rows for batch in waiting]) >= _CLEAR_GROWTH
        if len(waiting) < _CERTAIN_BATCHES and not is_clear:
            return None
        return arriving > (estimate.low if estimate.value is None else estimate.value)


def _trigger_text(trigger: Trigger | None) -> str | None:
    if trigger is None:
        return None
    if trigger.kind == "ProcessingTime":
        return f"{trigger.interval_s:g} s" if trigger.interval_s else None
    return trigger.kind[0].lower() + trigger.kind[1:]
