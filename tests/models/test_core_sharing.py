"""Tasks that share cores: limit cases and the conservation of the time of a core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.core_sharing import SharedCores, core_stretch, speed, stretches


def chain(shares: dict[str, float], slots: int) -> SharedCores:
    names = list(shares)
    return SharedCores(
        seconds=dict.fromkeys(names, 0.01),
        rows=dict.fromkeys(names, 1.0),
        inputs={name: names[:number][-1:] for number, name in enumerate(names)},
        core_shares=shares,
        slots=slots,
    )


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_a_core_is_used_completely_but_not_more(shares: list[float]) -> None:
    stretch = core_stretch(shares)
    used = sum(share / (1.0 - share + share * stretch) for share in shares)
    assert 1.0 <= stretch <= len(shares)
    assert used <= 1.0 + 1e-6
    assert used == pytest.approx(min(1.0, sum(shares)), abs=1e-6)


def test_tasks_are_placed_in_turn() -> None:
    stretched = stretches({"a": 3, "b": 2}, {"a": 1.0, "b": 1.0}, slots=2)
    assert stretched == {"a": [3.0, 2.0, 3.0], "b": [2.0, 3.0]}
    # Two cores in total, whatever their division.
    assert sum(speed(1.0, each) for each in stretched.values()) == pytest.approx(2.0)


def test_waiting_needs_no_core() -> None:
    model = chain({"wait": 0.0, "compute": 1.0}, slots=1)
    assert model.capacity_per_s({"wait": 10, "compute": 1}) == pytest.approx(100.0)
    assert model.capacity_per_s({"wait": 1, "compute": 1}) == pytest.approx(100.0)
    assert model.slowest({"wait": 1, "compute": 2})[0] in ("wait", "compute")


def test_the_rate_within_a_latency_is_that_of_an_mm1_queue() -> None:
    """A task alone: T = s / (1 - x s), so x = 1 / s - 1 / T."""
    model = chain({"one": 1.0}, slots=1)
    assert model.rows_per_s({"one": 1}, latency_s=0.05) == pytest.approx(100.0 - 20.0, rel=0.01)
    # No rate has a latency below the service time.
    assert model.rows_per_s({"one": 1}, latency_s=0.009) == pytest.approx(0.0, abs=0.1)


def test_operators_whose_input_is_constant_do_not_limit() -> None:
    both = chain({"a": 1.0, "b": 1.0}, slots=2)
    model = SharedCores(
        seconds=both.seconds,
        rows=both.rows,
        inputs=both.inputs,
        core_shares=both.core_shares,
        slots=2,
        constant=["b"],
    )
    assert model.capacity_per_s({"a": 3, "b": 1}) == pytest.approx(1.5 * 100.0)  # two halves and a third of a half
