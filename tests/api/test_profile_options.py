"""The platforms of a profile, without Spark: options that contradict each other, and several simulated platforms."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.api.profile_trials import SparkPlatform
from penstock.api.profiling import ProfileOptions, prepared
from penstock.dataflow import PenstockError
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour
from penstock.store import StoreReader
from penstock.study.stepwise.platform_curve import PlatformCurve
from tests.support.simulated_flows import chain

COSTS = Behaviour(operators={"work": OperatorBehaviour(service_s=Fixed(value=0.01))})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "spark", "behaviour": COSTS, "slots": 2}, "Spark measures the cost"),
        ({"engine": "micro-batch", "slots": 2}, "either behaviour"),
        ({"behaviour": COSTS}, "requires the number of slots or executors"),
        ({"behaviour": COSTS, "slots": 2, "cluster": "runs/cluster"}, "neither a cluster nor a Spark session"),
        ({"behaviour": COSTS, "slots": 2, "executors": 1}, "either slots or executors"),
        ({"executors": 2}, "requires a cluster or a simulation"),
        ({"slots": 0}, "at least 1 slot is required"),
    ],
)
def test_contradictions_are_refused_before_anything_is_written(
    options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(penstock.OptionError, match=message):
        penstock.profile(chain("work"), at=tmp_path / "study", **options)
    assert not (tmp_path / "study").exists()


def test_a_source_without_a_rate_cannot_be_profiled_on_spark(tmp_path: Path) -> None:
    flow = penstock.Dataflow("appearing")
    flow.source("logs", penstock.files(f"{tmp_path}/*.txt")).stateless("same", lambda df: df).sink(
        "out", penstock.noop()
    )
    with pytest.raises(PenstockError, match="sets the rate of source 'logs', which is files"):
        penstock.profile(flow, slots=2, at=tmp_path / "study")


class ActiveSession:
    """A session of the user with four slots."""

    sparkContext = SimpleNamespace(master="local[4]", defaultParallelism=4)  # noqa: N815


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> ActiveSession:
    session = ActiveSession()
    monkeypatch.setattr("penstock.api.spark_session.active_session", lambda: session)
    return session


def test_the_active_session_is_used_and_has_its_own_slots(active: ActiveSession, tmp_path: Path) -> None:
    options = ProfileOptions(latency_s=0.5, engine=None, slice=0.3, k=2.0, alpha=0.9, types={}, seed=0)
    costs: dict[str, Any] = {"behaviour": None, "like": None}
    study = prepared(chain("work"), options, cluster=None, spark=None, **costs)
    platform = study.platform(None, None)
    assert isinstance(platform, SparkPlatform)
    assert (platform.spark, platform.slots, platform.master) == (active, 4, "local[4]")
    # A cluster has sessions of its own, and a simulation needs none.
    assert prepared(chain("work"), options, cluster="runs/cluster", spark=None, **costs).spark is None
    assert prepared(chain("work"), options, cluster=None, spark=None, behaviour=COSTS, like=None).spark is None
    at = tmp_path / "study"
    with pytest.raises(penstock.OptionError, match="slots is 2, but the Spark session has 4"):
        penstock.profile(chain("work"), slots=2, at=at)
    with pytest.raises(penstock.OptionError, match="slots is 2, but the Spark session has 4"):
        penstock.profile_platforms(chain("work"), slots=[2, 4], at=at)
    for given in ({}, {"spark": active}):
        with pytest.raises(penstock.OptionError, match="slots is 2, but the Spark session has 4"):
            penstock.compare(chain("work"), chain("work"), slots=2, at=at, **given)
    assert not at.exists()


def curve_of(at: Path, **options: object) -> PlatformCurve:
    return penstock.profile_platforms(chain("work"), behaviour=COSTS, at=at, latency_s=1.0, **options)


@pytest.mark.long
def test_the_throughput_grows_with_the_slots_and_the_smallest_platform_is_found(tmp_path: Path) -> None:
    """A slot processes 100 rows/s."""
    curve = curve_of(tmp_path / "slots", slots=[4, 1, 2], rows_per_s=150.0, plot=tmp_path / "curve.html")
    assert [point.count for point in curve.points] == [1, 2, 4]
    assert [point.rows_per_s for point in curve.points] == pytest.approx([100.0, 200.0, 400.0], rel=0.05)
    assert curve.smallest == 2
    page = (tmp_path / "curve.html").read_text()
    assert "<svg" in page and "95 % interval" in page
    with StoreReader(tmp_path / "slots" / "slots-2") as store:
        features = store.trials()[0]
    assert features.ended_s == features.began_s  # those of the first platform are used again
    for point in curve.points:
        plan = tmp_path / "slots" / f"slots-{point.count}" / "plan.json"
        assert penstock.Plan.from_json(plan.read_bytes()) == point.plan
    assert curve_of(tmp_path / "slots", slots=[4, 1, 2], rows_per_s=500.0).smallest is None


@pytest.mark.long
def test_executors_have_the_slots_of_the_simulated_cluster(tmp_path: Path) -> None:
    curve = curve_of(tmp_path / "executors", executors=[1])
    assert curve.machines == "executors"
    assert curve.points[0].plan.slots == COSTS.cluster.slots_per_executor
    with pytest.raises(penstock.OptionError, match="either slots or executors"):
        curve_of(tmp_path / "both", executors=[1], slots=[4])
