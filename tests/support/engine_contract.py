"""The contract of engines as checks.

`DECIDING_CHECKS` hold for every engine, also for one that Penstock does not start. `CHECKS` hold for engines that run a
dataflow; they take a `Subject`, which knows how to create an engine and how to let time pass.

Each check has its own engine on one small dataflow, in which every row goes through every operator:
numbers -> double -> count -> out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.ports import Engine, RunnableEngine
from penstock.measure.window import Window
from penstock.plan import Plan

ROWS = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One kind of engine. `flow` creates the small dataflow with a number of rows and a rate."""

    flow: Callable[[int, float], Dataflow]
    engine: Callable[[Dataflow], RunnableEngine]  # creates an engine that is not started
    pass_time: Callable[[RunnableEngine], None]  # lets a short time pass
    delivered: Callable[[RunnableEngine], int]  # rows that reached the sink
    patience: int = 2_000  # calls of `pass_time` before a check fails

    def wait(self, engine: RunnableEngine, condition: Callable[[], bool]) -> None:
        for _ in range(self.patience):
            assert engine.failure() is None
            if condition():
                return
            self.pass_time(engine)
        raise AssertionError("what was waited for did not happen")


def check_windows_meet_and_list_every_operator(engine: Engine, pass_time: Callable[[], None]) -> None:
    windows = [engine.observe()]
    for _ in range(3):
        pass_time()
        windows.append(engine.observe())
    names = [operator.name for operator in engine.flow.operators]
    for before, window in pairwise(windows):
        assert window.start_s == pytest.approx(before.end_s, abs=0.002) and window.end_s > window.start_s
        assert [operator.operator for operator in window.operators] == names
        assert all((operator.backlog_rows or 0) >= 0 for operator in window.operators)


def check_a_plan_of_another_dataflow_changes_nothing(engine: Engine, pass_time: Callable[[], None]) -> None:
    before = engine.plan
    with pytest.raises(penstock.PenstockError):
        engine.apply(before.replace(dataflow="another"))
    assert engine.plan == before
    pass_time()
    assert engine.observe().end_s > 0


DECIDING_CHECKS: tuple[Callable[[Engine, Callable[[], None]], None], ...] = (
    check_windows_meet_and_list_every_operator,
    check_a_plan_of_another_dataflow_changes_nothing,
)


def check_everything_that_deciding_needs(subject: Subject) -> None:
    engine = subject.engine(subject.flow(ROWS, 500.0))
    engine.start()
    try:
        for check in DECIDING_CHECKS:
            check(engine, lambda: subject.pass_time(engine))
    finally:
        engine.stop()


def rows_read(window: Window) -> int:
    return window.operator("numbers").rows_in_total or 0


def reads_on(subject: Subject, engine: RunnableEngine) -> Window:
    """Wait until more rows have reached the sink, or all rows have."""
    seen = [engine.observe()]
    before = rows_read(seen[0])

    def more() -> bool:
        seen.append(engine.observe())
        return rows_read(seen[-1]) > before or engine.idle()

    subject.wait(engine, more)
    return seen[-1]


def check_nothing_can_be_asked_before_the_start(subject: Subject) -> None:
    engine = subject.engine(subject.flow(ROWS, 500.0))
    with pytest.raises(penstock.PenstockError, match="start"):
        engine.observe()
    with pytest.raises(penstock.PenstockError, match="start"):
        engine.apply(penstock.default_plan(engine.flow))


