"""What a watcher makes of somebody else's queries, as far as it needs no Spark."""

from __future__ import annotations

from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.watched import WatchedEngine


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
