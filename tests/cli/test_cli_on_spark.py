"""The commands on a real run, which is rescaled from another process, killed and resumed, with exact output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest

pytestmark = pytest.mark.spark

FLOW = """
import penstock
from pyspark.sql import functions as F

flow = penstock.Dataflow("wordcount")
lines = flow.source("lines", penstock.replay("books/*.txt", rows_per_s=400))
words = lines.stateless("split", lambda df: df.select(F.explode(F.split("value", r"\\s+")).alias("word")))
counts = words.keyed("count", keys=["word"], fn=lambda df: df.groupBy("word").count())
counts.sink("out", penstock.parquet("out"))
"""


def penstock(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=500, check=False)


def start(cwd: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.cli", "run", "flow.py", "--at", "run", "--window-s", "0.5", *words]
    with (cwd / "run.log").open("ab") as log:
        return subprocess.Popen(command, cwd=cwd, stdout=log, stderr=log)


def test_a_run_is_rescaled_killed_and_resumed_by_commands(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    text = [f"the gate and the mill {n % 13}" for n in range(6_000)]
    (tmp_path / "books" / "a.txt").write_text("\n".join(text) + "\n")
    (tmp_path / "flow.py").write_text(FLOW)
    driver = start(tmp_path)
    try:
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline:
            assert driver.poll() is None, (tmp_path / "run.log").read_text()[-2000:]
            status = penstock("status", "run", "--json", cwd=tmp_path)
            window = json.loads(status.stdout)["window"] if status.returncode == 0 else None
            if window and any(operator["rows_in_total"] for operator in window["operators"]):
                break
            time.sleep(0.3)
        done = penstock("rescale", "run", "count=3", cwd=tmp_path)
        assert done.returncode == 0 and "count: 2 -> 3 replicas" in done.stdout, done
        refused = penstock("rescale", "run", "count=0", cwd=tmp_path)
        assert refused.returncode == 1 and "1 or more" in refused.stderr
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert penstock("rescale", "run", "count=2", cwd=tmp_path).returncode == 1
    finally:
        driver.kill()
        driver.wait()
    resumed = start(tmp_path, "--until-idle")
    assert resumed.wait(timeout=500) == 0, (tmp_path / "run.log").read_text()[-2000:]
    assert json.loads(penstock("status", "run", "--json", cwd=tmp_path).stdout)["plan"]["replicas"]["count"] == 3
    counted: Counter[str] = Counter()
    for path in (tmp_path / "out").glob("*.parquet"):
        for row in pyarrow.parquet.read_table(path).to_pylist():
            counted[row["word"]] = max(counted[row["word"]], row["count"])
    assert counted == Counter(word for line in text for word in line.split())
