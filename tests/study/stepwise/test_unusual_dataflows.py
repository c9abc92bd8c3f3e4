"""Profiles of loops, operators with one replica, filters that drop all rows, and periodic output, in both modes."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.dataflow.stream import Stream
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour
from penstock.study.stepwise.profile import Profile

pytestmark = pytest.mark.long

SLOTS = 8
LATENCY_S = {"row-by-row": 0.5, "micro-batch": 2.0}
both_engines = pytest.mark.parametrize("engine", LATENCY_S)


def started(name: str) -> tuple[penstock.Dataflow, Stream]:
    flow = penstock.Dataflow(name)
    return flow, flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1.0))


def takes(seconds: float, **more: object) -> OperatorBehaviour:
    return OperatorBehaviour(service_s=Exponential(mean=seconds), **more)  # type: ignore[arg-type]


def profile_of(flow: penstock.Dataflow, costs: dict[str, OperatorBehaviour], engine: str, at: Path) -> Profile:
    behaviour = Behaviour(operators=costs)
    return penstock.profile(
        flow, slots=SLOTS, behaviour=behaviour, engine=engine, latency_s=LATENCY_S[engine], at=at / "study"
    )


@both_engines
def test_a_loop(engine: str, tmp_path: Path) -> None:
    """A row passes 'work' 1 / 0.7 times: 1.43 + 0.43 x 2 + 1 = 3.29 ms, so 8 slots sustain at most 2,435 rows/s."""
    flow, rows = started("retries")
    back = flow.feedback("back", schema="n bigint")
    work = flow.keyed("work", lambda *frames: frames[0], keys=["n"], inputs=[rows, back])
    work.keyed("retry", lambda frame: frame, keys=["k"]).feed(back)
    work.keyed("done", lambda frame: frame, keys=["j"]).sink("out", penstock.noop())
    costs = {"work": takes(1e-3, routes={"retry": 0.3, "done": 0.7}), "retry": takes(2e-3), "done": takes(1e-3)}
    result = profile_of(flow, costs, engine, tmp_path)
    assert result.meets_target
    assert (0.93 if engine == "row-by-row" else 0.5) * 2435 <= result.rows_per_s <= 1.02 * 2435


@both_engines
def test_an_operator_with_one_replica_in_the_middle(engine: str, tmp_path: Path) -> None:
    """All operators take 9 ms for a row, so 8 slots sustain at most 889 rows/s; the single replica sustains 1,000."""
    flow, rows = started("single")
    before = rows.stateless("before", lambda frame: frame)
    single = before.global_state("one", lambda frame: frame)
    single.keyed("after", lambda frame: frame, keys=["k"]).sink("out", penstock.noop())
    costs = {"before": takes(4e-3), "one": takes(1e-3), "after": takes(4e-3)}
    result = profile_of(flow, costs, engine, tmp_path)
    assert result.meets_target
    assert {row.plan.replicas["one"] for row in result.rounds} == {1}
    assert (0.93 if engine == "row-by-row" else 0.6) * 889 <= result.rows_per_s <= 1.02 * 889


@both_engines
def test_a_filter_that_drops_all_rows(engine: str, tmp_path: Path) -> None:
    """No row shows a latency at a sink: it follows from Little's law. The filter sustains at most 4,000 rows/s."""
    flow, rows = started("dropped")
    kept = rows.keyed("filter", lambda frame: frame, keys=["n"])
    kept.keyed("rest", lambda frame: frame, keys=["k"]).sink("out", penstock.noop())
    costs = {"filter": takes(2e-3, selectivity=Fixed(value=0.0)), "rest": takes(2e-3)}
    result = profile_of(flow, costs, engine, tmp_path)
    assert result.meets_target and result.latency_s > 0.0
    assert 0.7 * 4000 <= result.rows_per_s <= 1.02 * 4000


@both_engines
def test_periodic_output_keeps_few_tasks_behind_it(engine: str, tmp_path: Path) -> None:
    flow, rows = started("periodic")
    counted = rows.keyed("count", lambda frame: frame, keys=["n"])
    counted.keyed("write", lambda frame: frame, keys=["k"]).sink("out", penstock.noop())
    costs = {"count": takes(1e-3, period_s=5.0, selectivity=Fixed(value=200.0)), "write": takes(2e-3)}
    result = profile_of(flow, costs, engine, tmp_path)
    assert {operator.operator: operator.type for operator in result.operators}["count"] == "logic-dependent"
    behind = {row.plan.replicas["write"] for row in result.rounds}
    assert behind == {1} if engine == "row-by-row" else max(behind) <= SLOTS
    assert result.rows_per_s > 0.6 * 8000
