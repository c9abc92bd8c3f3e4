"""Every branch of Algorithm 2, with scripted trials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.models.core_sharing import SharedCores
from penstock.study.stepwise.configuration import Configuration, Decision, Finished, NextTrial, Round, TrialChange
from penstock.study.stepwise.platform_capability import PlatformSettings, next_platform_trial
from penstock.study.stepwise.sequential_test import TrialLimits, Verdict, verdict_after
from penstock.study.stepwise.slot_filling import SlotFilling

SETTINGS = PlatformSettings(latency_target_s=0.5, ratio={"parse": 2, "count": 3}, alpha=0.9)
START = Configuration(tasks={"parse": 2, "count": 3, "rank": 1})  # `rank` is non-parallel: no step adds to it


class Script:
    """Follows the decisions and answers each trial with a scripted throughput and latency."""

    def __init__(self, rows_per_s: float, latency_s: float) -> None:
        self.rounds: list[Round] = []
        self._add(START, TrialChange.FIRST, rows_per_s, latency_s, None)

    def _add(
        self, configuration: Configuration, change: TrialChange, rows: float, latency_s: float, ref: int | None
    ) -> None:
        windows = tuple(rows * factor for factor in (0.99, 1.0, 1.01, 1.0, 0.995, 1.005) * 5)
        verdict = None
        if ref is not None:
            verdict = verdict_after(self.rounds[ref].rows_per_s, windows, TrialLimits())
        self.rounds.append(
            Round(
                configuration=configuration,
                change=change,
                rows_per_s=windows,
                latency_s=latency_s,
                verdict=verdict,
            )
        )

    @property
    def decision(self) -> Decision:
        return next_platform_trial(self.rounds, SETTINGS)

    def answer(self, rows_per_s: float, latency_s: float) -> Decision:
        trial = self.trial
        self._add(trial.configuration, trial.change, rows_per_s, latency_s, trial.reference)
        return self.decision

    @property
    def trial(self) -> NextTrial:
        assert isinstance(self.decision, NextTrial)
        return self.decision

    @property
    def finished(self) -> Finished:
        assert isinstance(self.decision, Finished)
        return self.decision


def test_with_a_latency_margin_the_source_gets_a_task() -> None:
    script = Script(1_000.0, 0.2)
    assert script.trial.change is TrialChange.SOURCE
    assert script.trial.configuration == Configuration(source_tasks=2, tasks=START.tasks)
    assert script.trial.reference == 0


def test_a_missed_latency_target_adds_tasks_by_ratio() -> None:
    script = Script(1_000.0, 0.9)
    assert script.trial.change is TrialChange.SINKS
    assert script.trial.configuration.tasks == {"parse": 4, "count": 6, "rank": 1}


def test_an_increase_continues_and_is_the_next_reference() -> None:
    script = Script(1_000.0, 0.9)
    script.answer(1_900.0, 0.8)
    assert script.rounds[-1].verdict is Verdict.BETTER
    assert script.trial.configuration.tasks == {"parse": 6, "count": 9, "rank": 1}
    assert script.trial.reference == 1
    script.answer(2_500.0, 0.4)
    assert script.trial.change is TrialChange.SOURCE


def test_source_and_operators_alternate_while_nothing_changes() -> None:
    script = Script(1_000.0, 0.9)
    script.answer(1_000.0, 0.9)
    assert script.rounds[-1].verdict is Verdict.NO_DIFFERENCE
    assert script.trial.change is TrialChange.SOURCE
    assert script.trial.configuration == Configuration(source_tasks=2, tasks={"parse": 4, "count": 6, "rank": 1})
    script = Script(1_000.0, 0.2)
    script.answer(1_000.0, 0.3)
    assert script.trial.change is TrialChange.SINKS
    assert script.trial.configuration == Configuration(source_tasks=2, tasks={"parse": 4, "count": 6, "rank": 1})


def test_a_small_decrease_tries_the_other_side() -> None:
    script = Script(1_000.0, 0.9)
    script.answer(950.0, 0.9)  # above 0.9 of the best
    assert script.rounds[-1].verdict is Verdict.WORSE
    assert script.trial.change is TrialChange.SOURCE
    script = Script(1_000.0, 0.2)
    script.answer(950.0, 0.3)
    assert script.trial.change is TrialChange.SINKS


def test_a_large_decrease_returns_to_the_best_configuration_and_throttles_it() -> None:
    script = Script(1_000.0, 0.9)
    script.answer(1_800.0, 0.75)
    script.answer(1_200.0, 1.1)
    assert script.trial.change is TrialChange.THROTTLE
    assert script.trial.reference == 1
    assert script.trial.configuration.tasks == {"parse": 4, "count": 6, "rank": 1}
    # Little's law: 0.75 s becomes 0.45 s, which is 90 % of the target, with 60 % of the rows in flight.
    assert script.trial.configuration.throttle == pytest.approx(0.6)


def test_a_large_decrease_returns_to_the_best_configuration_that_meets_the_target() -> None:
    script = Script(1_000.0, 0.2)
    script.answer(700.0, 0.4)
    assert script.finished.round == 0


def test_no_improvement_on_either_side_is_the_limit_of_the_platform() -> None:
    script = Script(1_000.0, 0.9)
    script.answer(1_000.0, 0.9)
    script.answer(1_000.0, 0.9)
    assert [round_.change for round_ in script.rounds] == [TrialChange.FIRST, TrialChange.SINKS, TrialChange.SOURCE]
    assert script.trial.change is TrialChange.THROTTLE


def test_an_improvement_by_the_source_lets_the_operators_grow_again() -> None:
    script = Script(1_000.0, 0.9)
    script.answer(1_000.0, 0.3)  # operators: nothing
    script.answer(1_500.0, 0.6)  # source: better, but the target is missed
    assert script.trial.change is TrialChange.SINKS


def throttled() -> Script:
    script = Script(1_000.0, 1.0)
    script.answer(500.0, 2.0)
    assert script.trial.change is TrialChange.THROTTLE
    assert script.trial.configuration.throttle == pytest.approx(0.45)
    return script


def test_a_throttle_that_meets_the_target_and_costs_nothing_is_the_end() -> None:
    script = throttled()
    script.answer(1_000.0, 0.45)
    assert script.finished.round == 2


def test_a_throttle_that_does_not_meet_the_target_is_tightened() -> None:
    script = throttled()
    script.answer(1_000.0, 0.56)
    assert script.trial.change is TrialChange.THROTTLE
    assert script.trial.reference == 0
    # 1.0 s at 1 and 0.56 s at 0.45 are 0.2 s + 0.8 s x throttle: 0.4925 s, just below the target, at 0.366.
    assert script.trial.configuration.throttle == pytest.approx(0.365625)
    script.answer(900.0, 0.4925)
    assert script.finished.round == 3


def test_a_latency_that_remains_without_load_ends_the_search() -> None:
    script = throttled()
    script.answer(1_000.0, 0.8)  # 0.636 s + 0.364 s x throttle
    assert script.finished.round == 0
    assert "a latency of 0.636 s remains without load" in script.finished.reason


@pytest.mark.parametrize("rows_per_s", [950.0, 600.0])  # above and below alpha
def test_a_throttle_that_costs_throughput_is_relaxed(rows_per_s: float) -> None:
    script = throttled()
    script.answer(rows_per_s, 0.3)
    assert script.rounds[-1].verdict is Verdict.WORSE
    assert script.trial.change is TrialChange.THROTTLE
    assert 0.45 < script.trial.configuration.throttle < 1.0
    assert script.trial.reference == 0


@pytest.mark.parametrize("exponent", [0.7, 1.0, 3.0])
def test_the_search_for_a_throttle_ends_near_the_target(exponent: float) -> None:
    """The latency of the script is share^exponent, and every row in flight contributes to the throughput."""
    script = throttled()
    decision: Decision = script.decision
    while isinstance(decision, NextTrial):
        share = decision.configuration.throttle
        decision = script.answer(1_000.0 * (0.5 + share / 2.0), share**exponent)
        assert len(script.rounds) < 12
    chosen = script.rounds[decision.round].configuration.throttle
    assert chosen**exponent <= 0.5
    assert chosen**exponent >= 0.475 or chosen * 1.05 > 0.5 ** (1.0 / exponent)


def test_a_throttle_that_increases_the_throughput_lets_the_application_grow() -> None:
    script = throttled()
    script.answer(1_200.0, 0.4)
    assert script.rounds[-1].verdict is Verdict.BETTER
    assert script.trial.change is TrialChange.SOURCE
    script = throttled()
    script.answer(1_200.0, 0.6)
    assert script.trial.change is TrialChange.SINKS


def test_operators_that_do_not_scale_keep_their_tasks() -> None:
    script = Script(1_000.0, 0.9)
    for rows_per_s in (1_500.0, 2_000.0, 2_500.0):
        assert script.trial.configuration.tasks["rank"] == 1
        script.answer(rows_per_s, 0.9)


class FilledScript(Script):
    """Every operator takes 1 ms on a core, and no task waits. The trials find this, too."""

    settings = replace(
        SETTINGS,
        filling=SlotFilling(
            cores=SharedCores(
                seconds={"parse": 0.001, "count": 0.001},
                rows={"parse": 1.0, "count": 1.0},
                inputs={"parse": [], "count": ["parse"]},
                core_shares={"parse": 1.0, "count": 1.0},
                slots=4,
            ),
            latency_s=0.5,
            fixed={"rank": 1},
        ),
        rows_per_source_task=400.0,
    )

    @property
    def decision(self) -> Decision:
        return next_platform_trial(self.rounds, self.settings)


def test_the_slots_are_filled_as_soon_as_tasks_share_them() -> None:
    """5 tasks on 4 slots are too few. With 4 and 6 tasks, 'parse' has 4 / 10 of the cores; equal tasks have half."""
    script = FilledScript(1_000.0, 0.9)
    assert script.trial.change is TrialChange.SINKS
    fill = script.answer(1_600.0, 0.45)
    assert isinstance(fill, NextTrial) and fill.change is TrialChange.FILL
    assert fill.reference == 1
    tasks = fill.configuration.tasks
    assert tasks["parse"] == tasks["count"] and tasks["rank"] == 1
    # Little's law: 90 % of 0.5 s x 2,000 rows/s are 900 rows, which two source tasks have.
    assert fill.configuration.source_tasks == 2


def test_filled_slots_that_are_no_improvement_are_ignored() -> None:
    script = FilledScript(1_000.0, 0.9)
    script.answer(1_600.0, 0.45)
    assert script.trial.change is TrialChange.FILL
    after = script.answer(1_500.0, 0.45)
    # As without this trial: the throughput increased, and the target was met.
    assert isinstance(after, NextTrial) and after.change is TrialChange.SOURCE and after.reference == 1
    assert after.configuration == script.rounds[1].configuration.with_source_task()


def test_filled_slots_that_are_an_improvement_are_the_new_reference() -> None:
    script = FilledScript(1_000.0, 0.9)
    script.answer(1_600.0, 0.45)
    after = script.answer(2_000.0, 0.45)
    assert isinstance(after, NextTrial) and after.change is TrialChange.SOURCE and after.reference == 2
    script.answer(2_000.0, 0.9)
    script.answer(2_000.0, 0.9)
    assert script.finished.round == 2


def test_slots_are_filled_at_the_limit_at_the_latest_and_never_after_a_throttle() -> None:
    script = FilledScript(1_000.0, 0.9)
    script.answer(800.0, 0.9)  # below 0.9 of the best one
    assert script.trial.change is TrialChange.FILL and script.trial.reference == 0
    script.answer(1_000.0, 0.9)
    assert script.trial.change is TrialChange.THROTTLE and script.trial.reference == 0
    script.answer(900.0, 0.9)
    assert not isinstance(script.decision, NextTrial) or script.trial.change is TrialChange.THROTTLE
