"""The memory of policy auto, a value that the store keeps: costs, batch times, and the record of each plan.

Sums decay, so that costs may drift. A plan has a record per load level: windows, and late windows among them. A level
is the logarithm of the work of the load, so it does not depend on the plan and follows drifting costs. Windows that
process the backlog of an earlier time do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from penstock.control.policy import Memory
from penstock.measure.window import OperatorWindow, Window
from penstock.plan.plan import Plan

_COST_S = 600.0  # time in which old measurements of costs lose their weight
_RECORD_S = 7200.0
_CORRECTION_S = 300.0  # the ratio of measured and predicted latency depends on the load
_WAITING = 60  # windows
_GROWTH = 1.02
_CHANGED = 0.15  # relative change of a cost that is more than a fluctuation
_DEVIATING = 3  # windows
_LATE_MEMORY_S = 3600.0
_CHANCE = 1.0  # late windows that no plan is blamed for
_PLANS = 40  # records that are kept
_LEVELS = 20.0  # load levels per factor e: one level is 5 %
_GLOBAL_WINDOWS = 6.0  # weight of the correction of all plans in that of one plan
_PRIOR_WINDOWS = 3.0  # weight of the model itself in the correction of all plans
_MIN_CORRECTION, _MAX_CORRECTION = 0.3, 3.0


class OperatorSums(msgspec.Struct, kw_only=True):
    """Decaying sums over the windows of an operator."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    busy_s: float = 0.0
    timed_rows: float = 0.0  # rows whose time is in `busy_s`
    service_scv: float = 0.0  # times rows
    arrival_scv: float = 0.0  # times rows
    service_rows: float = 0.0
    arrival_rows: float = 0.0
    deviating: int = 0  # consecutive windows whose cost differs from the mean by more than noise

    def add(self, seen: OperatorWindow, keep: float, slowdown: float) -> bool:
        """Add a window; return whether the cost has changed, so that earlier windows do not count any more."""
        self.deviating = self.deviating + 1 if self._deviates(seen, slowdown) else 0
        has_changed = self.deviating >= _DEVIATING
        if has_changed:
            self.deviating, keep = 0, 0.0
        for field in self.__struct_fields__:
            if field != "deviating":
                setattr(self, field, getattr(self, field) * keep)
        self._add(seen, slowdown)
        return has_changed

    def _deviates(self, seen: OperatorWindow, slowdown: float) -> bool:
        if not self.timed_rows or not self.busy_s or seen.seconds_per_row is None or not seen.rows_in:
            return False
        scv = self.service_scv / self.service_rows if self.service_rows else 1.0
        noise = math.sqrt((scv + 0.2) / seen.rows_in)
        ratio = seen.seconds_per_row / slowdown / (self.busy_s / self.timed_rows)
        return abs(ratio - 1.0) > _CHANGED + 3.0 * noise

    def _add(self, seen: OperatorWindow, slowdown: float) -> None:
        rows = float(seen.rows_in or 0)
        if not rows:
            return
        if seen.rows_out is not None:
            self.rows_in += rows
            self.rows_out += seen.rows_out
        if seen.seconds_per_row is not None:
            self.timed_rows += rows
            self.busy_s += rows * seen.seconds_per_row / slowdown
        if seen.service_scv is not None:
            self.service_rows += rows
            self.service_scv += rows * seen.service_scv
        if seen.arrival_scv is not None:
            self.arrival_rows += rows
            self.arrival_scv += rows * seen.arrival_scv

    def applied_to(self, seen: OperatorWindow) -> OperatorWindow:
        """Return the window of the operator with the learned values."""
        return msgspec.structs.replace(
            seen,
            selectivity=self.rows_out / self.rows_in if self.rows_in else seen.selectivity,
            seconds_per_row=self.busy_s / self.timed_rows if self.timed_rows else seen.seconds_per_row,
            service_scv=self.service_scv / self.service_rows if self.service_rows else seen.service_scv,
            arrival_scv=self.arrival_scv / self.arrival_rows if self.arrival_rows else seen.arrival_scv,
        )

    @property
    def error(self) -> float:
        """Return the relative standard error of the seconds per row."""
        scv = self.service_scv / self.service_rows if self.service_rows else 1.0
        return min(0.3, math.sqrt((scv + 0.2) / max(1.0, self.timed_rows)) + 0.005)

    @property
    def selectivity_error(self) -> float:
        """Return the relative standard error of the rows out per row in, as a share or as a Poisson variable.

        >>> filters, copies = OperatorSums(rows_in=900.0, rows_out=90.0), OperatorSums(rows_in=900.0, rows_out=900.0)
        >>> filters.selectivity_error, copies.selectivity_error
        (0.1, 0.0)
        """
        if not self.rows_in or not self.rows_out:
            return 0.0
        share = self.rows_out / self.rows_in
        variance = (1.0 - share) if share <= 1.0 else 1.0
        return min(0.3, math.sqrt(variance / self.rows_out))


