"""Steps 2 and 3 online, with scripted trials; the memory of a recalibration; and the slot limit of profiled plans."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from penstock.control.demand import demand_of
from penstock.control.guards import Bounded
from penstock.control.policies.stepwise import RecalibrationSettings, Stepwise
from penstock.control.policies.stepwise.memory import Notes
from penstock.control.policies.stepwise.online_trials import OnlineTrials
from penstock.control.policies.stepwise.recalibration import (
    Cause,
    Recalibration,
    RecalibrationStep,
    StepRules,
    next_trial,
    without_idlest,
)
from penstock.control.policies.stepwise.turn import Turn
from penstock.control.policy import Change, Hold
from penstock.study.stepwise.configuration import (
    Configuration,
    Finished,
    NextTrial,
    OperatorMeasurement,
    Round,
    TrialChange,
)
from penstock.study.stepwise.sequential_test import Verdict
from tests.support.profiles import video_profile
from tests.support.situations import situation_of

RULES = StepRules(latency_target_s=1.0, alpha=0.9, k=2.0)
BUSY = {
    "split": OperatorMeasurement(latency_s=9.0, capacity=0.6),
    "count": OperatorMeasurement(latency_s=9.0, capacity=0.99),
}


def started(tasks: dict[str, int]) -> Recalibration:
    first = Round(
        configuration=Configuration(tasks=tasks),
        change=TrialChange.FIRST,
        rows_per_s=(60.0, 62.0, 61.0, 61.0),
        latency_s=9.0,
        operators=BUSY,
    )
    return Recalibration(
        cause=Cause.DRIFT,
        slots=12,
        limit=12,
        ratio={"split": 2, "count": 3},
        fixed={},
        min_latency_s={"split": 0.07, "count": 0.01},
        rounds=(first,),
    )


def ratio(state: Recalibration) -> Configuration:
    return Configuration(tasks={"split": 4, "count": 6})


def any_trial(state: Recalibration, planned: NextTrial) -> NextTrial | None:
    return planned


def no_trial(state: Recalibration, planned: NextTrial) -> NextTrial | None:
    return None


def test_the_first_trial_is_a_multiple_of_the_ratio_and_source_tasks_are_not_tried() -> None:
    state, trial = next_trial(started({"split": 7, "count": 5}), RULES, ratio, any_trial)
    assert isinstance(trial, NextTrial)
    assert trial.change is TrialChange.SINKS and trial.configuration.tasks == {"split": 4, "count": 6}
    # No difference: Algorithm 2 would add a source task, which cannot help under a backlog; step 3 follows.
    same = replace(state.rounds[0], configuration=trial.configuration, change=trial.change)
    state, trial = next_trial(state.ended(replace(same, verdict=Verdict.NO_DIFFERENCE)), RULES, ratio, any_trial)
    assert isinstance(trial, NextTrial)
    assert state.step is RecalibrationStep.CAPACITY and trial.change is TrialChange.OPERATOR
    assert trial.configuration.tasks == {"split": 7, "count": 6}  # the operator with the highest capacity


def test_a_better_trial_is_the_start_of_the_next_step() -> None:
    state, trial = next_trial(started({"split": 7, "count": 5}), RULES, ratio, any_trial)
    assert isinstance(trial, NextTrial)
    better = Round(
        configuration=trial.configuration,
        change=trial.change,
        rows_per_s=(75.0,) * 4,
        latency_s=9.0,
        verdict=Verdict.BETTER,
        operators=BUSY,
    )
    state, finished = next_trial(state.ended(better), RULES, ratio, no_trial)
    assert isinstance(finished, Finished)
    assert state.rounds[finished.round].configuration.tasks == {"split": 4, "count": 6}


def test_nothing_useful_keeps_the_plan() -> None:
    state, finished = next_trial(started({"split": 7, "count": 5}), RULES, ratio, no_trial)
    assert isinstance(finished, Finished)
    assert state.rounds[finished.round].configuration.tasks == {"split": 7, "count": 5}


@pytest.mark.parametrize(("limit", "tasks"), [(13, {"split": 7, "count": 6}), (12, {"split": 6, "count": 6})])
def test_a_used_up_platform_takes_the_task_from_the_idlest_operator(limit: int, tasks: dict[str, int]) -> None:
    reference = started({"split": 7, "count": 5}).rounds[0]
    planned = NextTrial(
        configuration=Configuration(tasks={"split": 7, "count": 6}), change=TrialChange.OPERATOR, reference=0, reason=""
    )
    fitted = without_idlest(planned, reference, ["split", "count"], lambda each: sum(each.tasks.values()) <= limit)
    assert fitted is not None and fitted.configuration.tasks == tasks
    assert without_idlest(planned, reference, ["count"], lambda each: sum(each.tasks.values()) <= 12) is None


def test_the_memory_of_a_recalibration_survives_its_json_form() -> None:
    state, trial = next_trial(started({"split": 7, "count": 5}), RULES, ratio, any_trial)
    assert isinstance(trial, NextTrial)
    state = replace(state.ended(replace(state.rounds[0], change=trial.change, verdict=Verdict.WORSE)), changes=3)
    notes = Notes(
        slots=12,
        changed=True,
        over_s=17.5,
        samples=(61.0, 60.5),
        costs={"split": (0.07, 0.071), "count.words": (0.01,)},
        sustained=118.0,
        recalibration=replace(state, samples=(64.0,), has_trial=True),
    )
    memory = notes.to_memory({"hysteresis.wanted": 2.0})
    stored = msgspec.json.decode(msgspec.json.encode(memory), type=dict[str, float])
    assert stored["hysteresis.wanted"] == 2.0
    assert Notes.of(stored) == notes
    assert Notes.of({"other": 1.0}) == Notes()


def test_a_profiled_plan_may_have_more_tasks_than_slots_unless_a_user_limits_the_slots() -> None:
    """17 tasks on 12 slots share them. With a limit of 9 slots on the same executors they would use 12."""
    shared = video_profile(
        (12, {"extract": 8, "match": 8, "aggregate": 1}, 30.0), (9, {"extract": 6, "match": 6}, 20.0)
    )
    policy = Stepwise(RecalibrationSettings(profile=shared))
    situation = situation_of("video", (4, 4, 1), 9.0, 12)
    decision, _ = Bounded(policy).decide(situation, {})
    assert isinstance(decision, Change) and decision.plan == shared.plans[0].plan
    limited, _ = Bounded(policy, max_slots=9).decide(situation, {})
    assert isinstance(limited, Hold)


def test_operators_of_a_changed_program_keep_their_types() -> None:
    """Behind a logic-dependent operator no region grows with the load, also in another version of the program."""
    situation = situation_of("video", (4, 4, 1), 40.0, 12)
    demand = demand_of(situation)
    assert not isinstance(demand, Hold)
    for declared, behind in (("proportional", set()), ("logic-dependent", {"match", "aggregate", "logos"})):
        profile = video_profile()
        operators = tuple(
            msgspec.structs.replace(each, type=declared) if each.operator == "extract" else each
            for each in profile.operators
        )
        settings = RecalibrationSettings(profile=replace(profile, operators=operators), program_changed=True)
        features = OnlineTrials(Turn(settings, situation, demand)).features(Notes(), Cause.PROGRAM)
        assert features.non_scalable == behind & features.loads.keys()
