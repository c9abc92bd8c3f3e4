"""A driver process that tests kill: it runs an app under random plan changes until all rows are processed."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.settings import EngineSettings
from penstock.plan import with_permanent_cuts
from tests.support.killed_runs import flow_of, module_of
from tests.support.spark_runs import random_plan

CHANGES = 3


def main(app: str, at: str, rows: int, seed: int, options: list[str]) -> None:
    how = {name: int(value) for name, _, value in (option.partition("=") for option in options)}
    flow = flow_of(module_of(app), rows, how)
    chance = random.Random(seed)
    engine = SparkEngine(flow, at, master="local[2]", settings=EngineSettings(batch_s=0.3))
    engine.start()
    (Path(at) / "alive").touch()
    for _ in range(CHANGES):
        time.sleep(chance.uniform(0.0, 2.0))
        plan = with_permanent_cuts(flow, engine.plan, random_plan(flow, chance))
        engine.apply(plan.replace(threads={name: chance.randint(1, 12) for name in engine.plan.threads}))
    while not engine.idle():
        engine.recover()
        failure = engine.failure()
        if failure:
            sys.exit(failure)
        time.sleep(0.1)
    engine.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
