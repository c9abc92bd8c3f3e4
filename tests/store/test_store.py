from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from penstock.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import (
    DecisionRecord,
    ErrorRecord,
    InvalidRecordError,
    PlanChange,
    RunStart,
    Store,
    StoreError,
    StoreReader,
)
from tests.support.sample_windows import window

PLAN = Plan(dataflow="wordcount", cuts=frozenset({"split"}), replicas={"split": 1, "count": 2}, slots=2)
RUN = RunStart(dataflow="wordcount", flow_file="wordcount.py", pid=1, master="local[2]", started_s=1000.0)


def change(at_s: float, *, count: int, outcome: str = "ok") -> PlanChange:
    new = PLAN.replace(replicas={"split": 1, "count": count})
    return PlanChange(
        at_s=at_s, asked=f"rescale count={count}", outcome=outcome, reason="", old=PLAN, new=new, pause_s=0.5
    )  # type: ignore[arg-type]


def test_everything_comes_back_as_it_was_written(tmp_path: Path) -> None:
    error = ErrorRecord(at_s=3.0, where="observe", message="no metrics", traceback="Traceback ...")
    with Store(tmp_path) as store:
        store.begin_run(RUN)
        store.run_started(PLAN)
        numbers = [store.add_window(window(number)) for number in range(3)]
        store.add_plan_change(change(1001.0, count=4))
        store.add_error(error)
        store.end_run(at_s=1010.0, reason="asked to stop")
    with StoreReader(tmp_path) as reader:
        assert reader.windows() == list(zip(numbers, map(window, range(3)), strict=True))
        assert reader.windows(last=1) == [(numbers[2], window(2))]
        assert reader.windows(after=numbers[1]) == [(numbers[2], window(2))]
        assert reader.plan_changes() == [change(1001.0, count=4)]
        assert reader.errors() == [error]
        (run,) = reader.runs()
        assert (run.plan, run.stopped_s, run.stop_reason, run.pid) == (PLAN, 1010.0, "asked to stop", 1)


