"""`penstock.watch`: two lines in a PySpark program that is already there."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.dataflow.errors import PenstockError
from penstock.plan.validation import MAX_REPLICAS

if TYPE_CHECKING:
    from penstock.control.watching import Subject, Watch


def watch(
    spark: Any,
    *,
    at: str | Path,
    policy: Literal["mst"] = "mst",
    executors: tuple[int, int] = (1, 4),
    mode: Literal["recommend", "active"] = "recommend",
    every_s: float = 10.0,
    catch_up_s: float = 120.0,
) -> Watch:
    """Takes the streaming queries of a program as a black box; recommends executors for their load, or sets them.

    What it sees and decides is in the directory `at`, for 'penstock status' and 'penstock decisions'. It changes
    nothing of the program's queries, checkpoints or session settings, and whatever goes wrong in it is logged and stays
    there; only arguments that make no sense are refused. Mode "active" sets the number of executors, and needs a
    session whose dynamic allocation is off, or never changes it by itself, and which was started with
    spark.decommission.enabled and spark.storage.decommission.enabled, so that executors can be let go.
    """
    if policy != "mst":
        raise PenstockError(f"policy='{policy}': a black box can be watched by 'mst' only, which needs no operators")
    if mode not in ("recommend", "active"):
        raise PenstockError(f"mode='{mode}': give 'recommend' or 'active'")
    match executors:
        case (int(least), int(most)) if 1 <= least <= most <= MAX_REPLICAS and _above_0(every_s, catch_up_s):
            pass
        case _:
            raise PenstockError(
                f"executors={executors}, every_s={every_s}, catch_up_s={catch_up_s}: give two numbers of executors, 1 "
                f"to {MAX_REPLICAS:,} and the least first, such as (1, 6), and times above 0"
            )

    def begin() -> Subject:
        from penstock.control.controller import Controller, Settings
        from penstock.control.guards import Cooldown
        from penstock.control.policies.mst_seen import MstSeen
        from penstock.control.watching import Subject
        from penstock.engines.spark.watched import WatchedEngine
        from penstock.measure.smoothing import MovingAverage
        from penstock.store import RunRecord, Store

        engine = WatchedEngine(spark)
        engine.await_executors(60.0)
        _, slots_each = engine.executors()
        store = Store(Path(at))
        try:
            master = str(spark.sparkContext.master)
            name = engine.flow.name
            store.begin_run(
                RunRecord(
                    dataflow=name,
                    kind="watch",
                    flow_file="-",
                    pid=os.getpid(),
                    master=master,
                    slots_each=slots_each,
                    started_s=time.time(),
                )
            )
            decides = Cooldown(
                MstSeen(slots_each=slots_each, least=least, most=most, catch_up_s=catch_up_s), seconds=6 * every_s
            )
            settings = Settings(
                mode=mode,
                smoothing=MovingAverage(3),
                micro_batch=True,
                warm_up_s=every_s,
                stale_after_s=max(30.0, 5 * every_s),
                tolerance=0.9,  # executors for what is to come bring nothing until it comes
                max_slots=most * slots_each,
            )
            controller = Controller(decides, settings, engine, store)
            engine.attach()
            return Subject(engine=engine, store=store, controller=controller, ended=engine.session_end)
        except BaseException:
            store.close()
            raise

    from penstock.control.watching import Watch

    return Watch(begin, every_s=every_s)


def _above_0(*seconds: object) -> bool:
    return all(isinstance(one, int | float) and 0 < one < math.inf for one in seconds)
