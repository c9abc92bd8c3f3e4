"""Capacity as far as the load has shown it: by hand, and followed on the simulated engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.control.policies.mst.observed import ObservedMst, capacities, with_window
from penstock.control.policy import Situation
from penstock.control.topology import Topology
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Fixed,
    OperatorBehaviour,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.engines.simulated.behaviour import ChangePause, SimulatedCluster
from penstock.measure.window import Estimate, OperatorWindow, PipelineWindow, Window
from penstock.plan import default_plan
from tests.support.applications import waiting
from tests.support.driving import drive


def test_capacity_is_learned_from_batches_of_different_sizes() -> None:
    # A batch takes 0.4 s and 5 ms a row on 2 executors: within 10 s it sustains (1 - 0.04) / 0.005 = 192 rows/s.
    memory: dict[str, float] = {}
    for rows in (20, 50, 80, 110):
        memory = with_window(memory, waiting(), batches_of("out", rows, row_s=0.005), 2, slots=2)
    learned = capacities(memory, 4, batch_most_s=10.0, running={"out"})
    assert learned is not None
    assert learned[1] == pytest.approx(192.0, rel=0.02)
    assert learned[0] == pytest.approx(96.0, rel=0.02)
    assert learned[1] < learned[2] < learned[3] < 2 * learned[1]
    assert capacities({}, 4, batch_most_s=10.0, running={"out"}) is None


@pytest.mark.parametrize("arriving", [0.0, 5.0, 3_000.0])
def test_capacity_is_of_what_is_taken_not_of_what_comes(arriving: float) -> None:
    memory = with_window({}, waiting(), batches_of("out", 100, row_s=0.005, arriving=arriving), 1, slots=2)
    learned = capacities(memory, 1, batch_most_s=10.0, running={"out"})
    assert learned is not None and learned[0] == pytest.approx(192.0)  # of 0.9 s the tasks took 0.5


def test_alike_batches_of_unknown_work_are_taken_to_be_half_of_it() -> None:
    window = batches_of("out", 100, row_s=0.005, timed=False)
    learned = capacities(with_window({}, waiting(), window, 1, slots=2), 1, batch_most_s=10.0, running={"out"})
    assert learned is not None and learned[0] == pytest.approx((1 - 0.45 / 10) / (0.45 / 100))


def test_fixed_cost_is_no_load() -> None:
    """All batches have 100 rows: 0.05 s for the rows, and 0.4 s of which 0.25 s is task time. No line is visible."""
    (query,) = batches_of("out", 100, row_s=0.0).pipelines
    window = batches_of("out", 100, row_s=0.0)
    fixed = Estimate(low=0.35, value=0.4, high=0.42)
    for known, expected in ((fixed, 0.96 / 0.0005), (None, (1 - 0.15 / 10) / 0.003)):
        seen = replace(query, batches=4, rows_in=400, batch_s=0.45, busy_s=4 * 0.3 * 2, fixed_s=known)
        memory = with_window({}, waiting(), replace(window, pipelines=(seen,)), 1, slots=2)
        known = capacities(memory, 1, batch_most_s=10.0, running={"out"})
        assert known is not None and known[0] == pytest.approx(expected)


def test_queries_share_the_slots() -> None:
    # Either of them would sustain 192 rows/s by itself; a row of each takes 5 ms of both slots.
    memory: dict[str, float] = {}
    for query in ("one", "other"):
        memory = with_window(memory, waiting(), batches_of(query, 100, row_s=0.005), 1, slots=2)
    learned = capacities(memory, 1, batch_most_s=10.0, running={"one", "other"})
    assert learned is not None and learned[0] == pytest.approx(100.0)


def test_queries_of_different_triggers_have_the_shares_that_they_read() -> None:
    """100 rows/s come to each of two queries: one reads them in every window of 10 s, the other in every sixth.

    The other takes 0.3 s and 6.5 ms a row for a batch: within 60 s it sustains (1 - 0.005) / 0.0065 of half of what
    comes, 306 rows/s, in whatever part of its minute it is first seen.
    """
    for first in (1, 2, 5):
        memory: dict[str, float] = {}
        for turn in range(first, 60):
            quick, slow = read_of("quick", 10, 1000, 0.11), read_of("slow", 1, 6000, 0.3 + 6000 * 0.0065)
            window = beside(quick, slow if turn % 6 == 0 else read_of("slow", 0, 0, None))
            memory = with_window(memory, waiting(), window, 1, slots=1)
            learned = capacities(memory, 1, batch_most_s=60.0, running={"slow"})
            assert (learned is None) == (turn < 12)  # since when its first batch waited is unknown
            assert learned is None or learned[0] == pytest.approx(2 * (1 - 0.3 / 60) / 0.0065, rel=0.02)
        gone = with_window(memory, waiting(), beside(read_of("quick", 10, 1000, 0.11)), 1, slots=1)
        assert not any(key.startswith("mst.since") for key in gone)


def read_of(query: str, batches: int, rows: int, batch_s: float | None) -> PipelineWindow:
    """All of a batch but 0.3 s is tasks' time, on one slot."""
    return PipelineWindow(
        pipeline=query,
        operators=("rows", "wait", "out"),
        batches=batches,
        rows_in=rows,
        batch_s=batch_s,
        batch_max_s=batch_s,
        phases_s={},
        busy_s=None if batch_s is None else batches * max(0.01, batch_s - 0.3),
        backlog_rows=0,
    )


