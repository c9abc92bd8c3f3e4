"""Rows of a run's store as pandas DataFrames: one column per value, units in the column names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.measure.window import OperatorWindow, Window
from penstock.plan.plan import Plan, Threads, diff

if TYPE_CHECKING:
    import pandas as pd

    from penstock.planning.plan_outcome import PlanOutcome
    from penstock.store import DecisionRecord, ErrorRecord, PlanChange, Trial

_WINDOW_COLUMNS = (
    "window",
    "start",
    "end",
    "plan_number",
    "warm_up",
    "input_rows_per_s",
    "backlog_rows",
    "late_rows",
    "open_windows",
    "latency_rows",
    "latency_mean_s",
    "latency_p50_s",
    "latency_p95_s",
    "latency_p99_s",
    "latency_sd_s",
)
_OPERATOR_COLUMNS = (
    "window",
    "start",
    "end",
    "operator",
    "pipeline",
    "replicas",
    "rows_in",
    "rows_out",
    "input_rows_per_s",
    "processed_rows_per_s",
    "true_rows_per_s",
    "selectivity",
    "seconds_per_row",
    "utilisation",
    "shared_by",
    "shared_seconds_per_row",
    "shared_utilisation",
    "backlog_rows",
    "state_rows",
    "state_bytes",
    "late_rows",
    "open_windows",
    "threads",
    "calls",
    "calls_in_flight",
    "call_s",
    "call_wait_s",
    "retries",
    "timeouts",
    "failed_rows",
    "abandoned_calls",
)
_CALL_FIELDS = {
    "threads": "threads",
    "calls": "calls",
    "calls_in_flight": "in_flight",
    "call_s": "call_s",
    "call_wait_s": "wait_s",
    "retries": "retries",
    "timeouts": "timeouts",
    "failed_rows": "failed_rows",
    "abandoned_calls": "abandoned",
}
_DECISION_COLUMNS = (
    "decision",
    "at",
    "window",
    "policy",
    "mode",
    "kind",
    "reason_code",
    "reason",
    "change",
    "bottleneck",
    "needed_slots",
    "latency_before_s",
    "latency_expected_s",
    "latency_observed_s",
    "slots_before",
    "slots_expected",
    "applied",
    "pause_s",
    "moved_rows",
    "moved_bytes",
    "verdict",
)
_CHANGE_COLUMNS = ("at", "request", "outcome", "description", "pause_s", "slots", "replicas", "cuts", "threads")
_ERROR_COLUMNS = ("at", "where", "message", "traceback")
_TRIAL_COLUMNS = (
    "study",
    "executors",
    "repeat",
    "start",
    "end",
    "rows_per_s",
    "bytes_per_s",
    "converged",
    "reason",
    "replicas_by",
    "memory_mb",
    "slots",
    "replicas",
    "cuts",
    "threads",
    "step",
    "change",
    "latency_s",
    "verdict",
)


def windows_frame(windows: Iterable[tuple[int, Window]]) -> pd.DataFrame:
    """One row per window: rate, backlog and latency of the whole dataflow."""
    rows = []
    for number, window in windows:
        latency = window.latency
        rows.append(
            (
                number,
                window.start_s,
                window.end_s,
                window.generation,
                window.warm_up,
                window.external_rows_per_s,
                *(_sum_known(window, field) for field in ("backlog_rows", "late_rows", "open_windows")),
                *(
                    (0, None, None, None, None, None)
                    if latency is None
                    else (latency.rows, latency.mean_s, latency.p50_s, latency.p95_s, latency.p99_s, latency.sd_s)
                ),
            )
        )
    return _frame(rows, _WINDOW_COLUMNS, times=("start", "end"))


def operators_frame(windows: Iterable[tuple[int, Window]]) -> pd.DataFrame:
    """One row per window and operator.

    If `shared_by` names operators, only their total cost was measured: `shared_seconds_per_row` per row that enters the
    first of them. `seconds_per_row` is then the part of the total that the operator has by its number of rows.
    """
    rows = [
        (number, window.start_s, window.end_s, *(_operator_value(operator, column) for column in _OPERATOR_COLUMNS[3:]))
        for number, window in windows
        for operator in window.operators
    ]
    return _frame(rows, _OPERATOR_COLUMNS, times=("start", "end"))


def _operator_value(operator: OperatorWindow, column: str) -> Any:
    shared = operator.shared_cost
    match column:
        case "shared_by":
            return None if shared is None else shared.operators
        case "shared_seconds_per_row":
            return None if shared is None else shared.seconds_per_row
        case "shared_utilisation":
            return None if shared is None else shared.utilisation
    if column in _CALL_FIELDS:
        return None if operator.calls is None else getattr(operator.calls, _CALL_FIELDS[column])
    return getattr(operator, column)


def decisions_frame(decisions: Iterable[tuple[int, DecisionRecord]]) -> pd.DataFrame:
    """One row per decision, holds included."""
    rows = [
        (
            number,
            decision.at_s,
            decision.window,
            decision.policy,
            decision.mode,
            decision.kind,
            decision.reason_code,
            decision.reason,
            None if decision.new is None else str(diff(decision.old, decision.new)),
            decision.binding,
            decision.needs_slots,
            *(_latency_s(outcome) for outcome in (decision.before, decision.expected, decision.observed)),
            *(None if outcome is None else outcome.slots for outcome in (decision.before, decision.expected)),
            decision.applied,
            decision.pause_s,
            decision.moved_rows,
            decision.moved_bytes,
            decision.verdict,
        )
        for number, decision in decisions
    ]
    return _frame(rows, _DECISION_COLUMNS, times=("at",))


def plan_changes_frame(changes: Iterable[PlanChange]) -> pd.DataFrame:
    """One row per plan change, whether it was applied or rolled back."""
    rows = [
        (change.at_s, change.asked, change.outcome, change.reason, change.pause_s, *_plan_cells(change.new))
        for change in changes
    ]
    return _frame(rows, _CHANGE_COLUMNS, times=("at",))


def errors_frame(errors: Iterable[ErrorRecord]) -> pd.DataFrame:
    rows = [(error.at_s, error.where, error.message, error.traceback) for error in errors]
    return _frame(rows, _ERROR_COLUMNS, times=("at",))


def trials_frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """One row per trial of a study, also for trials without a result. The last four columns are those of a profile."""
    rows = [
        (
            trial.study,
            trial.executors,
            trial.repeat,
            trial.began_s,
            trial.ended_s,
            trial.rows_per_s,
            trial.bytes_per_s,
            trial.converged,
            trial.reason,
            trial.replicas_by,
            trial.memory_mb,
            *_plan_cells(trial.plan),
            *(
                (None, None, None, None)
                if (profile := trial.profile) is None
                else (profile.step, profile.change or None, profile.latency_s, profile.verdict)
            ),
        )
        for trial in trials
    ]
    return _frame(rows, _TRIAL_COLUMNS, times=("start", "end"))


def _frame(rows: Sequence[tuple[Any, ...]], columns: Sequence[str], *, times: Sequence[str]) -> pd.DataFrame:
    """Build a DataFrame; the columns `times` hold seconds since the epoch and become UTC timestamps."""
    import pandas as pd

    frame = pd.DataFrame.from_records(rows, columns=list(columns))
    for column in times:
        frame[column] = pd.to_datetime(frame[column].astype("float64"), unit="s", utc=True)
    return frame


def _sum_known(window: Window, field: str) -> int | None:
    """Return the sum of a field over the operators that have it."""
    values = [getattr(operator, field) for operator in window.operators if getattr(operator, field) is not None]
    return sum(values) if values else None


def _latency_s(outcome: PlanOutcome | None) -> float | None:
    return None if outcome is None else outcome.latency_s


def _plan_cells(plan: Plan) -> tuple[int, dict[str, int], tuple[str, ...], dict[str, Threads]]:
    return plan.slots, dict(plan.replicas), tuple(sorted(plan.cuts)), dict(plan.threads)
