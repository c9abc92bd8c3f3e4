"""The comparison of two dataflows as tables and sentences."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.study.stepwise.comparison import ComparedDataflow, Comparison, ResultCheck


def comparison_tables(comparison: Comparison) -> Group:
    """Return the check of the results, both profiles, and the difference with its cause."""
    parts: list[RenderableType] = [Text(check_text(comparison.check))]
    if comparison.check is not None and not comparison.check.equal:
        parts.append(_differences_table(comparison.check))
    if comparison.a is not None and comparison.b is not None:
        parts += [
            _dataflows_table(comparison.a, comparison.b),
            _operators_table(comparison.a, comparison.b),
            Text(result_text(comparison)),
        ]
    return Group(*parts)


def check_text(check: ResultCheck | None) -> str:
    """
    >>> check_text(None)
    'results: not compared'
    >>> check_text(ResultCheck(sample_rows=9, rows_a=4, rows_b=4, differing_rows=0, differences=()))
    'results: equal, 4 rows each for 9 rows of each source'
    """
    if check is None:
        return "results: not compared"
    if check.equal:
        return f"results: equal, {check.rows_a:,} rows each for {check.sample_rows:,} rows of each source"
    shown = len(check.differences)
    return (
        f"results: different, {check.rows_a:,} rows of A and {check.rows_b:,} rows of B for {check.sample_rows:,} rows "
        f"of each source; {check.differing_rows:,} distinct rows differ"
        f"{'' if shown == check.differing_rows else f', the first {shown} are'}:"
    )


def result_text(comparison: Comparison) -> str:
    """Return which dataflow is faster, by how much, and why."""
    a, b, ratio = comparison.a, comparison.b, comparison.ratio
    assert a is not None and b is not None and ratio is not None
    interval = f"{ratio.level:.0%} interval {ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}, p = {ratio.p_value:.2g}"
    difference = f"B relative to A {ratio.ratio - 1:+.1%} ({interval})"
    if comparison.faster is None:
        lines = [f"no significant difference: {difference}"]
    else:
        lines = [f"{comparison.faster.upper()} sustains the higher rate: {difference}"]
    if comparison.cause is not None:
        cause = comparison.cause
        lines.append(f"cause: operator '{cause.operator}' of {cause.side.upper()}: {cause.reason}")
    missed = [letter for letter, side in (("A", a), ("B", b)) if not side.meets_target]
    if missed:
        verb = "misses" if len(missed) == 1 else "miss"
        lines.append(
            f"note: {' and '.join(missed)} {verb} the latency target of {comparison.latency_target_s * 1e3:,.0f} ms; "
            "raise --latency-ms to compare rates that both sustain"
        )
    return "\n".join(lines)


def _differences_table(check: ResultCheck) -> Table:
    table = Table("sink", "row", "in A", "in B", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for difference in check.differences:
        row = ", ".join(f"{name}={value!r}" for name, value in difference.row.items())
        table.add_row(difference.sink, Text(row), str(difference.count_a), str(difference.count_b))
    return table


def _dataflows_table(a: ComparedDataflow, b: ComparedDataflow) -> Table:
    table = Table(
        "", "dataflow", "rows/s", "95 % interval", "latency", "plan", "rounds", "trials",
        box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for letter, side in (("A", a), ("B", b)):
        table.add_row(
            letter,
            Text(side.program),
            f"{side.rows_per_s:,.0f}",
            f"{side.low_rows_per_s:,.0f} to {side.high_rows_per_s:,.0f}",
            f"{side.latency_s * 1e3:,.0f} ms{'' if side.meets_target else ', misses the target'}",
            ", ".join(f"{name} {count}" for name, count in side.plan.replicas.items()),
            str(side.rounds),
            f"{side.seconds:,.0f} s",
        )
    return table


def _operators_table(a: ComparedDataflow, b: ComparedDataflow) -> Table:
    """Return the operators that take time, with their time per external row on both sides."""
    table = Table(
        "operator", "A, ms per external row", "B, ms per external row", box=box.SIMPLE, pad_edge=False,
        padding=(0, 1, 0, 0),
    )  # fmt: skip
    for name in dict.fromkeys([*a.seconds_per_row, *b.seconds_per_row]):
        seconds = [side.seconds_per_row.get(name) for side in (a, b)]
        if any(seconds):
            table.add_row(name, *("-" if value is None else f"{value * 1e3:.3g}" for value in seconds))
    return table
