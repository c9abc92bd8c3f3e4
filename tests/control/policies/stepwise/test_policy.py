"""The policy `stepwise` on simulated pipelines: the profiled plan, three causes of a recalibration, and no others.

The flow counts the words of lines. A line is split in 60 ms and has 4 words, which are counted in 10 ms each, so twelve
slots sustain at most 120 lines/s. Lines with 8 words are split in 120 ms: at most 60 lines/s. If splitting depends little
on the number of words, it takes 70 ms: at most 80 lines/s, with another distribution of the slots.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.api.policy_options import PolicyOptions
from penstock.api.simulated_costs import limited_batches
from penstock.dataflow import PenstockError
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour
from penstock.plan import default_plan
from penstock.store import DecisionRecord
from penstock.study.stepwise.stored_profile import stored_profile
from tests.support.drifting_pipeline import DriftingEngine, DriftingPipeline

pytestmark = pytest.mark.long

SLOTS = 12
DRIFT_S = 60.0
DETECTED_WITHIN_S = DRIFT_S + 30.0  # the windows of 10 s do not end with the time, and a window may lack a batch
LATENCY_S = {"row-by-row": 1.0, "micro-batch": 3.0}
LOST = "recalibration"
both_engines = pytest.mark.parametrize("mode", LATENCY_S)


def words() -> penstock.Dataflow:
    flow = penstock.Dataflow("words")
    lines = flow.source("lines", penstock.generate(int, schema="n bigint", rows_per_s=1))
    split = lines.keyed("split", lambda frame: frame, keys=["n"], columns=["word"])
    split.keyed("count", lambda frame: frame, keys=["word"]).sink("out", penstock.noop())
    return flow


def costs(words_per_line: int, split_s: float) -> Behaviour:
    split = OperatorBehaviour(service_s=Exponential(mean=split_s), selectivity=Fixed(value=words_per_line))
    count = OperatorBehaviour(service_s=Exponential(mean=0.01))
    return limited_batches(Behaviour(operators={"split": split, "count": count}))


SHORT_LINES, LONG_LINES, MORE_WORDS = costs(4, 0.06), costs(8, 0.12), costs(8, 0.07)


class Studies:
    """Profiles of 12 slots on each engine, and of 8 slots as well if they are asked for; each is made once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rates: dict[Path, float] = {}

    def at(self, mode: str, slots: int = SLOTS) -> Path:
        path = self._directory / mode / f"slots-{slots}"
        if path not in self._rates:
            profile = penstock.profile(
                words(), slots=slots, behaviour=SHORT_LINES, at=path, engine=mode, latency_s=LATENCY_S[mode]
            )
            self._rates[path] = profile.rows_per_s
        return path

    def rate(self, mode: str) -> float:
        return self._rates[self.at(mode)]

    def both_sizes(self, mode: str) -> Path:
        self.at(mode)
        return self.at(mode, 8).parent


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Studies:
    return Studies(tmp_path_factory.mktemp("studies"))