def check_every_row_is_counted_once_and_windows_meet(subject: Subject) -> None:
    engine = subject.engine(subject.flow(ROWS, 500.0))
    engine.start()
    try:
        assert not engine.idle()
        windows = [engine.observe()]

        def at_rest() -> bool:
            windows.append(engine.observe())
            return engine.idle()

        subject.wait(engine, at_rest)
        windows.append(engine.observe())
    finally:
        engine.stop()
    names = [operator.name for operator in engine.flow.operators]
    for before, window in pairwise(windows):
        assert [operator.operator for operator in window.operators] == names
        assert window.start_s == pytest.approx(before.end_s, abs=0.002)  # a window lasts at least 1 ms
        assert window.end_s >= window.start_s
        assert window.generation == 1
    for name in names:
        of = [window.operator(name) for window in windows]
        assert sum(operator.rows_in or 0 for operator in of) == of[-1].rows_in_total == ROWS
        for operator in of:
            assert operator.backlog_rows is None or operator.backlog_rows >= 0
            assert operator.utilisation is None or operator.utilisation >= 0
    last = windows[-1]
    assert last.operator("numbers").replicas is None
    assert last.operator("count").replicas == engine.plan.replicas["count"]
    assert all(pipeline.backlog_rows in (0, None) for pipeline in last.pipelines)
    assert any(window.latency is not None and window.latency.mean_s >= 0 for window in windows)
    assert {name for pipeline in last.pipelines for name in pipeline.operators} == set(names)


def check_a_plan_is_changed_while_rows_flow(subject: Subject) -> None:
    engine = subject.engine(subject.flow(ROWS, 400.0))
    engine.start()
    try:
        reads_on(subject, engine)
        same = engine.apply(engine.plan)
        assert (same.stopped, same.pause_s, same.generation) == ((), 0.0, 1)
        generation = 1
        for replicas in ({"count": 3}, {"double": 3, "count": 1}):
            plan = penstock.rescaled(engine.flow, engine.plan, replicas)
            applied = engine.apply(plan)
            generation += 1
            assert applied.plan == engine.plan == plan
            assert applied.generation == generation
            assert applied.stopped and applied.pause_s >= 0
            assert all(name in applied.changed for name in replicas)
            window = reads_on(subject, engine)
            assert window.generation == generation
            assert window.operator("count").replicas == replicas["count"]
        subject.wait(engine, engine.idle)
        last = engine.observe()
        totals = [operator.rows_in_total for operator in last.operators]
        assert subject.delivered(engine) == ROWS
        assert all(total is not None and total <= ROWS for total in totals), totals
        assert totals == [ROWS] * 4
    finally:
        engine.stop()


def check_a_bad_plan_harms_nothing(subject: Subject) -> None:
    engine = subject.engine(subject.flow(ROWS, 500.0))
    engine.start()
    try:
        reads_on(subject, engine)
        before = engine.plan
        for bad in (
            before.replace(replicas={**before.replicas, "count": 0}),
            before.replace(cuts=frozenset({"nowhere"})),
            before.replace(dataflow="another"),
            Plan(dataflow=before.dataflow, replicas={}, slots=before.slots),
        ):
            with pytest.raises(penstock.PlanError):
                engine.apply(bad)
            assert engine.plan == before and engine.failure() is None
        subject.wait(engine, engine.idle)
        assert engine.observe().operator("out").rows_in_total == ROWS
    finally:
        engine.stop()


def check_the_rate_of_a_source_can_be_changed(subject: Subject) -> None:
    engine = subject.engine(subject.flow(ROWS, 5.0))
    engine.start()
    try:
        for source, rate in (("nowhere", 5.0), ("numbers", -1.0), ("numbers", float("nan"))):
            with pytest.raises(penstock.PenstockError):
                engine.set_rate(source, rate)
        assert not engine.idle()
        engine.set_rate("numbers", 5_000.0)  # at 5 rows/s it would take five minutes
        subject.wait(engine, engine.idle)
        assert engine.observe().operator("out").rows_in_total == ROWS
    finally:
        engine.stop()


CHECKS: tuple[Callable[[Subject], None], ...] = (
    check_everything_that_deciding_needs,
    check_nothing_can_be_asked_before_the_start,
    check_every_row_is_counted_once_and_windows_meet,
    check_a_plan_is_changed_while_rows_flow,
    check_a_bad_plan_harms_nothing,
    check_the_rate_of_a_source_can_be_changed,
)
