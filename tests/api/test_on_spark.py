"""The functions of the Python API on Spark, in one run."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import functions as F  # noqa: N812

import penstock

pytestmark = pytest.mark.spark


def test_run_rescale_record_and_simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    text = [f"the gate and the mill {number % 13}" for number in range(2_000)]
    (tmp_path / "books" / "a.txt").write_text("\n".join(text) + "\n")
    (tmp_path / "day.csv").write_text("time_s,rate\n0,1\n60,2\n120,1\n")

    flow = penstock.Dataflow("wordcount")
    lines = flow.source("lines", penstock.replay("books/*.txt", rows_per_s=20))
    words = lines.stateless("split", lambda df: df.select(F.explode(F.split("value", r"\s+")).alias("word")))
    counts = words.keyed("count", lambda df: df.groupBy("word").count(), keys=["word"])
    counts.sink("out", penstock.parquet("out"))
    words.sink("words", penstock.memory())

    with penstock.run(flow, at="runs/wc", policy="drs", latency_s=2.0, mode="active", window_s=0.5) as run:
        # The cost of the first window with rows does not count, so most rows follow in later windows.
        while not run.operators().query("operator == 'split'").rows_in.astype(float).gt(0).any():
            time.sleep(0.1)
        run.set_rate("lines", 5_000)
        run.wait_until_idle()
        run.rescale(count=4)
        run.status()
        run.report("wc.html")
    record = penstock.open_run("runs/wc")
    result = penstock.simulate(flow, trace="day.csv", peak=5_000, like=record, policy="drs", latency_s=2.0)

    counted: Counter[str] = Counter()
    for path in (tmp_path / "out").glob("*.parquet"):
        for row in pyarrow.parquet.read_table(path).to_pylist():
            counted[row["word"]] = max(counted[row["word"]], row["count"])
    assert counted == Counter(word for line in text for word in line.split())
    assert Counter(row["word"] for row in record.rows("words")) == counted  # read by somebody who did not start the run
    with pytest.raises(penstock.PenstockError, match="no rows of a memory sink 'wrds'; its memory sinks are words"):
        record.rows("wrds")
    assert record.plan is not None and record.plan.replicas["count"] == 4
    assert record.windows().latency_rows.sum() > 0 and len(record.decisions()) > 0 and len(record.trials()) == 0
    assert "wordcount" in (tmp_path / "wc.html").read_text()
    assert result.totals.seconds == pytest.approx(180.0)
    assert not spark._jsc.sc().isStopped()  # type: ignore[attr-defined]  # the session belongs to the program
