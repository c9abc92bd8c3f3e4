"""Programs as users write them: Spark objects outside of functions, sessions of their own, functions that fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest

from penstock.store import StoreReader, owner

pytestmark = pytest.mark.spark

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
TRACE = re.compile(r"^\s+at |^Traceback|Exception in thread|^Exception|py4j\.", re.MULTILINE)

COLUMNS = """
import penstock
from pyspark.sql import functions as F

print("loaded")
BIG = F.col("n") >= 500

@F.udf("long")
def twice(n):
    return 2 * n

TWICE = twice("n").alias("m")

flow = penstock.Dataflow("columns")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=4_000, rows_per_s=400))
numbers.stateless("big", lambda df: df.where(BIG).select(TWICE)).sink("out", penstock.parquet("out"))
"""

NUMBERS = """
import penstock

flow = penstock.Dataflow("numbers")
flow.source("n", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10)).sink("out", penstock.noop())
"""

OWN_SESSION = """
import penstock
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").appName("mine").config("spark.ui.enabled", "false").getOrCreate()
LIMIT = spark.range(7).count()

def parse(row):
    if row["n"] == LIMIT:
        raise ValueError("bad number")
    return row

flow = penstock.Dataflow("own")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10))
numbers.rows("parse", parse, schema="n bigint").sink("out", penstock.noop())
"""

USER_ERRORS = """
import penstock
from pyspark.sql import functions as F


@F.udf("long")
def broken(n):
    return 1 // (n - n)


def store(df, batch_id):
    raise RuntimeError("the database is closed")


def declared(name, fn=lambda df: df, sink=None):
    flow = penstock.Dataflow(name)
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10))
    numbers.stateless("shape", fn).sink("out", sink or penstock.noop())
    return flow


column = declared("column", lambda df: df.select("missing"))
expression = declared("expression", lambda df: df.selectExpr("1 / (n - n) as m"))
udf = declared("udf", lambda df: df.select(broken("n").alias("m")))
batch = declared("batch", sink=penstock.foreach_batch(store))
"""

ALL_OF_THEM = """
import sys

from penstock.cli.main import main

for name in ("column", "expression", "udf", "batch"):  # in one process, so that Spark starts once
    sys.argv = ["penstock", "run", f"errors.py:{name}", "--at", name, "--until-idle"]
    try:
        main()
    except SystemExit as end:
        print(f"{name} ended with code {end.code}", flush=True)
"""


def penstock(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PENSTOCK, *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.parametrize("seen", ["Starting numbers", "spark-"])
def test_a_signal_during_the_start_ends_it_without_a_traceback(tmp_path: Path, seen: str) -> None:
    (tmp_path / "flow.py").write_text(NUMBERS)
    command = [*PENSTOCK, "run", "flow.py", "--at", "run"]
    with (tmp_path / "console").open("wb") as console:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=console, stderr=console, start_new_session=True)
    try:
        deadline = time.monotonic() + 500
        # The first text appears before Spark has started, and the log is linked into the run directory afterwards.
        while seen not in (tmp_path / "console").read_text() and not list((tmp_path / "run").glob(f"logs/{seen}*")):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "console").read_text()
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=300) == 128 + signal.SIGTERM, (tmp_path / "console").read_text()
    finally:
        process.kill()
        process.wait()
    text = (tmp_path / "console").read_text()
    assert not TRACE.search(text), text
    assert text.splitlines()[-1] == "Stopped (SIGTERM) during the start; start again with the same command."
    with StoreReader(tmp_path / "run") as reader:
        run = reader.last_run()
    assert run is not None and run.stop_reason == "interrupted during the start"
    assert owner(tmp_path / "run") is None


def test_spark_objects_outside_of_functions_and_a_signal_to_the_process_group(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(COLUMNS)
    command = [*PENSTOCK, "run", "flow.py", "--at", "run", "--window-s", "0.5"]
    with (tmp_path / "console").open("wb") as console:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=console, stderr=console, start_new_session=True)
    try:
        deadline = time.monotonic() + 500
        while not list((tmp_path / "out").glob("*.parquet")):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "console").read_text()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=300) == 0, (tmp_path / "console").read_text()
    finally:
        process.kill()
        process.wait()
    text = (tmp_path / "console").read_text()
    assert not TRACE.search(text), text
    assert text.count("loaded") == 1
    assert text.splitlines()[-1] == "Stopped (SIGTERM); resume with: penstock run flow.py --at run --master 'local[2]'"

    resumed = penstock(tmp_path, "run", "flow.py", "--at", "run", "--until-idle")
    assert resumed.returncode == 0 and not TRACE.search(resumed.stdout), resumed.stdout
    rows = [
        row["m"]
        for path in (tmp_path / "out").glob("*.parquet")
        for row in pyarrow.parquet.read_table(path).to_pylist()
    ]
    assert Counter(rows) == Counter(2 * n for n in range(500, 4_000))


def test_a_session_of_the_file_and_a_function_that_fails(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(OWN_SESSION)
    failed = penstock(tmp_path, "run", "flow.py", "--at", "run", "--until-idle")
    assert failed.returncode == 1 and not TRACE.search(failed.stdout), failed.stdout
    last = failed.stdout.splitlines()[-1]
    assert (
        f"operator 'parse' failed in {tmp_path / 'flow.py'}, line 10: ValueError: bad number; row: {{'n': 7}}" in last
    )
    assert "The stack trace is in run/logs/errors.log." in last
    assert 'ValueError("bad number")' in (tmp_path / "run" / "logs" / "errors.log").read_text()
    assert list((tmp_path / "run" / "logs").glob("spark-*.log"))
    status = json.loads(penstock(tmp_path, "status", "run", "--json").stdout)
    assert (
        "operator 'parse' failed" in status["errors"][-1]["message"]
        and "operator 'parse'" in status["run"]["stop_reason"]
    )

    refused = penstock(tmp_path, "run", "flow.py", "--at", "other", "--master", "local[4]")
    assert refused.returncode == 2 and "'flow.py' creates a Spark session with master 'local[2]'" in refused.stdout
    assert not (tmp_path / "other").exists()


def test_no_error_of_a_user_shows_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text(USER_ERRORS)
    ended = subprocess.run(
        [sys.executable, "-c", ALL_OF_THEM],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    text = ended.stdout
    assert ended.returncode == 0 and not TRACE.search(text), text
    for name, cause in {
        "column": "cannot be resolved",
        "expression": "Division by zero",
        "udf": "ZeroDivisionError",
        "batch": "RuntimeError: the database is closed",
    }.items():
        before, ended_with, _ = text.partition(f"{name} ended with code 1")
        assert ended_with and cause in before.splitlines()[-1], text
    for name in ("udf", "batch"):
        assert "Traceback" in (tmp_path / name / "logs" / "errors.log").read_text()
