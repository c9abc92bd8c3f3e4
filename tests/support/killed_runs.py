"""Runs of an app whose driver is killed at random moments, and which this process resumes to their end."""

from __future__ import annotations

import importlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark.sinks.writers import memory_rows
from tests.support.spark_runs import engine_for, play, random_plan


def module_of(app: str) -> ModuleType:
    """Return a module of `penstock.apps`, or of `tests` if its full name is given."""
    return importlib.import_module(app if app.startswith("tests.") else f"penstock.apps.{app}")


def flow_of(app: ModuleType, rows: int, how: Mapping[str, int]) -> Dataflow:
    flow: Dataflow = app.flow(output=penstock.memory(), rows=rows, rows_per_s=400, **how)
    return flow


def wait_for(path: Path, driver: subprocess.Popen[bytes]) -> None:
    while driver.poll() is None and not path.exists():
        time.sleep(0.005)


def kill_driver(command: list[str], at: Path, chance: random.Random, inside: bool) -> bool:
    """Start a driver and kill it after a random time, which begins with a plan change if `inside` is set.

    Return whether it was killed; it may have processed all rows before.
    """
    alive = at / "alive"
    alive.unlink(missing_ok=True)
    with (at.parent / "driver.log").open("ab") as log:
        driver = subprocess.Popen(command, stderr=log)
        try:
            wait_for(alive, driver)
            if inside:
                wait_for(at / "intent.json", driver)
            deadline = time.monotonic() + chance.uniform(0.0, 1.0 if inside else 8.0)
            while driver.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            driver.kill()
            code = driver.wait()
    assert code in (0, -signal.SIGKILL), (at.parent / "driver.log").read_text()[-3000:]
    return code != 0


def check_killed_run(
    app: str, how: Mapping[str, int], rows: int, at: Path, spark: SparkSession, *, kills: int, seed: int, inside: bool
) -> int:
    """Check the output of an app after several kills, and return the number of kills. `how` are options of the app.

    Each driver is a process with a session of its own. The last resume uses `spark`, because a session takes long to start.
    """
    at.mkdir(parents=True)
    module, chance = module_of(app), random.Random(seed)
    options = [f"{name}={value}" for name, value in how.items()]
    killed = 0
    while killed < kills:
        words = [app, str(at), str(rows), str(chance.randrange(10**6)), *options]
        if not kill_driver([sys.executable, "-m", "tests.support.driver", *words], at, chance, inside):
            break
        killed += 1
    flow = flow_of(module, rows, how)
    engine = engine_for(flow, spark, at)
    try:
        engine.start()
        play(engine, [random_plan(flow, chance).replace(threads=engine.plan.threads)])
    finally:
        engine.stop()
    assert module.check(memory_rows(at, "out"), rows, **how) == []
    return killed