class BatchSums(msgspec.Struct, kw_only=True):
    """Decaying sums over the batches of a query with a number of tasks; rows are external rows."""

    batches: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    rows2: float = 0.0
    rows_seconds: float = 0.0

    def add(self, batches: float, rows: float, seconds: float, keep: float) -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) * keep)
        self.batches += batches
        self.rows += batches * rows
        self.seconds += batches * seconds
        self.rows2 += batches * rows * rows
        self.rows_seconds += batches * rows * seconds

    def line(self, expected_slope_s: float) -> tuple[float, float]:
        """Return the fixed seconds of a batch, and its seconds per row.

        The slope is the expected one until batches of different sizes determine it.
        """
        mean_rows, mean_s = self.rows / self.batches, self.seconds / self.batches
        squares = self.rows2 - self.batches * mean_rows**2
        products = self.rows_seconds - self.batches * mean_rows * mean_s
        weight = 20.0 * (0.3 * mean_rows) ** 2
        slope = (max(0.0, products) + weight * expected_slope_s) / max(1e-12, max(0.0, squares) + weight)
        slope = max(slope, expected_slope_s)
        return max(0.0, mean_s - slope * mean_rows), slope


class PlanRecord(msgspec.Struct, kw_only=True):
    """How one plan has done."""

    slots: int
    last_s: float
    windows: float = 0.0
    measured_s: float = 0.0  # sums over windows
    predicted_s: float = 0.0
    levels: dict[str, tuple[float, float]] = {}  # load level -> (windows, late windows)

    def counts(self, levels: Iterable[int]) -> tuple[float, float]:
        known = [self.levels[str(level)] for level in levels if str(level) in self.levels]
        return sum(windows for windows, _ in known), sum(late for _, late in known)


class UnjudgedChange(msgspec.Struct, kw_only=True, frozen=True):
    """A change whose effect has not been judged."""

    at_s: float
    level: int


