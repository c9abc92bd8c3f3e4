"""Replace Spark by the engine in memory in all tests of this package that are not marked `spark`."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import penstock
from tests.support import penstock_in_memory
from tests.support.double_flow import double_flow
from tests.support.memory_engine import MemoryEngine


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[MemoryEngine]:
    """The engines that `penstock.run` creates, oldest first."""
    created: list[MemoryEngine] = []

    class Recorded(MemoryEngine):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            created.append(self)

    stand_in = type(sys)(penstock_in_memory.stand_in.__name__)
    stand_in.SparkEngine = Recorded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setattr("penstock.api.spark_session.active_session", lambda: None)
    monkeypatch.setattr("penstock.engines.spark.early_jvm.start", lambda *_: None)
    return created


@pytest.fixture
def doubling() -> penstock.Dataflow:
    return double_flow(rows=50)
