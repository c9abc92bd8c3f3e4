"""The contract of a store's views: the writer and every kind of reader return the same rows in the same order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from penstock.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import DecisionRecord, ErrorRecord, PlanChange, RunStart, Store, StoreReader, Trial
from tests.support.sample_windows import window

PLAN = Plan(dataflow="wordcount", replicas={"split": 1, "count": 2}, slots=2)
LARGER = PLAN.replace(replicas={"split": 1, "count": 4})
RUN = RunStart(dataflow="wordcount", flow_file="wordcount.py", pid=1, master="local[2]", started_s=1000.0)
ERRORS = [ErrorRecord(at_s=float(n), where="observe", message=f"error {n}", traceback=None) for n in range(3)]
TRIALS = [
    Trial(study="mst", executors=n, repeat=0, plan=PLAN, began_s=0.0, ended_s=9.0, rows_per_s=100.0 * n, samples=(1.0,))
    for n in (1, 2)
]
CHANGES = [
    PlanChange(at_s=1001.0, asked="rescale count=4", outcome="ok", reason="", old=PLAN, new=LARGER, pause_s=0.5),
    PlanChange(
        at_s=1002.0, asked="rescale count=2", outcome="rolled back", reason="", old=LARGER, new=PLAN, pause_s=0.5
    ),
]


def decision(number: int, **changes: object) -> DecisionRecord:
    record = DecisionRecord(
        at_s=1000.0 + number,
        window=number,
        policy="drs",
        mode="active",
        kind="change",
        reason_code="shortage",
        reason="The latency is above the target.",
        inputs={"external_rows_per_s": 10.0, "unknown": None},
        binding="split",
        alternatives=(),
        needs_slots=None,
        old=PLAN,
        new=LARGER,
        before=PlanOutcome(slots=1, latency_s=2.0),
        expected=PlanOutcome(slots=2, latency_s=1.0),
        applied="begun",
    )
    return msgspec.structs.replace(record, **changes)


DECISIONS = [
    decision(0, applied="ok", observed=PlanOutcome(slots=2, latency_s=1.1), verdict="kept"),
    decision(1, kind="hold", new=None, expected=None, applied=None, memory={"learned": 1.0}),
    decision(2, policy="mst", applied="recommended"),
]


def write(store: Store) -> None:
    store.begin_run(RUN)
    store.run_started(PLAN)
    for number in range(5):
        store.add_window(window(number))
    first = store.add_decision(decision(0))
    for row in DECISIONS[1:]:
        store.add_decision(row)
    store.update_decision(first, DECISIONS[0])
    for change in CHANGES:
        store.add_plan_change(change)
    for error in ERRORS:
        store.add_error(error)
    for trial in TRIALS:
        store.add_trial(trial)


View = Callable[[Path, ExitStack, Callable[[Store], None]], StoreReader]  # (directory, resources, writes the rows)


def writer(at: Path, resources: ExitStack, fill: Callable[[Store], None]) -> StoreReader:
    store = resources.enter_context(Store(at))
    fill(store)
    return store


def writer_that_resumed(at: Path, resources: ExitStack, fill: Callable[[Store], None]) -> StoreReader:
    with Store(at) as store:
        fill(store)
    return resources.enter_context(Store(at))


def reader_opened_before(at: Path, resources: ExitStack, fill: Callable[[Store], None]) -> StoreReader:
    store = resources.enter_context(Store(at))
    reader = resources.enter_context(StoreReader(at))
    fill(store)
    return reader


def reader_beside_the_writer(at: Path, resources: ExitStack, fill: Callable[[Store], None]) -> StoreReader:
    fill(resources.enter_context(Store(at)))
    return resources.enter_context(StoreReader(at))


def reader_after_the_writer(at: Path, resources: ExitStack, fill: Callable[[Store], None]) -> StoreReader:
    with Store(at) as store:
        fill(store)
    return resources.enter_context(StoreReader(at))


def reader_of_a_copy(at: Path, resources: ExitStack, fill: Callable[[Store], None]) -> StoreReader:
    with Store(at) as store:
        fill(store)
    copy = Path(shutil.copytree(at, at.with_name("copy")))
    return resources.enter_context(StoreReader(copy))


VIEWS: list[View] = [
    writer,
    writer_that_resumed,
    reader_opened_before,
    reader_beside_the_writer,
    reader_after_the_writer,
    reader_of_a_copy,
]


@pytest.fixture(params=VIEWS)
def open_view(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[Callable[[Store], None]], StoreReader]]:
    with ExitStack() as resources:
        yield lambda fill: request.param(tmp_path / "run", resources, fill)


@pytest.fixture
def view(open_view: Callable[[Callable[[Store], None]], StoreReader]) -> StoreReader:
    return open_view(write)


def test_rows_return_as_they_were_written_oldest_first(view: StoreReader) -> None:
    assert view.windows() == list(enumerate(map(window, range(5)), start=1))
    assert view.decisions() == list(enumerate(DECISIONS, start=1))
    assert view.plan_changes() == CHANGES
    assert view.errors() == ERRORS
    assert view.trials() == TRIALS


def test_iterators_return_the_same_rows(view: StoreReader) -> None:
    assert list(view.iter_windows()) == view.windows()
    assert list(view.iter_decisions()) == view.decisions()
    assert [error for _, error in view.iter_errors()] == view.errors()


@pytest.mark.parametrize(("after", "last"), [(0, 2), (3, None), (3, 1), (1, 9), (5, None), (0, 0)])
def test_a_part_of_the_rows_is_selected_by_number(view: StoreReader, after: int, last: int | None) -> None:
    def part(rows: list[tuple[int, object]]) -> list[tuple[int, object]]:
        rows = [row for row in rows if row[0] > after]
        return rows if last is None else rows[len(rows) - min(last, len(rows)) :]

    assert view.windows(after=after, last=last) == part(view.windows())
    assert view.decisions(after=after, last=last) == part(view.decisions())


def test_the_last_errors_and_plan_changes(view: StoreReader) -> None:
    assert view.errors(last=2) == ERRORS[1:]
    assert view.plan_changes(last=1) == CHANGES[1:]


def test_decisions_are_found_by_policy_and_by_their_effect(view: StoreReader) -> None:
    assert [row for _, row in view.applied_changes()] == DECISIONS[:1]
    assert (view.last_decision("drs"), view.last_decision("mst")) == (DECISIONS[1], DECISIONS[2])
    assert view.last_decision("ds2") is None


def test_the_plan_in_force_is_that_of_the_last_successful_change(view: StoreReader) -> None:
    assert view.plan() == LARGER
    (run,) = view.runs()
    assert run == view.last_run() and run.plan == PLAN


def test_a_new_store_is_empty(open_view: Callable[[Callable[[Store], None]], StoreReader]) -> None:
    view = open_view(lambda _: None)
    tables = [view.windows(), view.decisions(), view.plan_changes(), view.errors(), view.trials(), view.runs()]
    assert tables == [[]] * 6
    assert [*view.iter_windows(), *view.iter_decisions(), *view.iter_errors(), *view.applied_changes()] == []
    assert (view.plan(), view.last_run(), view.last_decision("drs")) == (None, None, None)
