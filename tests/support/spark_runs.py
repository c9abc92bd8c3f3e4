"""Run a dataflow to its end under plan changes, and draw random plans."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from penstock.dataflow import Dataflow, Kind, regions
from penstock.dataflow.sources import Generate, Replay
from penstock.engines.spark.channels.contract import ChannelUnavailableError
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.queries import retries
from penstock.engines.spark.settings import EngineSettings
from penstock.plan import Plan, required_cuts, with_permanent_cuts

MAX_REPLICAS = 4
SLOTS = 2
FLUSH_ROWS_PER_S = 100_000.0
WINDOW_S = 1.0  # an observation calls the JVM often, so it would compete with the queries that are waited for


def plan_of(flow: Dataflow, replicas: dict[str, int], wished: set[str]) -> Plan:
    """Return the plan with these replicas and cuts, and with all required cuts."""
    cuts = frozenset(wished | required_cuts(flow, replicas).keys())
    return Plan(dataflow=flow.name, cuts=cuts, replicas=replicas, slots=SLOTS)


def plans(flow: Dataflow) -> st.SearchStrategy[Plan]:
    """Draw a valid plan; the replicas of each region and each possible cut are independent."""
    parallel = [region for region in regions(flow) if region.kind is not Kind.SOURCE]
    replicas = st.fixed_dictionaries(
        {region.name: st.integers(1, MAX_REPLICAS) if region.replicable else st.just(1) for region in parallel}
    )
    cuttable = [operator.name for operator in flow.operators if operator.kind is not Kind.SINK]
    return st.builds(plan_of, st.just(flow), replicas, st.sets(st.sampled_from(cuttable)))


def random_plan(flow: Dataflow, chance: random.Random) -> Plan:
    """Draw a valid plan without hypothesis."""
    parallel = [region for region in regions(flow) if region.kind is not Kind.SOURCE]
    replicas = {region.name: chance.randint(1, MAX_REPLICAS) if region.replicable else 1 for region in parallel}
    wished = {operator.name for operator in flow.operators if operator.kind is not Kind.SINK and chance.random() < 0.4}
    plan = plan_of(flow, replicas, wished)
    # Replicas of operators without state receive unequal shares of the rows.
    rates = {name: tuple(chance.uniform(1.0, 3.0) for _ in range(count)) for name, count in replicas.items()}
    return plan.replace(rates={name: own for name, own in rates.items() if chance.random() < 0.4})


def wait_until(condition: Callable[[], bool], engine: SparkEngine, timeout_s: float = 500.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        engine.recover()
        failure = engine.failure()
        assert failure is None, failure
        assert time.monotonic() < deadline, "the run takes too long"
        time.sleep(0.1)


def wait_until_failed(engine: SparkEngine, timeout_s: float = 500.0) -> str:
    """Restart failed queries, sooner than a run does, until the run has failed for good. Return the reason."""
    deadline = time.monotonic() + timeout_s
    with mock.patch.object(retries, "RETRY_DELAYS_S", tuple(delay_s / 40 for delay_s in retries.RETRY_DELAYS_S)):
        while (reason := engine.failure()) is None:
            engine.recover()
            assert time.monotonic() < deadline, "the run does not fail"
            time.sleep(0.1)
    return reason


def rows_read(engine: SparkEngine) -> int:
    """Return the number of rows that the queries have read from their numbered sources."""
    return sum(engine.position(query, source).get("row", 0) for query in engine.queries for source in query.inputs)


def play(engine: SparkEngine, changes: Iterable[Plan]) -> None:
    """Apply the plans one after the other while rows are processed, then wait for the end of the run.

    A plan keeps the cuts of the previous one if they cannot be removed. After the last change, the rest of all rows
    arrives at once: more small batches would only take time.
    """

    def rests() -> bool:
        nonlocal observed_s
        if time.monotonic() - observed_s >= WINDOW_S:
            with contextlib.suppress(ChannelUnavailableError):  # a busy broker; a run has no window then
                engine.observe()  # rows that were read are deleted, as in a run
            observed_s = time.monotonic()
        return engine.idle()

    observed_s = 0.0
    for plan in changes:
        before = rows_read(engine)
        # A change during processing: some rows were processed since the last change, or all were.
        wait_until(lambda before=before: rows_read(engine) > before or rests(), engine)
        with contextlib.suppress(ChannelUnavailableError):
            engine.observe()
        engine.apply(with_permanent_cuts(engine.flow, engine.plan, plan))
    for operator in engine.flow.operators:
        if isinstance(operator.source, Generate | Replay) and operator.source.rows_per_s:
            engine.set_rate(operator.name, FLUSH_ROWS_PER_S)
    wait_until(rests, engine)


def engine_for(flow: Dataflow, spark: Any, at: Path, plan: Plan | None = None, **settings: Any) -> SparkEngine:
    """Return an engine with short batches; `settings` are fields of EngineSettings."""
    return SparkEngine(flow, at, spark=spark, plan=plan, settings=EngineSettings(**{"batch_s": 0.3} | settings))
