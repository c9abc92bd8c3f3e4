"""Phase 1 chooses executor counts on some dataflows, phase 2 measures another one on these. All trials are stored ones,
so that nothing starts Spark: a study makes missing trials only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import penstock
from penstock.api.policy_options import OptionError
from penstock.dataflow import Dataflow, PenstockError
from penstock.store import RunStart, Store, Trial
from penstock.study.mst.design import SATURATED, plan_for

CORES = 2


def flow_named(name: str) -> Dataflow:
    flow = penstock.Dataflow(name)
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10.0))
    rows.stateless("work", lambda frame: frame).sink("out", penstock.noop())
    return flow


def stored(at: Path, flow: Dataflow, rows_per_s: Mapping[int, float]) -> None:
    with Store(at) as store:
        store.begin_run(RunStart(dataflow=flow.name, kind="study", flow_file="-", pid=1, master="-", started_s=0.0))
        for executors, rate in rows_per_s.items():
            store.add_trial(
                Trial(
                    study=SATURATED,
                    executors=executors,
                    repeat=0,
                    plan=plan_for(flow, executors, CORES),
                    began_s=0.0,
                    ended_s=1.0,
                    rows_per_s=rate,
                    converged=True,
                )
            )


@pytest.mark.long
def test_the_counts_chosen_on_three_dataflows_are_measured_for_another_one(tmp_path: Path) -> None:
    flows = [flow_named(name) for name in ("a", "b", "c")]
    for flow, rate in zip(flows, (100.0, 7.0, 3000.0), strict=True):
        # Linear, apart from a sample on 2 executors that misleads every model.
        stored(tmp_path / flow.name, flow, {1: rate, 2: 0.5 * rate, 3: 3 * rate, 4: 4 * rate, 5: 5 * rate})
    choice = penstock.choose_training_counts(flows, executors=[1, 2, 3, 4, 5], max_executors=3, sizes=[2], at=tmp_path)
    assert choice.vms == [1, 3] and choice.exhaustive
    other = flow_named("other")
    stored(tmp_path / "other", other, {1: 50.0, 3: 150.0})
    result = penstock.measure_mst(other, training=tmp_path, predict=[6], at=tmp_path / "other")
    assert result.measured == (1, 3)
    assert result.fit is not None
    (prediction,) = [each for each in result.fit.predictions if each.vms == 6]
    assert prediction.throughput == pytest.approx(300.0, rel=0.05)


def test_studies_are_samples_for_the_subset_search(tmp_path: Path) -> None:
    flow = flow_named("a")
    stored(tmp_path, flow, {1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0})
    assert penstock.choose_vm_counts([tmp_path], max_vms=3, sizes=[2]).rmse == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"executors": [1, 2], "max_executors": 1}, "at least 2 within it"),
        ({"executors": [1, 2], "max_executors": 2}, "one more to test on"),
    ],
)
def test_too_few_counts_are_refused_before_the_first_trial(tmp_path: Path, options: dict, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        penstock.choose_training_counts([flow_named("a")], at=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_two_dataflows_need_different_names(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="different names"):
        penstock.choose_training_counts([flow_named("a")] * 2, executors=[1, 2, 3], max_executors=2, at=tmp_path)


def test_a_study_without_a_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="mst choose"):
        penstock.measure_mst(flow_named("a"), training=tmp_path, at=tmp_path / "a")
    with pytest.raises(OptionError, match="either"):
        penstock.measure_mst(flow_named("a"), executors=[1, 2], training=tmp_path, at=tmp_path / "a")


def test_validation_needs_larger_counts_than_training(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="above 3"):
        penstock.measure_mst(flow_named("a"), executors=[1, 3], validate=3, at=tmp_path / "a")
