"""Duration of the interruption by a plan change."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import penstock
from benchmarks.figures import Row, row
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings
from penstock.plan import default_plan


def first_batch_after(query: Callable[[], Any], since: float) -> float:
    """Return the seconds from `since` until a restarted query has committed a batch."""
    while not query().recentProgress:
        time.sleep(0.005)
    return time.monotonic() - since


def pauses(master: str) -> list[Row]:
    spark = session(master)
    flow = penstock.Dataflow("pauses")
    keys = 100_000
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10**9, rows_per_s=20_000))
    kept = numbers.stateless("keep", lambda df: df.selectExpr(f"n % {keys} as k"))
    kept.keyed("count", lambda df: df.groupBy("k").count(), keys=["k"]).sink("out", penstock.noop())
    plan = default_plan(flow, slots=2, replicas={"count": 2, "keep": 2}).replace(cuts=frozenset({"keep"}))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, plan=plan, settings=EngineSettings(batch_s=0.5))
        engine.start()
        try:
            while engine.observe().operator("count").state_rows != keys:
                time.sleep(0.5)
            plain, stateless = [], []
            for turn in range(4):
                began = time.monotonic()
                engine.restart(engine.queries[0])
                plain.append(first_batch_after(lambda: engine.running(engine.queries[0]), began))
                time.sleep(2)
                began = time.monotonic()
                engine.apply(penstock.rescaled(flow, engine.plan, {"keep": 3 if turn % 2 == 0 else 2}))
                stateless.append(first_batch_after(lambda: engine.running(engine.queries[0]), began))
                time.sleep(2)
            untouched = engine.run_id(engine.queries[0])
            keyed, whole = [], []
            for replicas in (4, 2, 3):
                began = time.monotonic()
                keyed.append(engine.apply(penstock.rescaled(flow, engine.plan, {"count": replicas})).pause_s)
                whole.append(first_batch_after(lambda: engine.running(engine.queries[1]), began))
                time.sleep(2)
            stopped = int(engine.run_id(engine.queries[0]) != untouched)
        finally:
            engine.stop()
    spark.stop()
    ratio = statistics.median(stateless) / statistics.median(plain)
    return [
        row("plain stop and restart, until the next batch ends", statistics.median(plain), "s"),
        row("stateless replica change, until the next batch ends", statistics.median(stateless), "s"),
        row("stateless change / plain restart", ratio, "ratio", "<= 1.5", ratio <= 1.5),
        row("keyed change with 100k keys, pause of the queries", max(keyed), "s", "<= 6", max(keyed) <= 6),
        row("keyed change with 100k keys, until the next batch ends", max(whole), "s"),
        row("unchanged queries that were stopped", stopped, "queries", "0", stopped == 0),
    ]