class Learned(msgspec.Struct, kw_only=True):
    """The memory of the policy."""

    operators: dict[str, OperatorSums] = {}
    batches: dict[str, BatchSums] = {}
    plans: dict[str, PlanRecord] = {}
    hot: dict[str, float] = {}  # region -> share of its rows that one replica gets because of skew
    seen_until_s: float = 0.0  # end of the latest window
    result_s: float = 0.0  # end of the latest window whose result was recorded
    plan: str = ""  # key of the plan of the latest window
    clean: bool = False  # no backlog from before the last change is left
    backlog_rows: float = 0.0  # at the latest result
    waiting: list[tuple[float, float]] = []  # end of a window and the rows that waited then, of the latest windows
    batch_s: float = 0.0  # longest batch of the latest window in which one ended
    grows: bool = False  # the backlog grew until the latest window
    late_in_a_row: int = 0
    latency_s: float | None = None  # latency of the latest result
    late_s: float = 0.0  # time in late windows, of about the last hour
    out_s: float = 0.0  # end of the latest window in which rows came out
    pending: UnjudgedChange | None = None
    target: tuple[float, float | None] | None = None  # seconds and quantile that decide which windows are late

    @staticmethod
    def of(memory: Memory) -> Learned:
        """Return the memory as a value; a memory that is empty or of another version is forgotten."""
        stored = memory.get("auto")
        if stored is None:
            return Learned()
        try:
            return msgspec.convert(stored, Learned)
        except msgspec.ValidationError:
            return Learned()

    def memory(self) -> Memory:
        """Return the memory for the store."""
        if len(self.plans) > _PLANS:
            latest = sorted(self.plans, key=lambda key: -self.plans[key].last_s)[:_PLANS]
            self.plans = {key: self.plans[key] for key in latest}
        return {"auto": _rounded(msgspec.to_builtins(self))}

    def add_operators(self, window: Window, span_s: float, *, slowdown: float) -> None:
        """Add the costs of a window. `slowdown` is the factor by which replicas that share slots take longer."""
        keep = math.exp(-span_s / _COST_S)
        for seen in window.operators:
            if self.operators.setdefault(seen.operator, OperatorSums()).add(seen, keep, slowdown):
                self.batches = {}  # their times contain the earlier cost

    def add_waiting(self, end_s: float, rows: float, span_s: float) -> float:
        """Add the rows that wait at the end of a window; return the backlog and note whether it grows.

        The rows of a batch do not wait, so the backlog is the highest value within the time of a batch.
        """
        together_s = span_s if self.batch_s < 0.5 * span_s else span_s + self.batch_s
        known = [(at_s, value) for at_s, value in self.waiting if end_s - 2.0 * together_s < at_s < end_s]
        self.waiting = [*known[-_WAITING:], (end_s, rows)]
        backlog = max(value for at_s, value in self.waiting if at_s > end_s - together_s)
        before = max((value for at_s, value in known if at_s <= end_s - together_s), default=0.0)
        self.grows = backlog > _GROWTH * before
        return backlog

    def add_late(self, late_s: float, span_s: float) -> None:
        """Add the time in late windows within a span."""
        self.late_s = self.late_s * math.exp(-max(0.0, span_s) / _LATE_MEMORY_S) + late_s

    def with_learned(self, window: Window) -> Window:
        """Return the window with the learned costs and selectivities."""
        return msgspec.structs.replace(
            window,
            operators=tuple(
                self.operators[seen.operator].applied_to(seen) if seen.operator in self.operators else seen
                for seen in window.operators
            ),
        )

    # ---- records of plans

    def use_target(self, target: tuple[float, float | None] | None) -> None:
        """Forget which windows were late if the latency target is another one. Costs and predictions stay valid."""
        if not _is_same(target, self.target):
            self.target, self.pending, self.late_in_a_row = target, None, 0
            for record in self.plans.values():
                record.levels = {}

    def add_result(
        self, plan: str, slots: int, *, level: int, late: bool, measured_s: float | None, predicted_s: float,
        at_s: float, span_s: float,
    ) -> None:  # fmt: skip
        record = self.plans.setdefault(plan, PlanRecord(slots=slots, last_s=at_s))
        keep = math.exp(-span_s / _RECORD_S)
        record.levels = {
            key: (n * keep, missed * keep) for key, (n, missed) in record.levels.items() if n * keep > 0.05
        }
        windows, missed = record.levels.get(str(level), (0.0, 0.0))
        record.levels[str(level)] = (windows + 1.0, missed + late)
        if measured_s is not None and math.isfinite(predicted_s) and measured_s < 10.0 * predicted_s:
            recent = math.exp(-span_s / _CORRECTION_S)
            record.windows = record.windows * recent + 1.0
            record.measured_s = record.measured_s * recent + measured_s
            record.predicted_s = record.predicted_s * recent + predicted_s
        record.last_s = at_s

    def correction(self, plan: str) -> float:
        """Return measured / predicted latency of a plan; without a record of its own, of all plans."""
        # A ratio counts by its windows, so that plans with long latencies do not dominate.
        known = [record for record in self.plans.values() if record.predicted_s > 0]
        weights = sum(min(record.windows, 60.0) for record in known)
        logs = sum(min(record.windows, 60.0) * math.log(record.measured_s / record.predicted_s) for record in known
                   if record.measured_s > 0)  # fmt: skip
        overall = logs / (weights + _PRIOR_WINDOWS)
        own = self.plans.get(plan)
        if own is not None and own.predicted_s > 0 and own.measured_s > 0:
            ratio = math.log(own.measured_s / own.predicted_s)
            overall = (own.windows * ratio + _GLOBAL_WINDOWS * overall) / (own.windows + _GLOBAL_WINDOWS)
        return min(_MAX_CORRECTION, max(_MIN_CORRECTION, math.exp(overall)))

    def has_failed(self, plan: str, level: int) -> bool:
        """Return whether more windows were late than noise explains, at this load or a lower one.

        Windows at lower loads do not excuse late ones at higher loads, so they are left out one level after the other.
        """
        record = self.plans.get(plan)
        if record is None:
            return False
        windows = late = 0.0
        for known in sorted((known for known in map(int, record.levels) if known <= level + 1), reverse=True):
            more, more_late = record.counts([known])
            windows, late = windows + more, late + more_late
            if late > 0.01 * windows + 1.64 * math.sqrt(0.01 * windows) + _CHANCE:
                return True
        return False

    def has_held(self, plan: str, level: int, *, windows: float = 30.0) -> bool:
        """Return whether the plan met the target at this load or a higher one for long enough."""
        record = self.plans.get(plan)
        if record is None:
            return False
        count, late = record.counts(known for known in map(int, record.levels) if known >= level - 1)
        return count >= windows and late <= 0.01 * count


def _is_same(target: tuple[float, float | None] | None, other: tuple[float, float | None] | None) -> bool:
    """Return whether two targets are the same; the stored one is rounded."""
    if target is None or other is None:
        return target is other
    return math.isclose(target[0], other[0], rel_tol=1e-4) and target[1] == other[1]


def plan_key(plan: Plan) -> str:
    """Return a short name of the parallelism of a plan."""
    text = f"{sorted(plan.replicas.items())} {sorted(plan.cuts)}"
    return blake2b(text.encode(), digest_size=6).hexdigest()


def load_level(work: float) -> int:
    """Return the load level of an amount of work (busy replicas)."""
    return round(_LEVELS * math.log(max(work, 1e-6)))


def _rounded(value: object) -> object:
    """Return the value with five significant digits: the store keeps it with every decision."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) and abs(value) < 1e8 else value
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