def beside(*queries: PipelineWindow) -> Window:
    rows = sum(query.rows_in for query in queries)
    return Window(
        start_s=0.0,
        end_s=10.0,
        generation=1,
        external_rows_per_s=200.0,
        latency=None,
        pipelines=queries,
        operators=tuple(
            OperatorWindow.knowing(name, "queries", rows_in=rows, rows_in_total=rows, rows_out_total=rows)
            for name in ("rows", "wait")
        ),
    )


def test_what_a_larger_count_was_seen_to_sustain_is_more_than_fewer_do() -> None:
    """A query of one task, which no executors make faster: two of them are not taken to do more than three did."""
    memory: dict[str, float] = {}
    for rows in (20, 50, 80, 110):
        for executors in (1, 3):
            memory = with_window(memory, waiting(), batches_of("out", rows, row_s=0.005), executors, slots=2)
    learned = capacities(memory, 4, batch_most_s=10.0, running={"out"})
    assert learned is not None and learned[:3] == pytest.approx((192.0, 192.0, 192.0), rel=0.02)


def test_executors_speed_up_only_what_is_done_in_tasks() -> None:
    """On 2 executors a row takes 5 ms, of which all, half or none is the tasks'; 0.96 of the time is for rows.

    On one executor the tasks take twice as long, on four 2**0.9 times less.
    """
    for tasks_s in (0.005, 0.0025, 0.0):
        memory: dict[str, float] = {}
        for rows in (20, 50, 80, 110):
            window = batches_of("out", rows, row_s=0.005)
            (query,) = window.pipelines
            query = replace(query, busy_s=4 * rows * tasks_s * 2)
            memory = with_window(memory, waiting(), replace(window, pipelines=(query,)), 2, slots=2)
        learned = capacities(memory, 4, batch_most_s=10.0, running={"out"})
        driver_s = 0.005 - tasks_s
        wanted = [0.96 / (driver_s + 2 * tasks_s), 0.96 / 0.005, 0.96 / (driver_s + tasks_s / 2**0.9)]
        assert learned is not None and [learned[0], learned[1], learned[3]] == pytest.approx(wanted, rel=0.02)


