"""Step 3 with scripted trials: the order of the operators, keeping, revoking and both stop rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.study.stepwise.configuration import (
    Configuration,
    Finished,
    NextTrial,
    OperatorMeasurement,
    Round,
    TrialChange,
)
from penstock.study.stepwise.operator_capacity import CapacitySettings, next_capacity_trial, operator_capacity
from penstock.study.stepwise.sequential_test import Verdict

SETTINGS = CapacitySettings(latency_target_s=0.5, min_latency_s={"parse": 0.01, "split": 0.01, "count": 0.01}, k=2.0)


def round_of(
    tasks: dict[str, int],
    capacities: tuple[float, float, float],
    verdict: Verdict | None = None,
    latency_s: float = 0.1,
    total_s: float = 0.3,
) -> Round:
    return Round(
        configuration=Configuration(tasks=tasks),
        change=TrialChange.SINKS if verdict is None else TrialChange.OPERATOR,
        rows_per_s=(100.0, 100.0),
        latency_s=total_s,
        verdict=verdict,
        operators={
            name: OperatorMeasurement(latency_s=latency_s, capacity=capacity)
            for name, capacity in zip(("parse", "split", "count"), capacities, strict=True)
        },
    )


FIRST = round_of({"parse": 2, "split": 2, "count": 3}, (0.7, 0.99, 0.8))


def trial_after(*rounds: Round) -> NextTrial:
    decision = next_capacity_trial(rounds, SETTINGS)
    assert isinstance(decision, NextTrial)
    return decision


def test_equation_2() -> None:
    # 4 ms for each of 450 rows in 2 s are 90 % of the time of one task.
    assert operator_capacity(latency_s=0.004, executed_rows=450, window_s=2.0, tasks=1) == pytest.approx(0.9)
    assert operator_capacity(latency_s=0.004, executed_rows=450, window_s=2.0, tasks=3) == pytest.approx(0.3)


def test_the_operator_with_the_highest_capacity_gets_a_task() -> None:
    trial = trial_after(FIRST)
    assert trial.configuration.tasks == {"parse": 2, "split": 3, "count": 3}
    assert (trial.change, trial.reference, trial.ends_when_missed) == (TrialChange.OPERATOR, 0, True)


@pytest.mark.parametrize("verdict", [Verdict.NO_DIFFERENCE, Verdict.WORSE, Verdict.TARGET_MISSED])
def test_a_change_without_a_gain_is_revoked_and_the_next_operator_follows(verdict: Verdict) -> None:
    failed = round_of({"parse": 2, "split": 3, "count": 3}, (0.7, 0.7, 0.9), verdict)
    trial = trial_after(FIRST, failed)
    assert trial.configuration.tasks == {"parse": 2, "split": 2, "count": 4}
    assert trial.reference == 0


def test_a_gain_is_kept_and_is_the_next_reference() -> None:
    kept = round_of({"parse": 2, "split": 3, "count": 3}, (0.8, 0.7, 0.95), Verdict.BETTER)
    trial = trial_after(FIRST, kept)
    assert trial.configuration.tasks == {"parse": 2, "split": 3, "count": 4}
    assert trial.reference == 1


def test_the_same_operator_may_get_several_tasks() -> None:
    kept = round_of({"parse": 2, "split": 3, "count": 3}, (0.8, 0.97, 0.95), Verdict.BETTER)
    assert trial_after(FIRST, kept).configuration.tasks == {"parse": 2, "split": 4, "count": 3}


def test_a_revoked_operator_is_tried_again_after_another_one_was_kept() -> None:
    failed = round_of({"parse": 2, "split": 3, "count": 3}, (0.7, 0.7, 0.9), Verdict.NO_DIFFERENCE)
    kept = round_of({"parse": 2, "split": 2, "count": 4}, (0.8, 0.99, 0.7), Verdict.BETTER)
    assert trial_after(FIRST, failed, kept).configuration.tasks == {"parse": 2, "split": 3, "count": 4}


def test_consecutive_revocations_end_the_step() -> None:
    first = round_of({"parse": 2, "split": 3, "count": 3}, (0.7, 0.7, 0.9), Verdict.NO_DIFFERENCE)
    second = round_of({"parse": 2, "split": 2, "count": 4}, (0.7, 0.9, 0.7), Verdict.WORSE)
    decision = next_capacity_trial([FIRST, first, second], SETTINGS)
    assert decision == Finished(round=0, reason="2 consecutive changes did not increase the throughput")


def test_latencies_near_their_minimum_end_the_step() -> None:
    low = round_of({"parse": 2, "split": 2, "count": 3}, (0.7, 0.99, 0.8), latency_s=0.02)
    decision = next_capacity_trial([low], SETTINGS)
    assert decision == Finished(round=0, reason="all operator latencies are within 2 times their minimum")
    above = round_of({"parse": 2, "split": 2, "count": 3}, (0.7, 0.99, 0.8), latency_s=0.021)
    assert isinstance(next_capacity_trial([above], SETTINGS), NextTrial)


def test_a_fixed_operator_is_not_enhanced() -> None:
    settings = CapacitySettings(latency_target_s=0.5, min_latency_s=SETTINGS.min_latency_s, fixed=["split"])
    decision = next_capacity_trial([FIRST], settings)
    assert isinstance(decision, NextTrial)
    assert decision.configuration.tasks == {"parse": 2, "split": 2, "count": 4}
    alone = CapacitySettings(
        latency_target_s=0.5, min_latency_s=SETTINGS.min_latency_s, fixed=["parse", "split", "count"]
    )
    assert isinstance(next_capacity_trial([FIRST], alone), Finished)


def test_operators_with_equal_capacity_get_a_task_together_and_then_one_by_one() -> None:
    tied = round_of({"parse": 2, "split": 2, "count": 3}, (0.7, 0.99, 0.98))
    trial = trial_after(tied)
    assert trial.configuration.tasks == {"parse": 2, "split": 3, "count": 4}
    failed = round_of({"parse": 2, "split": 3, "count": 4}, (0.9, 0.7, 0.7), Verdict.NO_DIFFERENCE)
    assert trial_after(tied, failed).configuration.tasks == {"parse": 2, "split": 3, "count": 3}


def test_a_gain_that_misses_the_latency_target_is_revoked() -> None:
    faster = round_of({"parse": 2, "split": 3, "count": 3}, (0.8, 0.7, 0.95), Verdict.BETTER, total_s=0.6)
    assert trial_after(FIRST, faster).reference == 0
    missed = round_of({"parse": 2, "split": 2, "count": 3}, (0.7, 0.99, 0.8), total_s=0.9)
    assert trial_after(missed, faster).reference == 1  # the target was missed before, too
    assert not trial_after(missed).ends_when_missed


TURNS = replace(
    SETTINGS,
    tie=0.1,
    queries=lambda configuration: (
        [frozenset({"parse"}), frozenset({"split", "count"})]
        if not configuration.cuts
        else [frozenset({"parse"}), frozenset({"split"}), frozenset({"count"})]
    ),
    cuts={"split": frozenset({"split"}), "count": frozenset({"split"})},
)


def test_operators_that_take_turns_get_tasks_together_and_then_alone_behind_a_cut() -> None:
    """Split and count are busy 0.4 and 0.5 of the time, one after the other; parse is busy 0.8 of the time."""
    first = round_of({"parse": 2, "split": 3, "count": 3}, (0.7, 0.4, 0.5))
    trial = next_capacity_trial([first], TURNS)
    assert isinstance(trial, NextTrial)
    assert (trial.configuration.tasks, trial.change) == ({"parse": 2, "split": 4, "count": 4}, TrialChange.OPERATOR)
    failed = replace(first, configuration=trial.configuration, change=trial.change, verdict=Verdict.NO_DIFFERENCE)
    second = next_capacity_trial([first, failed], TURNS)
    assert isinstance(second, NextTrial)
    assert (second.configuration.tasks, second.change) == ({"parse": 2, "split": 3, "count": 4}, TrialChange.CUT)
    assert second.configuration.cuts == {"split"} and "need a cut after split" in second.reason
    kept = replace(failed, configuration=second.configuration, change=second.change, verdict=Verdict.BETTER)
    third = next_capacity_trial([first, failed, kept], TURNS)
    assert isinstance(third, NextTrial)
    # Behind the cut they no longer take turns, so the operator with the highest capacity is parse.
    assert third.configuration.tasks == {"parse": 3, "split": 3, "count": 4}
    assert third.configuration.cuts == {"split"}


def test_queries_of_equal_capacity_get_tasks_in_the_same_trial() -> None:
    trial = next_capacity_trial([round_of({"parse": 2, "split": 3, "count": 3}, (0.85, 0.4, 0.5))], TURNS)
    assert isinstance(trial, NextTrial)
    assert trial.configuration.tasks == {"parse": 3, "split": 4, "count": 4}
