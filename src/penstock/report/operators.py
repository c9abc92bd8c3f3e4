"""Operators as they were under the plan in force: means over its windows, since a single one may have been idle."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.measure.window import OperatorWindow, Window
from penstock.store import OperatorDeclaration


class OperatorSummary(msgspec.Struct, frozen=True, kw_only=True):
    operator: str
    kind: str | None  # None where the record does not say
    inputs: tuple[str, ...]
    feedback: tuple[str, ...]  # those of the inputs that close a loop
    cut: bool  # its output goes through a channel
    pipeline: str | None
    replicas: int | None
    rows_in_per_s: float | None
    rows_out_per_s: float | None
    seconds_per_row: float | None
    utilisation: float | None
    backlog_rows: int | None  # in the last window
    state_rows: int | None  # in the last window


class Recent:
    """The windows since the plan last changed, added up operator by operator."""

    def __init__(self) -> None:
        self.generation: int | None = None
        self.since_s: float | None = None
        self.until_s: float | None = None
        self._sums: dict[str, _Sums] = {}

    def add(self, window: Window) -> None:
        if window.generation != self.generation:
            self.generation, self.since_s, self._sums = window.generation, window.start_s, {}
        self.until_s = window.end_s
        for one in window.operators:
            self._sums.setdefault(one.operator, _Sums()).add(one, window.end_s - window.start_s)

    def summaries(self, declared: Iterable[OperatorDeclaration], cuts: frozenset[str]) -> tuple[OperatorSummary, ...]:
        """Upstream first: as declared, or in the order of the windows where nothing was."""
        known = {one.operator: one for one in declared}
        order = dict.fromkeys([*known, *self._sums])
        unsaid = {name: OperatorDeclaration(operator=name, kind="") for name in order}
        return tuple(
            self._sums.get(name, _Sums()).summary(known.get(name, unsaid[name]), cut=name in cuts) for name in order
        )


class _Sums:
    """Of one operator. Rates are over all of the time, what a row costs over all rows."""

    def __init__(self) -> None:
        self._last: OperatorWindow | None = None
        self._in, self._out = _Ratio(), _Ratio()
        self._cost, self._utilisation = _Ratio(), _Ratio()

    def add(self, one: OperatorWindow, span_s: float) -> None:
        self._last = one
        self._in.add(one.rows_in, span_s)
        self._out.add(one.rows_out, span_s)
        if one.seconds_per_row is not None:
            self._cost.add(one.seconds_per_row * (one.rows_in or 0), one.rows_in or 0)
        if one.utilisation is not None:
            self._utilisation.add(one.utilisation * span_s, span_s)

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
            backlog_rows=None if last is None else last.backlog_rows,
            state_rows=None if last is None else last.state_rows,
        )


class _Ratio:
    def __init__(self) -> None:
        self._part = self._whole = 0.0

    def add(self, part: float | None, whole: float) -> None:
        if part is not None:
            self._part, self._whole = self._part + part, self._whole + whole

    def value(self) -> float | None:
        return self._part / self._whole if self._whole > 0 else None