def test_the_plan_in_force_is_the_last_successful_one_since_the_start(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_run(RUN)
        assert store.plan() is None
        store.run_started(PLAN)
        assert store.plan() == PLAN
        store.add_plan_change(change(1001.0, count=4))
        store.add_plan_change(change(1002.0, count=9, outcome="rolled back"))
        assert store.plan() == change(0, count=4).new
        store.begin_run(msgspec.structs.replace(RUN, started_s=2000.0))
        store.run_started(PLAN)
        assert store.plan() == PLAN


def test_readers_read_while_the_writer_writes(tmp_path: Path) -> None:
    with Store(tmp_path) as store, StoreReader(tmp_path) as first, StoreReader(tmp_path) as second:
        for number in range(20):
            store.add_window(window(number))
            assert len(first.windows()) == len(second.windows()) == number + 1


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    code = "import sys, penstock.store as s; s.Store(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match=rf"Process {process.pid} is running in .*one run at a time. Stop it with"):
            Store(tmp_path)
        process.communicate(b"")
    Store(tmp_path).close()
    with Store(tmp_path), pytest.raises(StoreError, match="is running in"):
        Store(tmp_path)


WRITER = """
import itertools, sys
from tests.support.sample_windows import window
from penstock.store import Store
store = Store(sys.argv[1])
for number in itertools.count():
    store.add_window(window(number))
    if number == 50:
        print("writing", flush=True)
"""


def test_kill_9_while_writing_leaves_a_consistent_prefix(tmp_path: Path) -> None:
    written = 0
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stdout.readline() == b"writing\n"
        with StoreReader(tmp_path) as live:
            assert len(live.windows()) >= written + 51
        time.sleep(0.01 * turn)
        process.kill()
        process.communicate()
        with StoreReader(tmp_path) as reader:
            kept = reader.windows()
        assert [number for number, _ in kept] == list(range(1, len(kept) + 1))
        assert [kept_window for _, kept_window in kept[written:]] == [
            window(number) for number in range(len(kept) - written)
        ]
        assert len(kept) >= written + 51
        written = len(kept)


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no run in .*start one with 'penstock run FILE --at"):
        StoreReader(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("open_it", [Store, StoreReader])
def test_not_a_database(tmp_path: Path, open_it: type[StoreReader]) -> None:
    file = tmp_path / "store.sqlite"
    file.write_text("dear diary " * 1000)
    with pytest.raises(StoreError, match=r"corrupt or is not a Penstock store .* move it away"):
        open_it(tmp_path)
    assert file.read_text() == "dear diary " * 1000


@pytest.mark.parametrize("open_it", [Store, StoreReader])
def test_a_database_of_another_program_is_refused(tmp_path: Path, open_it: type[StoreReader]) -> None:
    with sqlite3.connect(tmp_path / "store.sqlite") as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match="is a SQLite file but not a Penstock store"):
        open_it(tmp_path)


@pytest.mark.parametrize("open_it", [Store, StoreReader])
def test_another_schema_version(tmp_path: Path, open_it: type[StoreReader]) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "store.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="has schema version 99, but this Penstock requires 5"):
        open_it(tmp_path)


def test_damaged_pages(tmp_path: Path) -> None:
    with Store(tmp_path / "a") as store:
        for number in range(200):
            store.add_window(window(number))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    file = tmp_path / "b" / "store.sqlite"
    content = bytearray(file.read_bytes())
    content[8192 : len(content) - 4096] = b"\xa5" * (len(content) - 4096 - 8192)
    file.write_bytes(content)
    with pytest.raises(StoreError, match="corrupt"):
        Store(tmp_path / "b")
    with StoreReader(tmp_path / "b") as reader, pytest.raises(StoreError, match="corrupt"):
        reader.windows()
    Store(tmp_path / "a").close()  # the original is fine, and a refused store is not left locked
    with pytest.raises(StoreError, match="corrupt"):
        Store(tmp_path / "b")


def test_a_creator_that_was_killed_before_it_created_the_tables(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite.new").write_bytes(b"SQLite format 3")
    with pytest.raises(StoreError, match="There is no run in"):
        StoreReader(tmp_path)
    with Store(tmp_path) as store:
        store.add_window(window())
    with StoreReader(tmp_path) as reader:
        assert len(reader.windows()) == 1


def test_a_reader_never_sees_a_store_without_tables(tmp_path: Path) -> None:
    """A reader polls while another thread creates stores: a store that exists can be read."""
    directories = [tmp_path / str(number) for number in range(30)]

    def create_all() -> None:
        for directory in directories:
            directory.mkdir()
            Store(directory).close()

    creator = threading.Thread(target=create_all)
    creator.start()
    for directory in directories:
        while not (directory / "store.sqlite").exists():
            assert creator.is_alive() or (directory / "store.sqlite").exists()
        with StoreReader(directory) as reader:
            assert reader.windows() == []
    creator.join()


def test_a_directory_belongs_to_one_dataflow(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_run(RUN)
        with pytest.raises(StoreError, match="holds a run of dataflow 'wordcount', not of 'finance'"):
            store.begin_run(msgspec.structs.replace(RUN, dataflow="finance"))


def test_a_directory_is_for_runs_or_for_a_study(tmp_path: Path) -> None:
    study = msgspec.structs.replace(RUN, kind="study")
    watched = msgspec.structs.replace(RUN, kind="watch")
    for first, then, message in [
        (RUN, study, "holds a run of dataflow 'wordcount', so it cannot hold a study; give another directory"),
        (study, RUN, "holds a study of dataflow 'wordcount', so it cannot hold a run; give another directory"),
        (watched, RUN, "holds a watched program of dataflow 'wordcount', so it cannot hold a run"),
    ]:
        at = tmp_path / f"{first.kind} {then.kind}"
        with Store(at) as store:
            store.begin_run(first)
            store.begin_run(first)  # resumed
            with pytest.raises(StoreError, match=message):
                store.begin_run(then)
            assert len(store.runs()) == 2


@pytest.mark.parametrize("other", [{"kind": "study"}, {"kind": "watch"}])
def test_a_writer_that_accepts_no_requests_is_stopped_with_a_signal(tmp_path: Path, other: dict[str, str]) -> None:
    with Store(tmp_path) as store:
        store.begin_run(msgspec.structs.replace(RUN, **other))
        with pytest.raises(StoreError) as refused:
            Store(tmp_path)
    assert f"Stop it with Ctrl-C in its terminal or with 'kill {os.getpid()}', or give another" in str(refused.value)
    assert "penstock stop" not in str(refused.value)


def test_nan_is_refused_when_written_not_when_read(tmp_path: Path) -> None:
    good = window()
    assert good.latency is not None
    bad = msgspec.structs.replace(good, latency=msgspec.structs.replace(good.latency, p95_s=float("nan")))
    with Store(tmp_path) as store:
        with pytest.raises(StoreError, match="None, not NaN"):
            store.add_window(bad)
        assert store.windows() == []


def test_ending_a_run_that_never_began(tmp_path: Path) -> None:
    with Store(tmp_path) as store, pytest.raises(StoreError, match="begin_run"):
        store.end_run(at_s=0.0, reason="")


def test_a_run_that_failed_before_the_loop_is_closed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Store(tmp_path) as store:
        store.begin_run(RUN)
        raise ZeroDivisionError  # for example because the engine could not be created
    with StoreReader(tmp_path) as reader:
        run = reader.last_run()
    assert run is not None and run.stop_reason == "an error before it started"


# ---- decisions


def decided(number: int = 0, **known: object) -> DecisionRecord:
    plan = Plan(dataflow="wordcount", replicas={"split": 1}, slots=4)
    return msgspec.structs.replace(
        DecisionRecord(
            at_s=1000.0 + number,
            window=number,
            policy="drs",
            mode="active",
            kind="change",
            reason_code="shortage",
            reason="too slow",
            inputs={"external_rows_per_s": 10.0, "unknown": None},
            binding="split",
            alternatives=(),
            needs_slots=None,
            old=plan,
            new=plan.replace(replicas={"split": 2}),
            before=PlanOutcome(slots=1, latency_s=2.0),
            expected=PlanOutcome(slots=2, latency_s=1.0),
            applied="begun",
        ),
        **known,
    )


def test_the_effect_of_a_decision_is_written_while_others_read(tmp_path: Path) -> None:
    with Store(tmp_path) as store, StoreReader(tmp_path) as reader:
        numbers = [store.add_decision(decided(number)) for number in range(3)]
        assert [row.at_s for _, row in reader.decisions()] == [1000.0, 1001.0, 1002.0]
        after = decided(1, applied="ok", observed=PlanOutcome(slots=2, latency_s=1.1), verdict="kept")
        store.update_decision(numbers[1], after)
        assert [row.verdict for _, row in reader.decisions()] == [None, "kept", None]
        assert reader.decisions(last=1) == [(numbers[2], decided(2))]
        assert reader.decisions(after=numbers[1]) == [(numbers[2], decided(2))]


def test_a_start_reads_only_the_required_rows_of_earlier_starts(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert (store.applied_changes(), store.last_decision("drs")) == ([], None)
        made = [
            decided(0, applied="ok"),
            decided(1, kind="hold", new=None, applied=None, memory={"learned": 1.0}),
            decided(2, applied="recommended"),
            decided(3, applied="failed"),
            decided(4, policy="mst", applied="recommended"),
        ]
        for decision in made:
            store.add_decision(decision)
        assert [row for _, row in store.applied_changes()] == [made[0], made[3]]
        assert (store.last_decision("drs"), store.last_decision("mst")) == (made[3], made[4])


def test_an_unreadable_decision_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(InvalidRecordError, match="Cannot store a decision"):
            store.add_decision(decided(memory={"learned": float("nan")}))
        assert store.decisions() == []
