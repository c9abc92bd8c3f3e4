"""Stored trials: an interrupted study resumes, and trials of another program or other settings are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.apps.stepwise import word_count
from penstock.dataflow import PenstockError
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour
from penstock.store import StoreReader
from penstock.study.stepwise.profile import Profile, ProfileProgress

FLOW = """
import penstock
flow = penstock.Dataflow("two")
rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))
rows.keyed("work", lambda df: df, keys=["n"]).keyed("write", lambda df: df, keys=["m"]).sink("out", penstock.noop())
"""
COSTS = Behaviour(
    operators={
        "work": OperatorBehaviour(service_s=Exponential(mean=0.01)),
        "write": OperatorBehaviour(service_s=Exponential(mean=0.004)),
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.py"
    path.write_text(FLOW)
    return path


def profile_of(file: Path, at: Path, slots: int = 4, **options: object) -> Profile:
    return penstock.profile(str(file), slots=slots, behaviour=COSTS, at=at, **options)


@pytest.mark.long
def test_an_interrupted_study_continues_and_ends_with_the_same_result(file: Path, tmp_path: Path) -> None:
    whole = profile_of(file, tmp_path / "whole")
    assert len(whole.rounds) > 3

    def interrupt(progress: ProfileProgress) -> None:
        if progress.rounds == 3:
            raise KeyboardInterrupt

    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        profile_of(file, parts, on_progress=interrupt)
    with StoreReader(parts) as store:
        before = store.trials()
        run = store.last_run()
    assert len(before) == 4  # the features and three rounds
    assert run is not None and run.stop_reason == "interrupted"
    resumed = profile_of(file, parts)
    with StoreReader(parts) as store:
        after = store.trials()
    assert after[:4] == before
    assert [row.rows_per_s for row in resumed.rounds] == [row.rows_per_s for row in whole.rounds]
    assert resumed.plan == whole.plan
    again = profile_of(file, parts)
    with StoreReader(parts) as store:
        assert store.trials() == after  # nothing was measured again
    assert again == resumed


def test_a_changed_program_is_refused(file: Path, tmp_path: Path) -> None:
    profile_of(file, tmp_path / "study")
    file.write_text(FLOW.replace('keys=["m"]', 'keys=["k"]'))
    with pytest.raises(PenstockError, match="has trials of an earlier version of 'two'"):
        profile_of(file, tmp_path / "study")
    file.write_text(FLOW + "# a comment changes nothing\n")
    profile_of(file, tmp_path / "study")


@pytest.mark.long
def test_other_settings_are_refused(file: Path, tmp_path: Path) -> None:
    profile_of(file, tmp_path / "study")
    with pytest.raises(PenstockError, match="has trials with slots 4 instead of 5; use the same settings"):
        profile_of(file, tmp_path / "study", slots=5)
    with pytest.raises(PenstockError, match="types measured instead of work: logic-dependent"):
        profile_of(file, tmp_path / "study", types={"work": "logic-dependent"})


@pytest.mark.long
def test_the_directory_of_another_dataflow_is_refused(file: Path, tmp_path: Path) -> None:
    profile_of(file, tmp_path / "study")
    flow, costs = word_count.flow(), word_count.behaviour()
    with pytest.raises(PenstockError, match="contains a study of 'two', not a study of 'word_count'"):
        penstock.profile(flow, slots=4, behaviour=costs, at=tmp_path / "study")


def test_a_dataflow_without_costs_is_refused(file: Path, tmp_path: Path) -> None:
    free = Behaviour(operators={"work": OperatorBehaviour(service_s=Fixed(value=0.0))})
    with pytest.raises(PenstockError, match="No operator of 'two' took time"):
        penstock.profile(str(file), slots=4, behaviour=free, at=tmp_path / "study")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "at least 1 slot"),
        ({"latency_s": 0.0}, "above 0"),
        ({"slice": 1.5}, "at most 1"),
        ({"k": 0.5}, "at least 1"),
        ({"alpha": 0.0}, "above 0 and at most 1"),
        ({"engine": "storm"}, "storm"),
        ({"types": {"nothing": "proportional"}}, "'nothing' is not an operator of 'two'"),
        ({"types": {"work": "fast"}}, "'fast' is not an operator type"),
        ({"like": "runs/x"}, "either behaviour"),
    ],
)
def test_invalid_options_are_refused(file: Path, tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(penstock.OptionError, match=message):
        profile_of(file, tmp_path / "study", **({"slots": 4} | options))
    assert not (tmp_path / "study").exists()


@pytest.mark.long
def test_the_plan_is_written_for_a_run(file: Path, tmp_path: Path) -> None:
    result = profile_of(file, tmp_path / "study")
    assert penstock.Plan.from_json((tmp_path / "study" / "plan.json").read_bytes()) == result.plan
    # 10 and 4 ms per row on 4 slots without sharing: 3 tasks and 1 task sustain 250 rows/s, 2 and 2 only 200.
    assert result.plan.replicas["work"] > result.plan.replicas["write"]
    assert result.rows_per_s > 0.95 * 250
