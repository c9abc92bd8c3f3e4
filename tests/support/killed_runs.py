"""Runs of an app whose driver is killed at random moments and started again until all rows are processed."""

from __future__ import annotations

import importlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.engines.spark.sinks.writers import memory_rows


def wait_for(path: Path, driver: subprocess.Popen[bytes]) -> None:
    while driver.poll() is None and not path.exists():
        time.sleep(0.005)


def run_and_kill(
    app: str, how: Mapping[str, int], rows: int, at: Path, kills: int, chance: random.Random, inside: bool
) -> int:
    """Start the driver repeatedly, kill it after a random time, and return the number of kills.

    If `inside` is set, the random time begins with a plan change.
    """
    killed = 0
    alive = at / "alive"
    for _ in range(kills + 20):
        alive.unlink(missing_ok=True)
        words = [app, str(at), str(rows), str(chance.randrange(10**6)), *(f"{k}={v}" for k, v in how.items())]
        with (at.parent / "driver.log").open("ab") as log:
            driver = subprocess.Popen([sys.executable, "-m", "tests.support.driver", *words], stderr=log)
            try:
                if killed < kills:
                    wait_for(alive, driver)
                    if inside:
                        wait_for(at / "intent.json", driver)
                    deadline = time.monotonic() + chance.uniform(0.0, 1.0 if inside else 8.0)
                    while driver.poll() is None and time.monotonic() < deadline:
                        time.sleep(0.02)
                    if driver.poll() is None:
                        driver.send_signal(signal.SIGKILL)
                        killed += 1
                code = driver.wait(timeout=500)
            finally:
                if driver.poll() is None:
                    driver.kill()
                    driver.wait()
            if code == 0:
                return killed
            assert code == -signal.SIGKILL, (at.parent / "driver.log").read_text()[-3000:]
    raise AssertionError("the run never came to its end")


def check_killed_run(
    app: str, how: Mapping[str, int], rows: int, at: Path, *, kills: int, seed: int, inside: bool
) -> int:
    """Check the output of an app after several kills, and return the number of kills. `how` are options of the app."""
    at.mkdir(parents=True)
    killed = run_and_kill(app, how, rows, at, kills, random.Random(seed), inside)
    module = importlib.import_module(f"penstock.apps.{app}")
    assert module.check(memory_rows(at, "out"), rows, **how) == []
    return killed