def test_executors_of_another_size_are_learned_anew() -> None:
    """A program was on one executor of 2 slots, where a row took 50 ms. On one of 4 slots it takes 5 ms."""
    flow, memory = waiting(), dict[str, float]()
    for slots, row_s in ((2, 0.05), (4, 0.005)):
        for rows in (20, 50, 80, 110) * 10:
            situation = Situation(
                now_s=10.0,
                topology=Topology.of(flow),
                plan=default_plan(flow, slots=slots),
                window=batches_of("out", rows, row_s=row_s),
                latest=batches_of("out", rows, row_s=row_s),
                max_slots=2 * slots,
                micro_batch=True,
            )
            decision, after = ObservedMst(slots_per_executor=slots, max_executors=2).decide(situation, memory)
            memory = dict(after)
        assert decision.inputs["capacity_rows_per_s"] == pytest.approx(0.96 / row_s, rel=0.05)


@pytest.mark.parametrize("mode", ["micro-batch", "row-by-row", "fluid"])
@pytest.mark.parametrize(
    ("rate", "first", "least", "most"),
    [(50.0, 1, 1, 1), (90.0, 4, 1, 3), (330.0, 1, 4, 6)],
    ids=["steady and light", "too many", "too few"],
)
@pytest.mark.long
def test_a_steady_load_gets_what_it_needs(
    mode: str, rate: float, first: int, least: int, most: int, tmp_path: Path
) -> None:
    """An executor does 100 rows/s."""
    flow = waiting()
    behaviour = Behaviour(
        operators={"wait": OperatorBehaviour(service_s=Fixed(value=0.01))},
        sources={"rows": SourceBehaviour(rates=((0.0, rate),))},
        cluster=SimulatedCluster(slots_per_executor=1, max_executors=6, start_up_s=10.0),
        change=ChangePause(fixed_s=1.0),
    )
    engine = SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=first), mode=mode)
    policy = ObservedMst(slots_per_executor=1, max_executors=6)
    drive(tmp_path, engine, engine.clock, policy, windows=180, window_s=10.0, max_slots=6, micro_batch=mode[0] == "m")
    assert least <= engine.plan.slots <= most


def test_queries_that_have_ended_hold_nobody_back() -> None:
    memory: dict[str, float] = {}
    for rows in (20, 50, 80, 110):
        memory = with_window(memory, waiting(), batches_of("backfill", rows, row_s=0.05), 2, slots=2)
        memory = with_window(memory, waiting(), batches_of("out", rows, row_s=0.005), 2, slots=2)
    both = capacities(memory, 2, batch_most_s=10.0, running={"out", "backfill"})
    learned = capacities(memory, 2, batch_most_s=10.0, running={"out"})
    assert both is not None and learned is not None and both[1] == pytest.approx(1 / (0.05 + 0.005))
    assert learned[1] == pytest.approx(192.0, rel=0.02)
    for _ in range(400):
        memory = with_window(memory, waiting(), batches_of("out", 50, row_s=0.005), 2, slots=2)
    assert not any("backfill" in key for key in memory)


def batches_of(query: str, rows: int, *, row_s: float, arriving: float | None = None, timed: bool = True) -> Window:
    """Four batches of so many rows, at 0.4 s and so much a row of two slots."""
    seconds = 0.4 + row_s * rows
    pipeline = PipelineWindow(
        pipeline=query,
        operators=("rows", "wait", "out"),
        batches=4,
        rows_in=4 * rows,
        batch_s=seconds,
        batch_max_s=seconds,
        phases_s={},
        busy_s=8 * row_s * rows if timed else None,
        backlog_rows=0,
    )
    return Window(
        start_s=0.0,
        end_s=10.0,
        generation=1,
        external_rows_per_s=4 * rows / 10.0 if arriving is None else arriving,
        latency=None,
        pipelines=(pipeline,),
        operators=(
            OperatorWindow.knowing(
                "rows", query, rows_in=4 * rows, rows_in_total=4 * rows, rows_out_total=4 * rows, backlog_rows=0
            ),
            OperatorWindow.knowing("wait", query, rows_in=4 * rows, rows_in_total=4 * rows, rows_out_total=4 * rows),
        ),
    )


