"""The micro-DAGs of model-driven scheduling on Spark: the output equals the oracle's, with threads and a real service."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps.model_driven.file_batches import written_strings
from tests.support.spark_runs import engine_for, play

pytestmark = pytest.mark.spark

ROWS = 150


@pytest.mark.parametrize("name", ["linear", "diamond", "star"])
def test_every_path_processes_every_row_once(spark: SparkSession, tmp_path: Path, name: str) -> None:
    app = import_module(f"penstock.apps.model_driven.{name}")
    options = {"latency_ms": 5.0, "blob_bytes": 20_000, "requests_per_s": 400.0, "xml_documents": 2, "pi_repeats": 2}
    written = tmp_path / "files"
    flow = app.flow(output=penstock.memory(), rows=ROWS, folder=str(written), batch_rows=40, **options)
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"blob.threads": 3, "table.threads": 5})])
        assert app.check(engine.rows("out"), ROWS, **options) == []
    finally:
        engine.stop()
    # Each worker keeps less than a batch in memory until its client is closed.
    ids = {int(string.split()[0]) for string in written_strings(written)}
    assert ids <= set(range(ROWS)) and all(len(string) == 99 for string in written_strings(written))
