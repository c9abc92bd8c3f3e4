"""The parts of `penstock demo`. The complete demo runs in tests/packaging."""

from __future__ import annotations

import msgspec

from penstock.api.demonstration import decision_sentence, summarise
from penstock.apps.demonstration import differences
from penstock.measure.window import Latency, Window
from tests.support.sample_runs import changed, decided
from tests.support.sample_windows import operator, window

COUNTRIES = ("Chile", "Ghana", "Japan", "Latvia", "Peru")


def batch(rows: int) -> list[dict[str, object]]:
    """Computed by hand: order n belongs to customer 7 n modulo 1000, and the five countries alternate by customer."""
    return [{"order": n, "country": COUNTRIES[7 * n % 1000 % 5]} for n in range(rows)]


def test_the_output_is_compared_with_a_batch_computation() -> None:
    assert differences(batch(1_500), least_rows=1_500) == []
    assert differences(batch(1_500), least_rows=1_400) == []  # rows that arrived after the last window
    (missing,) = differences(batch(1_500), least_rows=1_501)
    assert missing.startswith("1 rows are missing, such as (1500, ")
    repeated = differences([*batch(10), batch(10)[3]], least_rows=10)
    assert any("1 rows are repeated, such as (3, 'Ghana')" in each for each in repeated)
    wrong = [*batch(9), {"order": 9, "country": "Atlantis"}]
    assert [each.split(",")[0] for each in differences(wrong, 10)] == ["1 rows are missing", "1 rows are unexpected"]


def second(number: int, *, slots: int, backlog: int, mean_s: float | None) -> Window:
    latency = None if mean_s is None else Latency(rows=100, mean_s=mean_s, p50_s=mean_s, p95_s=2 * mean_s, p99_s=9.0)
    operators = (operator("orders", backlog_rows=backlog), operator("lookup", replicas=slots))
    return msgspec.structs.replace(
        window(), start_s=float(number), end_s=number + 1.0, latency=latency, operators=operators
    )


def test_windows_are_summed_up() -> None:
    result = summarise(
        [
            second(0, slots=2, backlog=10, mean_s=1.0),
            second(1, slots=2, backlog=500, mean_s=None),  # its rows leave in the next window, too late
            second(2, slots=6, backlog=300, mean_s=5.0),
            second(3, slots=1, backlog=5, mean_s=2.0),
        ],
        target_s=3.0,
    )
    assert result.seconds == 4.0 and result.slot_seconds == 2 + 2 + 6 + 1
    assert result.share_within_target == 0.5 and result.latency_p95_s == 10.0
    assert (result.most_slots, result.last_slots) == (6, 1)
    assert (result.most_backlog_rows, result.last_backlog_rows) == (500, 5)


def test_rows_that_wait_at_the_end_have_missed_the_target() -> None:
    windows = [second(0, slots=2, backlog=10, mean_s=1.0), second(1, slots=2, backlog=500, mean_s=None)]
    assert summarise(windows, target_s=3.0).share_within_target == 0.5


def test_nothing_was_measured() -> None:
    result = summarise([], target_s=3.0)
    assert result.latency_p95_s is None and result.share_within_target == 0.0


def test_decisions_are_one_sentence() -> None:
    hold = decision_sentence(decided(0.0))
    assert hold == "Hold (within-target): mean latency 0.5 s with 2 slots is within 0.4 to 1 s."
    change = decision_sentence(changed(0.0, "kept", count=4)[0])
    assert change.startswith("Change ") and "2 -> 4 replicas (shortage): mean latency 1.4 s" in change
