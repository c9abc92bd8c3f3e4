"""Allowed changes of a dataflow before a run is resumed, and files that a failed start leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark.change.resume_check import (
    apply_new_declarations,
    check_same_dataflow,
    endpoints_of,
    shape_of,
)
from penstock.engines.spark.run_directory.committed import Committed
from penstock.engines.spark.run_directory.directory import RunDirectory

RATED = penstock.generate(str, schema="value string", rows_per_s=5)


def flow(source: Any = RATED, sink: Any = None) -> Dataflow:
    made = penstock.Dataflow("ends")
    made.source("in", source).sink("out", sink or penstock.memory())
    return made


def begun(dataflow: Dataflow) -> Committed:
    plan = penstock.default_plan(dataflow, slots=1)
    ends = endpoints_of(dataflow)
    committed = Committed(generation=1, plan=plan, shape=shape_of(dataflow), queries=(), channels={}, endpoints=ends)
    return msgspec.json.decode(msgspec.json.encode(committed), type=Committed)


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        ({"source": penstock.files("*.txt")}, {}, "'in' is generated rows at a rate, but was files as they appear"),
        (
            {"source": penstock.replay("a.txt", rows_per_s=1)},
            {"source": penstock.backlog("a.txt")},
            "a backlog of 'a.txt'",
        ),
        (
            {"source": penstock.backlog("a.txt")},
            {"source": penstock.backlog("b.txt")},
            "of 'b.txt' .*, but was .* of 'a.txt'",
        ),
        (
            {"source": penstock.kafka("a", bootstrap_servers="x:1")},
            {"source": penstock.kafka("b", bootstrap_servers="x:1")},
            "Kafka topic 'b', but was Kafka topic 'a'",
        ),
        (
            {"sink": penstock.parquet("/a")},
            {"sink": penstock.parquet("/b")},
            "'out' is parquet files in '/b', but was .* in '/a'",
        ),
        (
            {"sink": penstock.parquet("/a")},
            {"sink": penstock.noop()},
            "'out' is not stored outside the run, but was parquet files in '/a'",
        ),
    ],
)
def test_sources_and_sinks_must_not_change(before: Any, now: Any, says: str) -> None:
    with pytest.raises(
        penstock.PlanError, match=says + r".*\. Declare it as before, or start a new run in another directory\."
    ):
        check_same_dataflow(begun(flow(**before)), flow(**now), Path("run"))


def test_only_a_changed_declaration_sets_the_rate() -> None:
    class Source:
        rows_per_s = None

        def set_rate(self, rows_per_s: float) -> None:
            self.rows_per_s = rows_per_s

    source: Any = Source()
    assert apply_new_declarations(begun(flow()), flow(), {"in": source}) == [] and source.rows_per_s is None
    faster = flow(penstock.generate(str, schema="value string", rows_per_s=50))
    assert apply_new_declarations(begun(flow()), faster, {"in": source}) == [
        "Source 'in' continues at 50 rows/s, as it is declared now."
    ]
    assert source.rows_per_s == 50


def test_a_failed_start_leaves_no_sources(tmp_path: Path) -> None:
    pace = tmp_path / "sources" / "in.pace.json"
    pace.parent.mkdir()
    pace.touch()
    directory = RunDirectory(tmp_path)
    directory.delete_unused(begun(flow()))
    assert pace.exists()
    directory.delete_unused(None)
    assert not pace.exists()


def test_new_files_are_accepted_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = begun(flow(penstock.files("in/*.txt")))
    assert apply_new_declarations(before, flow(penstock.files("in/*.txt")), {}) == []
    monkeypatch.chdir("/")
    assert apply_new_declarations(before, flow(penstock.files("in/*.txt")), {}) == [
        f"Source 'in' now reads '/in/*.txt' instead of '{tmp_path}/in/*.txt'."
    ]