def pipeline(studies: Studies, at: Path, engine_mode: str, /, load: float, **options: object) -> DriftingPipeline:
    """Start with half of the slots for each operator. `load` is a share of the profiled rate."""
    first = default_plan(words(), slots=SLOTS, replicas={"split": SLOTS // 2, "count": SLOTS // 2})
    chosen = PolicyOptions(
        policy="stepwise",
        mode="active",
        profile=studies.at(engine_mode),
        drift_s=DRIFT_S,
        dataflow="words",
        windows=3,
        micro_batch=engine_mode == "micro-batch",
    )
    chosen = replace(chosen, **options)  # type: ignore[arg-type]
    engine = DriftingEngine(words(), SHORT_LINES, first, engine_mode, {"lines": load * studies.rate(engine_mode)})
    return DriftingPipeline(engine, at, chosen, micro_batch=engine_mode == "micro-batch")


def changes(decisions: list[DecisionRecord]) -> list[DecisionRecord]:
    return [decision for decision in decisions if decision.kind == "change"]


@both_engines
def test_the_profiled_plan_is_applied_and_a_constant_poisson_load_changes_nothing(
    studies: Studies, tmp_path: Path, mode: str
) -> None:
    running = pipeline(studies, tmp_path, mode, load=0.85)
    made = changes(running.run(2 * 3600.0))
    assert [decision.reason_code for decision in made] == ["profiled"]
    profile = stored_profile(studies.at(mode), dataflow="words")
    assert running.engine.plan == profile.plans[0].plan
    assert made[0].expected is not None and made[0].expected.at_most_s == LATENCY_S[mode]
    _, applied = running.store.applied_changes()[0]
    assert applied.verdict in ("kept", "load changed") and applied.observed is not None


@both_engines
def test_longer_lines_are_detected_within_the_time_limit(studies: Studies, tmp_path: Path, mode: str) -> None:
    running = pipeline(studies, tmp_path, mode, load=0.85)
    running.run(300.0)
    before_s = running.now_s
    running.engine.become(LONG_LINES)
    running.engine.set_rate(0.95 * studies.rate(mode))
    drifts = [decision for decision in running.run(600.0) if "data has changed" in decision.reason]
    assert drifts and drifts[0].at_s - before_s <= DETECTED_WITHIN_S


def test_a_recalibrated_plan_processes_the_load_again(studies: Studies, tmp_path: Path) -> None:
    """Row by row the profiled plan has too few tasks for the words; another distribution sustains 69 lines/s."""
    running = pipeline(studies, tmp_path, "row-by-row", load=0.58)
    running.run(300.0)
    profiled = running.engine.plan
    running.engine.become(MORE_WORDS)
    made = changes(running.run(1200.0))
    assert made and {decision.reason_code for decision in made} == {LOST}
    assert all(decision.expected is not None and decision.before is not None for decision in made)
    plan = running.engine.plan
    assert plan.replicas["count"] / plan.replicas["split"] > profiled.replicas["count"] / profiled.replicas["split"]
    last = running.run(300.0)
    assert not changes(last)
    assert max(decision.inputs["backlog_rows"] or 0 for decision in last if decision.inputs) < 600
    applied = [row for _, row in running.store.applied_changes()]
    assert all(row.verdict is not None and row.observed is not None for row in applied)


@both_engines
def test_a_higher_rate_alone_is_not_drift(studies: Studies, tmp_path: Path, mode: str) -> None:
    running = pipeline(studies, tmp_path, mode, load=0.5)
    running.run(200.0)
    running.engine.set_rate(1.5 * studies.rate(mode))
    overloaded = running.run(600.0)
    running.engine.set_rate(0.5 * studies.rate(mode))
    draining = running.run(600.0)
    assert not changes(overloaded + draining)
    assert not any("data has changed" in decision.reason for decision in overloaded + draining)
    at_limit = [decision for decision in overloaded if decision.reason_code == "at-limit"]
    assert at_limit and all((decision.needs_slots or 0) > SLOTS for decision in at_limit)


def test_a_resized_platform_gets_its_profiled_plan(studies: Studies, tmp_path: Path) -> None:
    running = pipeline(studies, tmp_path, "row-by-row", load=0.5, profile=studies.both_sizes("row-by-row"))
    running.run(200.0)
    running.engine.become(slots=8)
    made = changes(running.run(300.0))
    assert [decision.reason_code for decision in made] == ["profiled"]
    assert "8 slots instead of 12" in made[0].reason
    small = stored_profile(studies.both_sizes("row-by-row"), dataflow="words").plan_for(8)
    assert small is not None and running.engine.plan == small.plan


@both_engines
def test_a_size_without_a_profile_is_recalibrated_under_a_backlog(studies: Studies, tmp_path: Path, mode: str) -> None:
    running = pipeline(studies, tmp_path, mode, load=0.5)
    running.run(200.0)
    running.engine.become(slots=10)
    kept_up = running.run(200.0)
    assert not changes(kept_up)
    assert "10 slots, and the profile has plans for 12" in kept_up[-1].reason
    running.engine.set_rate(1.2 * studies.rate(mode))
    under_load = running.run(900.0)
    assert any(decision.reason_code == "measuring" for decision in under_load)
    assert {decision.reason_code for decision in changes(under_load)} <= {LOST, "roll-back"}
    assert running.engine.plan.slots == 10


@both_engines
def test_a_changed_program_is_reported_and_measured_anew(studies: Studies, tmp_path: Path, mode: str) -> None:
    running = pipeline(studies, tmp_path, mode, load=0.95, program="another version")
    running.engine.become(LONG_LINES)
    decisions = running.run(900.0)
    told = [decision for decision in decisions if "program has changed since it was profiled" in decision.reason]
    assert told
    assert not any(decision.reason_code == "profiled" for decision in decisions)


@both_engines
def test_recommendations_change_nothing(studies: Studies, tmp_path: Path, mode: str) -> None:
    running = pipeline(studies, tmp_path, mode, load=0.85, mode="recommend")
    profile = stored_profile(studies.at(mode), dataflow="words")
    recommended = changes(running.run(200.0))
    assert recommended and all(decision.applied == "recommended" for decision in recommended)
    running.engine.inner.apply(profile.plans[0].plan)
    before = running.engine.plan
    running.engine.become(LONG_LINES)
    running.engine.set_rate(0.95 * studies.rate(mode))
    drifts = [decision for decision in running.run(600.0) if "data has changed" in decision.reason]
    assert drifts
    assert running.engine.plan == before and not running.store.applied_changes()


def test_a_restart_continues_a_recalibration(studies: Studies, tmp_path: Path) -> None:
    running = pipeline(studies, tmp_path, "row-by-row", load=0.85)
    running.run(300.0)
    running.engine.become(MORE_WORDS)
    for _ in range(60):  # until a trial is being measured
        decision = running.run(10.0)[-1]
        if decision.reason_code == "measuring":
            break
    assert decision.reason_code == "measuring"
    trial = running.engine.plan
    memory = dict(decision.memory)
    running.restart()
    after = running.run(900.0)
    assert after[0].memory == memory  # nothing was forgotten while the first windows were collected
    assert not any(decision.reason_code == "profiled" for decision in after)
    assert any("windows of the trial are measured" in decision.reason for decision in after)
    finished = [
        decision.reason
        for decision in after
        if decision.reason_code in ("best", "at-limit") or "trial is revoked" in decision.reason
    ]
    assert finished and "data has changed" in finished[0]
    assert changes(after) or running.engine.plan == trial


def test_profiles_that_do_not_fit_are_refused(studies: Studies, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="contains no profile; create one with 'penstock profile"):
        pipeline(studies, tmp_path / "1", "row-by-row", load=0.5, profile=tmp_path)
    with pytest.raises(PenstockError, match="is a profile of dataflow 'words'; give a profile of 'lines'"):
        pipeline(studies, tmp_path / "2", "row-by-row", load=0.5, dataflow="lines")
    with pytest.raises(PenstockError, match="works row by row, but this one works in micro-batches"):
        pipeline(studies, tmp_path / "3", "row-by-row", load=0.5, micro_batch=True)
    with pytest.raises(penstock.OptionError, match="requires 'profile'"):
        PolicyOptions(policy="stepwise").check()
    with pytest.raises(penstock.OptionError, match="uses no profile; use policy 'stepwise'"):
        PolicyOptions(policy="ds2", profile=tmp_path).check()
