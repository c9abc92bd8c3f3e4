"""What a watcher makes of somebody else's queries, as far as it needs no Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.watched import WatchedEngine, _Query


@pytest.mark.parametrize("names", [("orders-eu", "orders eu"), ("заказы", "платежи")])
def test_queries_keep_their_names_apart(names: tuple[str, str]) -> None:
    nothing = SimpleNamespace(recentProgress=list)
    running = [SimpleNamespace(id=number, name=name, _jsq=nothing) for number, name in enumerate(names)]
    engine = WatchedEngine.__new__(WatchedEngine)
    engine._spark = SimpleNamespace(streams=SimpleNamespace(active=running))
    engine._running = {}
    assert [name for name, _, _ in engine._progress()] == list(names)


def test_a_program_has_no_cuts_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.spark.watched.Stages", lambda spark: None)
    monkeypatch.setattr(WatchedEngine, "executors", lambda self: (3, 2))
    engine = WatchedEngine(SimpleNamespace(sparkContext=SimpleNamespace(appName="theirs")))
    assert (engine.plan.slots, engine.plan.cuts) == (6, frozenset())


@pytest.mark.parametrize(
    "given",
    [{"executors": 4}, {"executors": (1, 2, 3)}, {"executors": (1.5, 3)}, {"every_s": nan}, {"catch_up_s": inf}],
)
def test_arguments_that_make_no_sense_are_told_with_what_would(given: dict[str, Any]) -> None:
    with pytest.raises(ps.PenstockError, match=r"the least first, such as \(1, 6\), and times above 0"):
        ps.watch(None, at="nowhere", **given)


@pytest.mark.parametrize("asked", [{"executors": (1, 10**9)}, {"executors": (2, 1)}, {"every_s": "10"}, {"every_s": 0}])
def test_what_cannot_be_watched_for_is_refused_before_anything_is_looked_at(asked: dict[str, Any]) -> None:
    """A billion executors would have their capacities worked out in the middle of somebody's program."""
    with pytest.raises(ps.PenstockError, match=r"such as \(1, 6\), and times above 0"):
        ps.watch(None, at="nowhere", **asked)


def test_behind_a_cold_batch_the_load_is_what_it_is() -> None:
    """200 rows/s. Python starts in the first batch, for 9 s; the next takes half a second for all that came then."""
    query, came = _Query(), []
    for number, (began_s, took_s, rows) in enumerate(
        [(0.0, 9.0, 0), (9.0, 0.5, 1800), (9.5, 0.1, 100), (9.6, 0.1, 20)]
    ):
        query.saw(
            [
                {
                    "batchId": number,
                    "timestamp": datetime.fromtimestamp(began_s, UTC).isoformat(),
                    "durationMs": {"triggerExecution": took_s * 1000, "addBatch": took_s * 1000},
                    "numInputRows": rows,
                }
            ]
        )
        came.append(query.arriving)
    assert came == pytest.approx([0.0, 200.0, 200.0, 200.0])


def test_a_local_program_is_told_why_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.spark.watched.Stages", lambda spark: None)
    monkeypatch.setattr(WatchedEngine, "executors", lambda self: (1, 2))
    engine = WatchedEngine(SimpleNamespace(sparkContext=SimpleNamespace(appName="theirs", master="local[2]")))
    with pytest.raises(ps.PenstockError, match=r"runs on local\[2\].*start it on a cluster"):
        engine.apply(engine.plan.replace(slots=4))
