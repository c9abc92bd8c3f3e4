"""`watch` on simulated programs of known capacity: each statement must be correct, or say that it is unknown."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.control.policy import Change
from tests.support.watched_cases import PROGRAMS, watch_program
from tests.support.watched_programs import ROWS_PER_FILE

pytestmark = pytest.mark.long

ONE_FILE = ROWS_PER_FILE / 30.0  # rows/s: the rate of the latest three windows may miss one file
MOST_UNKNOWN = 2  # of the twelve cases of a program
LOADS = (0.05, 0.3, 0.6, 0.85, 1.15, 1.5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recommendation_is_correct_or_unknown(name: str) -> None:
    """It is unknown in few cases, except for a query that ends by itself and has to sustain no rate."""
    program, verdicts = PROGRAMS[name], []
    is_finite = all(query.is_finite for query in program.queries)
    reads_files = any(query.source == "files" for query in program.queries)
    for load, executors in product(LOADS, (1, 3)):
        outcome = watch_program(program, load=load, executors=executors, seed=17)
        assert outcome.verdict in ("correct", "unknown"), outcome
        verdicts.append(outcome.verdict)
        if load < 1.0:
            assert not outcome.ever_saturated
        if outcome.estimate is not None:
            assert outcome.estimate.low <= 1.05 * outcome.capacity
            assert outcome.estimate.high is None or outcome.estimate.high >= 0.9 * outcome.capacity
        if not is_finite:
            assert outcome.measured_rate == pytest.approx(outcome.rate, rel=0.03, abs=ONE_FILE if reads_files else 0.0)
    assert verdicts.count("unknown") <= (len(verdicts) if is_finite else MOST_UNKNOWN), verdicts


@pytest.mark.parametrize("name", ["tasks", "kafka", "each second", "limited kafka", "files", "limited files"])
def test_saturation_is_reported_and_answered(name: str) -> None:
    outcome = watch_program(PROGRAMS[name], load=1.3, executors=1, seed=3)
    assert outcome.saturated and isinstance(outcome.decision, Change)


@pytest.mark.parametrize("name", ["driver", "skewed", "few tasks", "limited trigger"])
def test_executors_that_do_not_help_are_not_requested(name: str) -> None:
    outcome = watch_program(PROGRAMS[name], load=1.3, executors=3, seed=3)
    assert not isinstance(outcome.decision, Change), outcome.decision.reason
    words = {
        "driver": "the driver",
        "skewed": "the longest task",
        "few tasks": "2 tasks on 6 slots",
        "limited trigger": "the limit of the source",
    }
    assert words[name] in outcome.decision.reason


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "available now"])
def test_executors_are_released_within_two_minutes(name: str) -> None:
    outcome = watch_program(PROGRAMS[name], load=0.05, executors=6, seed=5, seconds=110.0)
    assert isinstance(outcome.decision, Change) and outcome.verdict == "correct", outcome.decision.reason


def test_fixed_cost_is_not_saturation() -> None:
    """Batches follow each other without a pause, although the program sustains ten times the load."""
    for seed in range(5):
        outcome = watch_program(PROGRAMS["fixed cost"], load=0.1, executors=3, seed=seed)
        assert not outcome.ever_saturated
        assert outcome.estimate is not None and outcome.estimate.low > 2 * outcome.rate


def test_a_local_program_gets_a_rate_and_a_bottleneck() -> None:
    for load, code in ((0.6, "within-target"), (1.3, "at-limit")):
        outcome = watch_program(PROGRAMS["driver"], load=load, executors=1, seed=2, is_local=True)
        decision = outcome.decision
        assert decision.reason_code == code
        assert "executor" not in decision.reason and "The bottleneck is the driver" in decision.reason
        low, high = decision.inputs["capacity_low_rows_per_s"], decision.inputs["capacity_high_rows_per_s"]
        assert low is not None and high is not None
        assert 0.7 * outcome.capacity < low <= 1.05 * outcome.capacity and high >= 0.95 * outcome.capacity
