"""The comparison of two dataflows as text."""

from __future__ import annotations

from rich.console import Console

from penstock.plan import Plan
from penstock.report.comparison_tables import comparison_tables
from penstock.study.stepwise.comparison import (
    ComparedDataflow,
    Comparison,
    DifferenceCause,
    compared_results,
    throughput_ratio,
)


def text_of(comparison: Comparison) -> str:
    console = Console(width=160, highlight=False, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(comparison_tables(comparison))
    return captured.get()


def side(program: str, rate: float, **seconds_per_row: float) -> ComparedDataflow:
    return ComparedDataflow(
        program=program,
        dataflow="wc",
        plan=Plan(dataflow="wc", cuts=frozenset(), replicas={"parse": 3}, slots=4),
        rows_per_s=rate,
        low_rows_per_s=0.99 * rate,
        high_rows_per_s=1.01 * rate,
        latency_s=0.25,
        meets_target=rate > 150,
        rounds=5,
        seconds=61.0,
        seconds_per_row=seconds_per_row,
    )


def test_different_rows_are_shown_with_their_counts() -> None:
    a = {"out": [{"word": "[red]a", "n": 1}, {"word": "b", "n": 2}]}
    check = compared_results(a, {"out": [{"word": "b", "n": 2}] * 2}, sample_rows=50)
    text = text_of(Comparison(slots=4, latency_target_s=0.5, engine="spark", check=check))
    assert "results: different, 2 rows of A and 2 rows of B for 50 rows of each source; 2 distinct rows differ:" in text
    assert "out   n=1, word='[red]a'  1     0" in text
    assert "out   n=2, word='b'       1     2" in text


def test_the_faster_side_its_lead_and_the_cause_are_one_sentence_each() -> None:
    comparison = Comparison(
        slots=4,
        latency_target_s=0.5,
        engine="row-by-row",
        check=None,
        a=side("a.py[x]", 200.0, parse=0.002),
        b=side("b.py", 100.0, parse=0.002, wait=0.001),
        ratio=throughput_ratio([199.0, 200.0, 201.0], [99.0, 100.0, 101.0]),
        faster="a",
        cause=DifferenceCause(operator="wait", side="b", reason="it takes 1 ms"),
    )
    text = text_of(comparison)
    assert "results: not compared" in text and "a.py[x]" in text
    assert "A sustains the higher rate: B relative to A -50.0% (95% interval -5" in text
    assert "cause: operator 'wait' of B: it takes 1 ms" in text
    assert text.count("misses the target") == 1
    assert "note: B misses the latency target of 500 ms" in text
