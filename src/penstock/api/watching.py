"""`penstock.watch`: observe the streaming queries of an existing PySpark program, and scale its executors."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory
from penstock.plan.validation import MAX_REPLICAS

if TYPE_CHECKING:
    from penstock.control.watch import Watch, WatchedProgram

_SLOTS_TIMEOUT_S = 60.0  # time to wait for the first executor


def watch(
    spark: Any,
    *,
    at: str | Path,
    policy: Literal["mst"] = "mst",
    executors: tuple[int, int] = (1, 4),
    mode: Literal["recommend", "active"] = "recommend",
    window_s: float = 10.0,
    catch_up_s: float = 120.0,
) -> Watch:
    """Watch all streaming queries of a Spark session; recommend a number of executors for their load, or set it.

    Measurements and decisions are recorded in the directory `at` for 'penstock status', 'penstock decisions' and
    'penstock report'. The queries, their checkpoints and the session settings are not changed. Errors inside the watch
    are logged and never reach the program.

    Args:
        spark: The Spark session.
        at: Directory of the record.
        policy: The scaling policy. Only "mst" works without measurements per operator.
        executors: The smallest and the largest number of executors.
        mode: "recommend" records decisions. "active" also sets the number of executors. It requires a session whose
            dynamic allocation is off or never acts on its own, and that was started with `spark.decommission.enabled`
            and `spark.storage.decommission.enabled`.
        window_s: Length of a measurement window.
        catch_up_s: Time in which a backlog must be processed.

    Returns:
        The watch, which runs in a background thread until its method `stop` is called.

    Raises:
        PenstockError: An argument is invalid.
    """
    if policy != "mst":
        raise PenstockError(
            f"policy='{policy}' cannot be used by watch, because it needs measurements per operator; use policy='mst'."
        )
    if mode not in ("recommend", "active"):
        raise PenstockError(f"mode='{mode}' is unknown; use 'recommend' or 'active'.")
    match executors:
        case (int(min_executors), int(max_executors)) if 1 <= min_executors <= max_executors <= MAX_REPLICAS:
            pass
        case _:
            raise PenstockError(
                f"executors={executors} is invalid; give the smallest and the largest number of executors, from 1 to "
                f"{MAX_REPLICAS:,}, such as (1, 6)."
            )
    for name, seconds in {"window_s": window_s, "catch_up_s": catch_up_s}.items():
        if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise PenstockError(f"{name}={seconds} is invalid; give a finite number of seconds above 0.")

    from penstock.control.watch import Watch

    directory = local_directory(at)

    def connect() -> WatchedProgram:
        return _connect(
            spark, directory, (min_executors, max_executors), mode, window_s=window_s, catch_up_s=catch_up_s
        )

    return Watch(connect, window_s=window_s)


def _connect(
    spark: Any,
    at: Path,
    executors: tuple[int, int],
    mode: Literal["recommend", "active"],
    *,
    window_s: float,
    catch_up_s: float,
) -> WatchedProgram:
    """Open the engine, the store and the controller. Runs in the thread of the watch."""
    from penstock.control.controller import Controller, Settings
    from penstock.control.guards import Cooldown
    from penstock.control.policies.mst import WatchedMst
    from penstock.control.watch import WatchedProgram
    from penstock.engines.spark.watched import WatchedEngine
    from penstock.measure.smoothing import MovingAverage
    from penstock.store import RunStart, Store

    min_executors, max_executors = executors
    engine = WatchedEngine(spark, max_executors=max_executors)
    is_local = str(spark.sparkContext.master).startswith("local[") or spark.sparkContext.master == "local"
    engine.await_executors(_SLOTS_TIMEOUT_S)
    _, slots_per_executor = engine.executors()
    store = Store(at)
    try:
        store.begin_run(
            RunStart(
                dataflow=engine.flow.name,
                kind="watch",
                flow_file="-",
                pid=os.getpid(),
                master=str(spark.sparkContext.master),
                slots_per_executor=slots_per_executor,
                started_s=time.time(),
            )
        )
        policy = Cooldown(
            WatchedMst(
                slots_per_executor=slots_per_executor,
                min_executors=min_executors,
                max_executors=max_executors,
                is_local=is_local,
                catch_up_s=catch_up_s,
            ),
            seconds=6 * window_s,
        )
        settings = Settings(
            mode=mode,
            smoothing=MovingAverage(3),
            micro_batch=True,
            warm_up_s=window_s,
            stale_after_s=max(30.0, 5 * window_s),
            tolerance=0.9,  # executors for a future load have no effect before it arrives
            max_slots=max_executors * slots_per_executor,
        )
        controller = Controller(policy, settings, engine, store)
        engine.attach()
        return WatchedProgram(engine=engine, store=store, controller=controller, ended=engine.session_end)
    except BaseException:
        store.close()
        raise
