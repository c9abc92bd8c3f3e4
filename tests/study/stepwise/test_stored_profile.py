"""A policy uses the plan that the study chose, not one that it chooses itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dataflow import PenstockError
from penstock.study.stepwise.stored_profile import stored_profile
from tests.support.sample_profiles import plan, profiled, result


def test_the_plan_is_that_of_the_result_also_if_another_round_was_faster(tmp_path: Path) -> None:
    profiled(tmp_path)  # its second round is faster
    with pytest.raises(PenstockError, match="is not finished; run the command"):
        stored_profile(tmp_path, dataflow="wc")
    result(best=1, used=plan(1, 1), rows_per_s=100.0).write(tmp_path)
    stored = stored_profile(tmp_path, dataflow="wc")
    assert [(each.plan, each.rows_per_s, each.latency_s) for each in stored.plans] == [(plan(1, 1), 100.0, 0.4)]


def test_platforms_whose_study_is_not_finished_are_left_out(tmp_path: Path) -> None:
    for name in ("slots-4", "slots-8"):
        profiled(tmp_path / name)
    result(best=2, used=plan(2, 2), rows_per_s=200.0).write(tmp_path / "slots-4")
    assert [each.plan for each in stored_profile(tmp_path, dataflow="wc").plans] == [plan(2, 2)]


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    profiled(tmp_path)
    (tmp_path / "profile.json").write_text("{")
    with pytest.raises(PenstockError, match="repeat the command of the study"):
        stored_profile(tmp_path, dataflow="wc")
