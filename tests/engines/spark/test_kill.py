"""kill -9 of the driver at any time, also during a plan change: after resuming, the output is exact."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.apps import finance, netmon, wordcount
from penstock.engines.spark.sinks.writers import memory_rows

pytestmark = pytest.mark.spark

ROWS = 2_000
APPS = {"wordcount": (wordcount, {}), "netmon": (netmon, {"threshold": 1}), "finance": (finance, {})}


def wait_for(path: Path, driver: subprocess.Popen[bytes]) -> None:
    while driver.poll() is None and not path.exists():
        time.sleep(0.005)


def run_and_kill(app: str, at: Path, kills: int, chance: random.Random, inside: bool) -> int:
    """Start the driver repeatedly, kill it after a random time, and return the number of kills.

    If `inside` is set, the random time begins with a plan change.
    """
    killed = 0
    _, how = APPS[app]
    alive = at / "alive"
    for _ in range(kills + 20):
        alive.unlink(missing_ok=True)
        words = [app, str(at), str(ROWS), str(chance.randrange(10**6)), *(f"{k}={v}" for k, v in how.items())]
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


def check(app: str, at: Path, kills: int, seed: int, inside: bool) -> int:
    at.mkdir(parents=True)
    killed = run_and_kill(app, at, kills, random.Random(seed), inside)
    module, how = APPS[app]
    assert module.check(memory_rows(at, "out"), ROWS, **how) == []
    return killed


@pytest.mark.parametrize(("app", "inside"), [("wordcount", True), ("finance", False)])
def test_exact_after_a_kill(app: str, inside: bool, tmp_path: Path) -> None:
    killed = check(app, tmp_path / "run", kills=1, seed=len(app), inside=inside)
    assert killed or not inside


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_soak(tmp_path: Path) -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "30"))
    seed = int(os.environ.get("SOAK_SEED", str(int(time.time()))))
    deadline = time.monotonic() + minutes * 60
    runs = kills = 0
    while time.monotonic() < deadline:
        app = list(APPS)[runs % len(APPS)]
        kills += check(app, tmp_path / f"{runs}" / "run", kills=4, seed=seed + runs, inside=runs % 2 == 0)
        runs += 1
        print(f"soak: {runs} runs, {kills} kills, nothing lost or doubled (seed {seed})", flush=True)
    assert runs > 0
