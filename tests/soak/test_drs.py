"""DRS on Spark with the control loop: slots follow steps of the rate, and the output is exact."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import penstock
from penstock.control.controller import Controller, Settings
from penstock.control.guards import Cooldown, Hysteresis
from penstock.control.loop import Loop
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots
from penstock.control.requests import Requests
from penstock.control.run import RunSchedule, run
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings
from penstock.engines.spark.sources.paced import PaceFile
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import Window
from penstock.plan import Plan
from penstock.store import RunStart, Store

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # minutes with a varying load

CAMERAS = 256  # enough for state partitions of about equal size
LOW, HIGH = 20.0, 120.0  # rows/s; one replica serves at most 100
TARGET_S, RELEASE_BELOW_S = 10.0, 6.0
SLOTS = 16
FEW = {"extract": 1, "match": 1, "describe": 1}


def extract(row: dict[str, int]) -> dict[str, int]:
    time.sleep(0.01)
    return row | {"camera": row["n"] % CAMERAS}


def describe(row: dict[str, int]) -> dict[str, int]:
    time.sleep(0.005)
    return row


def number_by_camera(key: tuple[int], batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (before,) = state.get if state.exists else (0,)
    for batch in batches:
        time.sleep(0.01 * len(batch))
        yield pd.DataFrame({"n": batch.n, "camera": key[0], "nth": range(before + 1, before + 1 + len(batch))})
        before += len(batch)
    state.update((before,))


def match(df: DataFrame) -> DataFrame:
    return df.groupBy("camera").applyInPandasWithState(
        number_by_camera, "n bigint, camera bigint, nth bigint", "rows bigint", "append", GroupStateTimeout.NoTimeout
    )


def waiting() -> Dataflow:
    """Return three operators that sleep, so that 16 slots work in parallel on two cores."""
    flow = penstock.Dataflow("waiting")
    frames = flow.source("frames", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=5))
    features = frames.rows("extract", extract, schema="n bigint, camera bigint")
    matches = features.keyed("match", match, keys=["camera"], output_mode="append", columns=["n", "nth"])
    matches.rows("describe", describe, schema="n bigint, camera bigint, nth bigint").sink("out", penstock.memory())
    return flow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    spark = session(f"local[{SLOTS}]", "penstock tests")
    yield spark
    spark.stop()


class Load:
    """Raise the rate after the start, lower it when the target is met again, and end it when slots were released."""

    def __init__(self, engine: SparkEngine, store: Store) -> None:
        self._engine, self._store = engine, store
        self._pace = PaceFile(engine.run / "sources" / "frames.pace.json")
        self.phases = {"start": 0.0}  # -> start time

    def seen(self, window: Window, plan: Plan) -> None:
        (*_, phase), (*_, since_s) = self.phases, self.phases.values()
        rows = [row for _, row in self._store.decisions() if row.at_s > since_s]
        done = {row.reason_code: row for row in rows if row.applied == "ok"}
        last = rows[-1].reason_code if rows else None
        if phase == "start" and window.latency is not None:  # workers have started
            self._step("low", LOW)
        elif phase == "low" and last == "within-target" and plan.replicas == FEW:
            self._step("high", HIGH)
        elif phase == "high" and "shortage" in done and last == "within-target":
            self._step("low again", LOW)
        elif phase == "low again" and "release" in done:
            self._step("nothing", 0.0)

    def over(self) -> bool:
        """Return whether no more rows arrive and none is in progress."""
        return "nothing" in self.phases and len(self._engine.rows("out")) >= self.appended()

    def appended(self) -> int:
        return self._pace.load().available(time.time())

    def _step(self, phase: str, rows_per_s: float) -> None:
        self.phases[phase] = time.time()
        self._engine.set_rate("frames", rows_per_s)


@pytest.mark.timeout(3600)
def test_slots_follow_the_rate_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    flow = waiting()
    plan = Plan(dataflow=flow.name, cuts=frozenset({"extract", "match"}), replicas=FEW, slots=SLOTS)
    engine = SparkEngine(flow, tmp_path, spark=spark, plan=plan, settings=EngineSettings(batch_s=1.0))
    goal = FewestSlots(max_s=TARGET_S, min_s=RELEASE_BELOW_S, aim=0.8)
    policy = Cooldown(Hysteresis(Drs(DrsSettings(goal=goal)), gain=0.2), seconds=5.0)
    settings = Settings(mode="active", smoothing=MovingAverage(3), micro_batch=True, warm_up_s=6.0)
    with Store(tmp_path) as store:
        store.begin_run(
            RunStart(dataflow=flow.name, flow_file="", pid=os.getpid(), master="local", started_s=time.time())
        )
        load = Load(engine, store)
        controller = Controller(policy, settings, engine, store)
        loop = Loop(engine=engine, store=store, controller=controller, on_window=load.seen)
        run(engine, loop, Requests(tmp_path), RunSchedule(window_s=2.0, until=load.over))
        rows = [row for _, row in store.decisions()]
        errors = store.errors()
    assert errors == []
    # The output equals that of one batch: each row once, and the rows of a camera are numbered without gaps.
    out, appended = engine.rows("out"), load.appended()
    assert Counter(row["n"] for row in out) == Counter(range(appended))
    by_camera = Counter(n % CAMERAS for n in range(appended))
    expected = Counter((camera, nth) for camera, count in by_camera.items() for nth in range(1, count + 1))
    assert Counter((row["camera"], row["nth"]) for row in out) == expected
    assert all(row["camera"] == row["n"] % CAMERAS for row in out)
    high_s, low_s = load.phases["high"], load.phases["low again"]
    done = [row for row in rows if row.applied == "ok"]
    *_, grown = [row for row in done if row.reason_code == "shortage" and high_s < row.at_s < low_s]
    (released,) = [row for row in done if row.reason_code == "release" and row.at_s > low_s]
    for row in (grown, released):
        assert row.expected is not None and row.expected.latency_s is not None and row.before is not None
        assert row.expected.latency_s <= TARGET_S and "slots" in row.reason and row.inputs["external_rows_per_s"]
    assert grown.before.latency_s is None or grown.before.latency_s > TARGET_S
    *_, met = [row for row in rows if grown.at_s < row.at_s < low_s]
    assert met.reason_code == "within-target" and met.inputs["latency_mean_s"] <= TARGET_S
    assert released.expected.slots < released.before.slots == grown.expected.slots
