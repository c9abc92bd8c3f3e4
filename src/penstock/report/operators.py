"""Operators under the current plan: means over its windows, because a single window may be idle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.measure.window import CallWindow, OperatorWindow, SharedCost, Window
from penstock.store import OperatorDeclaration


class OperatorSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An operator as declared, with its means under the current plan."""

    operator: str
    kind: str | None  # None if the record does not contain it
    inputs: tuple[str, ...]
    feedback: tuple[str, ...]  # the inputs that close a loop
    cut: bool  # whether its output passes through a channel
    pipeline: str | None
    replicas: int | None
    rows_in_per_s: float | None
    rows_out_per_s: float | None
    seconds_per_row: float | None
    utilisation: float | None
    shared_cost: SharedCost | None  # None: the cost was measured for this operator alone
    backlog_rows: int | None  # in the last window
    state_rows: int | None  # in the last window
    late_rows: int | None = None  # dropped since the start of the run
    open_windows: int | None = None  # in the last window
    calls: CallWindow | None = None  # None: it processes one row after the other


class OperatorMeans:
    """Means of the windows since the latest plan change."""

    def __init__(self) -> None:
        self.generation: int | None = None
        self.since_s: float | None = None
        self.until_s: float | None = None
        self._sums: dict[str, _Sums] = {}

    def add(self, window: Window) -> None:
        if window.generation != self.generation:
            self.generation, self.since_s, self._sums = window.generation, window.start_s, {}
        self.until_s = window.end_s
        for operator in window.operators:
            self._sums.setdefault(operator.operator, _Sums()).add(operator, window.end_s - window.start_s)

    def summaries(self, declared: Iterable[OperatorDeclaration], cuts: frozenset[str]) -> tuple[OperatorSummary, ...]:
        """Return the operators, upstream first if they were declared, otherwise in the order of the windows."""
        declarations = {declaration.operator: declaration for declaration in declared}
        for name in self._sums:
            declarations.setdefault(name, OperatorDeclaration(operator=name, kind=""))
        return tuple(
            self._sums.get(name, _Sums()).summary(declaration, cut=name in cuts)
            for name, declaration in declarations.items()
        )


class _Sums:
    """Sums of one operator. Rates are means over time, the cost of a row is a mean over rows."""

    def __init__(self) -> None:
        self._last: OperatorWindow | None = None
        self._in, self._out = _Ratio(), _Ratio()
        self._cost, self._utilisation = _Ratio(), _Ratio()
        self._shared_utilisation = _Ratio()
        self._calls: CallWindow | None = None

    def add(self, operator: OperatorWindow, window_s: float) -> None:
        self._last = operator
        if operator.calls is not None:
            self._calls = operator.calls if self._calls is None else _joined(self._calls, operator.calls)
        self._in.add(operator.rows_in, window_s)
        self._out.add(operator.rows_out, window_s)
        if operator.seconds_per_row is not None:
            self._cost.add(operator.seconds_per_row * (operator.rows_in or 0), operator.rows_in or 0)
        if operator.utilisation is not None:
            self._utilisation.add(operator.utilisation * window_s, window_s)
        if operator.shared_cost is not None and operator.shared_cost.utilisation is not None:
            self._shared_utilisation.add(operator.shared_cost.utilisation * window_s, window_s)

    def summary(self, declared: OperatorDeclaration, *, cut: bool) -> OperatorSummary:
        last = self._last
        cost = self._cost.value()
        return OperatorSummary(
            operator=declared.operator,
            kind=declared.kind or None,
            inputs=declared.inputs,
            feedback=declared.feedback,
            cut=cut,
            pipeline=None if last is None else last.pipeline,
            replicas=None if last is None else last.replicas,
            rows_in_per_s=self._in.value(),
            rows_out_per_s=self._out.value(),
            seconds_per_row=cost if cost is not None or last is None else last.seconds_per_row,
            utilisation=self._utilisation.value(),
            shared_cost=None if last is None else self._shared_cost(last.shared_cost),
            backlog_rows=None if last is None else last.backlog_rows,
            state_rows=None if last is None else last.state_rows,
            late_rows=None if last is None else last.late_rows_total,
            open_windows=None if last is None else last.open_windows,
            calls=self._calls,
        )

    def _shared_cost(self, last: SharedCost | None) -> SharedCost | None:
        """Return the shared cost of the last window, which is an average of many batches, with the mean utilisation."""
        return None if last is None else msgspec.structs.replace(last, utilisation=self._shared_utilisation.value())


def _joined(before: CallWindow, after: CallWindow) -> CallWindow:
    """Return the calls of two spans of time; means are weighted by the number of calls."""
    joined: dict[str, Any] = {
        name: getattr(before, name) + getattr(after, name)
        for name in ("calls", "retries", "timeouts", "failed_rows", "abandoned")
    }
    for name in ("in_flight", "call_s", "wait_s"):
        mean = _Ratio()
        for calls in (before, after):
            value = getattr(calls, name)
            mean.add(None if value is None else value * calls.calls, calls.calls)
        joined[name] = mean.value()
    return CallWindow(threads=after.threads, **joined)


class _Ratio:
    def __init__(self) -> None:
        self._part = self._whole = 0.0

    def add(self, part: float | None, whole: float) -> None:
        if part is not None:
            self._part, self._whole = self._part + part, self._whole + whole

    def value(self) -> float | None:
        return self._part / self._whole if self._whole > 0 else None