@pytest.mark.parametrize("arriving", [80.0, 450.0], ids=["within it", "above it"])
def test_capacity_row_by_row_is_of_what_was_processed_not_of_what_came(arriving: float) -> None:
    # A row takes 10 ms of the one replica of 'wait': 100 rows/s, however many are passed into its queue.
    done = round(10 * min(arriving, 100.0))
    came = round(10 * arriving)
    pipeline = PipelineWindow(
        pipeline="out",
        operators=("rows", "wait", "out"),
        batches=0,
        rows_in=came,
        batch_s=None,
        batch_max_s=None,
        phases_s={},
        busy_s=done * 0.01,
        backlog_rows=came - done,
    )
    window = Window(
        start_s=0.0,
        end_s=10.0,
        generation=1,
        external_rows_per_s=arriving,
        latency=None,
        pipelines=(pipeline,),
        operators=(
            OperatorWindow.knowing("rows", "out", rows_in=came, rows_in_total=came, rows_out_total=came),
            OperatorWindow.knowing(
                "wait", "out", rows_in=done, rows_in_total=done, rows_out_total=done, utilisation=done * 0.01 / 10
            ),
        ),
    )
    learned = capacities(with_window({}, waiting(), window, 2, slots=2), 2, batch_most_s=None, running={"out"})
    assert learned is not None and learned[1] == pytest.approx(100.0)


def test_a_step_and_back_leaves_no_executors_too_few(tmp_path: Path) -> None:
    """An executor does 100 rows/s: 450 take five of them, and as long as they come there are not fewer."""
    flow = waiting()
    behaviour = Behaviour(
        operators={"wait": OperatorBehaviour(service_s=Fixed(value=0.01))},
        sources={"rows": SourceBehaviour(rates=((0.0, 80.0), (600.0, 450.0), (1500.0, 80.0)))},
        cluster=SimulatedCluster(slots_per_executor=1, max_executors=6, start_up_s=10.0),
        change=ChangePause(fixed_s=1.0),
    )
    engine = SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=1), mode="row-by-row")
    policy = ObservedMst(slots_per_executor=1, max_executors=6)
    rows = drive(tmp_path, engine, engine.clock, policy, windows=240, window_s=10.0, max_slots=6)
    changes = [row for row in rows if row.new is not None]
    began_s = rows[0].at_s - 10.0
    released = [row for row in changes if row.new is not None and row.new.slots < row.old.slots]
    assert released and all(row.at_s - began_s > 1500.0 for row in released if row.new and row.new.slots < 5)
    assert engine.plan.slots == 1
    believed = [
        row.inputs["capacity_rows_per_s"] / row.old.slots for row in rows if "capacity_rows_per_s" in row.inputs
    ]  # type: ignore[operator]
    assert max(believed) < 110.0


def test_a_load_at_the_edge_of_an_executor_is_not_followed_up_and_down(tmp_path: Path) -> None:
    """An executor does 100 rows/s, and 100 come: two are had, and kept."""
    flow = waiting()
    behaviour = Behaviour(
        operators={"wait": OperatorBehaviour(service_s=Exponential(mean=0.01))},
        sources={"rows": SourceBehaviour(rates=((0.0, 100.0),))},
        cluster=SimulatedCluster(slots_per_executor=1, max_executors=6, start_up_s=10.0),
        change=ChangePause(fixed_s=1.0),
    )
    engine = SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=1), mode="row-by-row")
    policy = ObservedMst(slots_per_executor=1, max_executors=6)
    rows = drive(tmp_path, engine, engine.clock, policy, windows=300, window_s=10.0, max_slots=6)
    assert engine.plan.slots == 2
    assert len([row for row in rows if row.new is not None]) == 1
