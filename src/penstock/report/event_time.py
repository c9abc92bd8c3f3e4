"""Late rows, dropped rows and open windows of a run, as sentences."""

from __future__ import annotations

from penstock.measure.window import Window
from penstock.report.formatting import plural


def event_time_remarks(window: Window | None) -> tuple[str, ...]:
    """Return one sentence for each operator that dropped rows or still holds open windows.

    >>> from penstock.measure.window import OperatorWindow
    >>> count = OperatorWindow.knowing("count", "out", late_rows_total=3, dropped_rows_total=2, open_windows=1)
    >>> window = Window(
    ...     start_s=0, end_s=2, generation=1, external_rows_per_s=None, latency=None, pipelines=(), operators=(count,)
    ... )
    >>> for remark in event_time_remarks(window):
    ...     print(remark)
    'count' has dropped 3 late rows.
    'count' has dropped 2 waiting rows above its limit.
    'count' holds 1 open window, which it emits when the watermark passes the end of the window.
    """
    remarks = []
    for operator in window.operators if window is not None else ():
        if operator.late_rows_total:
            remarks.append(f"'{operator.operator}' has dropped {plural(operator.late_rows_total, 'late row')}.")
        if operator.dropped_rows_total:
            rows = plural(operator.dropped_rows_total, "waiting row")
            remarks.append(f"'{operator.operator}' has dropped {rows} above its limit.")
        if operator.open_windows:
            which = "which it emits when the watermark passes the end of the window"
            remarks.append(f"'{operator.operator}' holds {plural(operator.open_windows, 'open window')}, {which}.")
    return tuple(remarks)
