"""Preloaded sources on the simulated engine: they are read repeatedly until the rate has converged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from penstock.dataflow import Dataflow, Kind, PenstockError
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.plan import Plan
from penstock.study.mst.design import plan_for
from penstock.study.mst.samples import Saturation
from penstock.study.mst.saturated import measure_saturated
from tests.support.trial_clock import SLOTS_EACH, WAIT_S, Time


class Preloaded(SimulatedEngine):
    """The sources have no rate: all rows are available from the start."""

    def set_rate(self, source: str, rows_per_s: float) -> None:
        raise PenstockError(f"'{source}' has no rate")


def few(rows: int | None, rows_per_s: float = 1e6) -> Dataflow:
    flow = penstock.Dataflow("few")
    stream = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=rows_per_s, rows=rows))
    stream.stateless("wait", lambda frame: frame).sink("out", penstock.noop())
    return flow


def readings_of(
    flow: Dataflow,
    plan: Plan | None = None,
    *,
    max_rows: int = 400,
    kind: type[Preloaded] = Preloaded,
    mode: str = "micro-batch",
) -> tuple[Callable[[Plan | None], Preloaded], Time, list[Preloaded]]:
    """A row takes 20 ms; in micro-batch mode, batches have the given size."""
    clock, starts = Time(), list[Preloaded]()
    names = [operator.name for operator in flow.operators if operator.kind not in (Kind.SOURCE, Kind.SINK)]
    behaviour = Behaviour(
        operators={name: OperatorBehaviour(service_s=Fixed(value=WAIT_S)) for name in names},
        batch=SimulatedBatchCosts(batch_s=0.05, task_s=0.0, max_rows=max_rows),
    )

    def fresh(other: Plan | None) -> Preloaded:
        starts.append(kind(flow, behaviour, plan=other or plan or plan_for(flow, 1, SLOTS_EACH), mode=mode))
        clock.engine = starts[-1]
        return starts[-1]

    return fresh, clock, starts


@pytest.mark.parametrize("warm_up", [1, 3])
@pytest.mark.parametrize(("rows", "several"), [(1500, True), (1300, True), (500, False), (350, False)])
def test_preloaded_rows_are_read_until_their_rate_has_converged(rows: int, several: bool, warm_up: int) -> None:
    fresh, clock, starts = readings_of(few(rows))
    measured = measure_saturated(fresh, Saturation(window_s=5.0, warm_up=warm_up), clock)
    assert measured.rows_per_s == pytest.approx(SLOTS_EACH / WAIT_S, rel=0.03)
    assert measured.converged is several, measured.reason
    assert several or "each sample is one batch" in str(measured.reason)  # contains the start of a query
    assert len(starts) > 1  # 15 s give fewer than five windows


@pytest.mark.parametrize("mode", ["row-by-row", "micro-batch"])
def test_a_source_that_has_ended_is_not_waited_for(mode: str) -> None:
    fresh, clock, starts = readings_of(few(100), mode=mode)
    measured = measure_saturated(fresh, Saturation(window_s=5.0), clock)
    assert measured.rows_per_s is None and "ran out of rows; preload more rows" in str(measured.reason)
    assert sum(start.clock.time() for start in starts) <= 45.0  # each reading of 100 rows of 20 ms takes one second


@pytest.mark.parametrize("rows_per_s", [20.0, 60.0])
def test_rows_that_are_still_appended_to_a_topic_are_not_measured(rows_per_s: float) -> None:
    fresh, clock, _ = readings_of(few(None, rows_per_s), max_rows=100_000)
    measured = measure_saturated(fresh, Saturation(window_s=5.0), clock)
    assert measured.rows_per_s is None and "ran out of rows" in str(measured.reason), measured


@pytest.mark.parametrize("rows", [400, 1000, 1600, 2400, 3000, 20_000])
def test_a_query_with_the_slots_of_an_ended_one_is_not_measured(rows: int) -> None:
    """Two queries of 20 ms per row share two slots: 50 rows/s, and 100 rows/s for the last one alone."""
    flow = penstock.Dataflow("pair")
    stream = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint, m bigint", rows_per_s=1e6, rows=rows))
    first = stream.keyed("one", lambda frame: frame, keys=["n"], columns=["n", "m"])
    first.keyed("two", lambda frame: frame, keys=["m"], columns=["n", "m"]).sink("out", penstock.noop())
    plan = Plan(dataflow="pair", cuts=frozenset({"one"}), replicas={"one": 2, "two": 2}, slots=2)
    fresh, clock, _ = readings_of(flow, plan, max_rows=800)
    measured = measure_saturated(fresh, Saturation(window_s=5.0), clock)
    assert measured.rows_per_s == (pytest.approx(50.0, rel=0.03) if rows >= 3000 else None), measured


class LosingSlots(Preloaded):
    """The first reading continues with half of its slots, as after the permanent loss of an executor."""

    lost = False

    def recover(self) -> tuple[str, ...]:
        if not LosingSlots.lost and self.clock.time() > 3.0:
            LosingSlots.lost = True
            self.apply(self.plan.replace(slots=self.plan.slots // 2, replicas={"wait": self.plan.slots // 2}))
        return ()


def test_a_reading_that_lost_executors_does_not_count() -> None:
    LosingSlots.lost = False
    flow = few(3600)
    fresh, clock, starts = readings_of(flow, plan_for(flow, 2, SLOTS_EACH), kind=LosingSlots)
    measured = measure_saturated(fresh, Saturation(window_s=5.0), clock)
    assert measured.converged and measured.rows_per_s == pytest.approx(2 * SLOTS_EACH / WAIT_S, rel=0.05)
    assert starts[0].plan.slots == SLOTS_EACH and len(starts) > 1
