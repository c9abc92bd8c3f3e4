"""The start of a run compared with the same query in plain PySpark: `python -m benchmarks.startup [--json] [--runs N]`.

`--before DIRECTORY` also starts an earlier version of Penstock, for example of `git worktree add DIRECTORY COMMIT`. The
last figures are then the part of Penstock in both versions: the time beyond that of plain PySpark.

Both programs read generated rows through a Python data source, call a Python function per row and discard the results,
with the same Spark configuration and the same Python for workers on local[2]. Each starts in a new process, in turn.
The phases are medians:

imports         from the start of the process until the first call of Spark: Python, modules, the user's file
Spark session   the JVM and the session
compilation     of the query; Penstock reports its start separately
first batch     the first batch, which starts the Python workers
first rows      until the first rows are committed (Penstock: its first batch has no rows)
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, row, shown

PLAIN_NAME = "plain PySpark"
PHASES = ("imports", "Spark session", "compilation and start", "first batch", "first rows")
CHECKOUT = Path(__file__).parents[1]
FLOW = """
import penstock

def double(row):
    return {"n": 2 * row["n"]}

flow = penstock.Dataflow("startup")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=400, rows_per_s=200))
numbers.rows("double", double, schema="n bigint").sink("out", penstock.noop())
"""
PLAIN = """
import sys, time
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

class Range(InputPartition):
    def __init__(self, start, stop):
        self.start, self.stop = start, stop

class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"row": 0}
    def latestOffset(self):
        return {"row": 400}
    def partitions(self, start, end):
        middle = (start["row"] + end["row"]) // 2
        return [Range(start["row"], middle), Range(middle, end["row"])]
    def read(self, partition):
        yield pa.RecordBatch.from_pydict({"n": list(range(partition.start, partition.stop))})
    def commit(self, end):
        pass

class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"
    def schema(self):
        return "n bigint"
    def streamReader(self, schema):
        return Reader()

def double(batches):
    for batch in batches:
        rows = [{"n": 2 * row["n"]} for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema([("n", pa.int64())]))

times = [time.time()]
builder = SparkSession.builder.master("local[2]")
for name, value in CONFS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
times.append(time.time())
spark.dataSource.register(Numbers)
df = spark.readStream.format("numbers").load().mapInArrow(double, "n bigint")
query = df.writeStream.format("noop").option("checkpointLocation", "CHECKPOINT").start()
times.append(time.time())
while not query.recentProgress:
    time.sleep(0.005)
print(times)
query.stop()
spark.stop()
"""


def plain(folder: Path) -> dict[str, float]:
    from penstock.engines.spark.local_machine import HOST, worker_python
    from penstock.engines.spark.properties import CONFS, LOCAL_DISK, LOOPBACK

    # Sources have no names in a query written by hand.
    confs = CONFS | LOCAL_DISK | LOOPBACK | {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "false"}
    text = PLAIN.replace("CONFS", repr(confs)).replace("CHECKPOINT", str(folder / "checkpoint"))
    (folder / "plain.py").write_text(text)
    environment = worker_python() | {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}
    began_s = time.time()
    printed = _run([sys.executable, str(folder / "plain.py")], environment)
    times = json.loads(printed.strip().splitlines()[-1])
    first_batch_s = (folder / "checkpoint" / "commits" / "0").stat().st_mtime
    bounds = [began_s, *times, first_batch_s]
    return {phase: after - before for phase, before, after in zip(PHASES, bounds, bounds[1:], strict=False)}


def penstock(folder: Path, checkout: Path = CHECKOUT) -> dict[str, float]:
    """Return the phases of a start, or only its total if this version does not record them."""
    (folder / "flow.py").write_text(FLOW)
    began_s = time.time()
    command = [sys.executable, "-m", "penstock.cli", "run", str(folder / "flow.py"), "--at", str(folder / "run")]
    _run([*command, "--until-idle", "--quiet"], {"PYTHONPATH": str(checkout / "src")})
    first_rows_s = _first_rows_s(folder / "run")
    if checkout != CHECKOUT:
        return {"first rows": first_rows_s - began_s}
    from penstock.store import StoreReader

    with StoreReader(folder / "run") as reader:
        start = reader.last_run()
    assert start is not None and start.ready_s is not None
    phases = dict(start.startup_s)
    phases["imports"] += start.ready_s - sum(phases.values()) - began_s  # the start of the process itself
    phases["first rows"] = first_rows_s - start.ready_s
    return phases


def _first_rows_s(run: Path) -> float:
    """Return when the first batch with rows was committed."""
    (checkpoint,) = (run / "checkpoints").iterdir()
    for batch in itertools.count():
        rows = re.findall(r'"row": ?(\d+)', (checkpoint / "offsets" / str(batch)).read_text())
        if int(rows[-1]) > 0:
            return (checkpoint / "commits" / str(batch)).stat().st_mtime
    raise AssertionError


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=170, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--before", type=Path, metavar="DIRECTORY", help="Checkout of an earlier version.")
    options = parser.parse_args()
    starts: dict[str, Callable[[Path], dict[str, float]]] = {PLAIN_NAME: plain, "Penstock": penstock}
    if options.before is not None:
        before = options.before.resolve()
        starts["Penstock before"] = lambda folder: penstock(folder, before)
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in starts}
    for _ in range(options.runs):
        for name, start in starts.items():
            folder = Path(tempfile.mkdtemp())
            try:
                measured[name].append(start(folder))
                print(name, {k: round(v, 2) for k, v in measured[name][-1].items()}, file=sys.stderr, flush=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    rows = figures(measured)
    if options.json:
        print(json.dumps(rows))
    else:
        from rich.console import Console

        Console(width=120).print(shown(rows))


def figures(measured: dict[str, list[dict[str, float]]]) -> list[Row]:
    rows: list[Row] = []
    total: dict[str, Any] = {}
    for name, runs in measured.items():
        for phase in dict.fromkeys(phase for run in runs for phase in run):
            rows.append(row(f"{name}: {phase}", statistics.median(run.get(phase, 0.0) for run in runs), "s"))
        total[name] = statistics.median(sum(run.values()) for run in runs)
        rows.append(row(f"{name}: first results after", total[name], "s"))
    for name in total:
        if name != PLAIN_NAME:
            rows.append(row(f"{name} adds", total[name] - total[PLAIN_NAME], "s"))
    return rows


if __name__ == "__main__":
    main()
