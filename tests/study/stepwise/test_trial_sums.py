"""The throughput of batches between the ends of two of them, with hand-computed windows."""

from __future__ import annotations

import pytest

from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.study.stepwise.trial_sums import TrialSums
from tests.support.simulated_flows import chain

FLOW = chain("a", "b")
VISITS = {"source": 1.0, "a": 1.0, "b": 2.0, "out": 2.0}


def window(end_s: float, *, read: int, counted: int, ended_s: float | None) -> Window:
    """Two queries: the first one reads the source, and the second one begins with operator b."""

    def query(name: str, operators: tuple[str, ...], rows: int) -> PipelineWindow:
        return PipelineWindow(
            pipeline=name,
            operators=operators,
            batches=0 if ended_s is None else 1,
            rows_in=rows,
            batch_s=None if ended_s is None else 0.2,
            batch_max_s=None,
            phases_s={},
            busy_s=None,
            backlog_rows=0,
            last_batch_ended_s=ended_s,
        )

    rows = {"source": read, "a": read, "b": counted, "out": counted}
    return Window(
        start_s=end_s - 1.0,
        end_s=end_s,
        generation=1,
        external_rows_per_s=None,
        latency=None,
        pipelines=(query("a", ("source", "a"), read), query("out", ("b", "out"), counted)),
        operators=tuple(OperatorWindow.knowing(name, "", rows_in=count) for name, count in rows.items()),
    )


def test_rows_are_divided_by_the_time_between_the_ends_of_batches() -> None:
    sums = TrialSums(FLOW, ended_before_s={"a": 9.0, "out": 9.5})
    sums.add(window(11.0, read=50, counted=100, ended_s=10.5))
    sums.add(window(12.0, read=70, counted=140, ended_s=11.5))
    # 240 rows of the last query in 2 s are 120 rows/s, two for each external row.
    assert sums.rows_per_s(VISITS, ()) == pytest.approx(60.0)


def test_the_throughput_is_unknown_until_a_batch_of_the_last_query_ends() -> None:
    sums = TrialSums(FLOW, ended_before_s={"a": 9.0, "out": 9.5})
    sums.add(window(11.0, read=50, counted=0, ended_s=None))
    assert sums.rows_per_s(VISITS, ()) is None


def test_a_query_that_does_not_grow_with_the_load_is_left_out() -> None:
    sums = TrialSums(FLOW, ended_before_s={"a": 9.0, "out": 9.5})
    sums.add(window(11.0, read=75, counted=3, ended_s=10.5))
    assert sums.rows_per_s(VISITS, {"b", "out"}) == pytest.approx(50.0)
