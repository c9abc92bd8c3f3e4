"""A failed query is restarted while that can help."""

from __future__ import annotations

import pytest

from penstock.engines.spark.queries.retries import RETRY_DELAYS_S, RepeatedFailure


def failures(*reasons: str, batches: tuple[int, ...] | None = None) -> list[RepeatedFailure]:
    """Return the records of failures with these reasons, all after batch 5 unless `batches` are given."""
    numbers = batches or (5,) * len(reasons)
    records = [RepeatedFailure(committed_batch=numbers[0], times=1, at_s=0.0, reason=reasons[0])]
    for number, reason in zip(numbers[1:], reasons[1:], strict=True):
        records.append(records[-1].next(number, 1.0, reason))
    return records


BUGS = [
    "operator 'parse' failed in /home/me/flow.py, line 7: ValueError: bad number; row: {'n': 7}",
    "operator 'parse' failed in /home/me/flow.py, line 7: KeyError: 'm'; row: {'n': 7}",
    "the function of source 'in' (flow.py, line 3) returns a value in column 'n' that is not a valid int64: 'x'",
    "TypeError: unsupported operand (/home/me/flow.py, line 7)",
    "SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` instead. SQLSTATE: 22012",
]


@pytest.mark.parametrize("reason", BUGS)
def test_an_error_of_the_program_ends_the_run_when_it_occurs_again(reason: str) -> None:
    assert [failure.is_final for failure in failures(reason, reason)] == [False, True]
    assert failures(reason, reason)[-1].times == 2


@pytest.mark.parametrize(
    "reason", ["operator 'call' failed: ConnectionError: refused; row: {'n': 7}", "Lost executor 3"]
)
def test_an_error_that_may_pass_has_all_restarts(reason: str) -> None:
    finals = [failure.is_final for failure in failures(*[reason] * (len(RETRY_DELAYS_S) + 1))]
    assert finals == [False] * len(RETRY_DELAYS_S) + [True]


def test_another_row_or_progress_is_another_failure() -> None:
    assert not failures(BUGS[0], BUGS[0].replace("7}", "8}"))[-1].is_final
    assert [failure.times for failure in failures(*[BUGS[0]] * 3, batches=(5, 6, 6))] == [1, 1, 2]
    assert not failures(BUGS[0], BUGS[0], BUGS[0], batches=(5, 5, 9))[-1].is_final
