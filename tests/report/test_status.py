"""The status of a run: its cost, the latest decision, and what the policy remembers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.main import cli
from penstock.store import RunStart, Store
from tests.support.sample_runs import START_S, changed, decided, plan, window_at

RUN = RunStart(
    dataflow="wordcount",
    flow_file="wc.py",
    pid=1,
    master="local[2]",
    started_s=START_S,
    price_per_slot_hour=0.9,
)


def record(at: Path, run: RunStart = RUN, **decision: object) -> None:
    """2 slots for 100 s, then 4 for 50 s: 400 slot-seconds."""
    with Store(at) as store:
        store.begin_run(run)
        store.run_started(plan(slots=2))
        store.add_window(window_at(0, window_s=150.0))
        _, change = changed(START_S + 100, "kept", count=4)
        store.add_plan_change(msgspec.structs.replace(change, new=plan(slots=4)))
        store.add_decision(decided(START_S + 150, **decision))
        store.end_run(at_s=START_S + 150, reason="asked to stop")


def printed(at: Path) -> str:
    result = CliRunner().invoke(cli, ["status", str(at)], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    return result.output


def test_the_cost_of_a_run_with_a_price(tmp_path: Path) -> None:
    record(tmp_path)
    status = penstock.open_run(tmp_path).status()
    assert status.slot_hours == pytest.approx(400 / 3600) and status.money == pytest.approx(0.1)
    assert "cost: 0.1 for 0.1111 slot-hours at 0.9 per slot and hour" in printed(tmp_path)
    cost = penstock.open_run(tmp_path).report_data().cost  # the report has the price of the run
    assert cost is not None and cost.money == pytest.approx(0.1)
    other = penstock.open_run(tmp_path).report_data(price_per_slot_hour=1.8).cost
    assert other is not None and other.money == pytest.approx(0.2)


def test_without_a_price_there_are_slot_hours_only(tmp_path: Path) -> None:
    record(tmp_path, msgspec.structs.replace(RUN, price_per_slot_hour=None))
    status = penstock.open_run(tmp_path).status()
    assert status.money is None and status.slot_hours == pytest.approx(400 / 3600)
    assert "cost:" not in printed(tmp_path)


def test_the_latest_decision_and_the_memory_of_the_policy(tmp_path: Path) -> None:
    learned = {
        "drs.correction": 1.23456,
        "drs.phase": "steady",
        "drs.levels": {"low": 1.0, "high": 2.0},
        "drs.text": "x" * 2000,
    }
    record(tmp_path, memory=learned)
    text = printed(tmp_path)
    assert "policy drs: hold, within-target: mean latency 0.5 s with 2 slots is within 0.4 to 1 s" in text
    assert (
        "policy drs remembers: drs.correction: 1.235, drs.levels: 2 entries, drs.phase: steady, drs.text: 2,000 "
        "characters" in text
    )


def test_a_price_that_is_no_amount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(penstock.OptionError, match=r"price_per_slot_hour is -1\.0; it must be a finite number"):
        penstock.run("flow.py", at=tmp_path, price_per_slot_hour=-1.0)
    refused = CliRunner().invoke(cli, ["run", "flow.py", "--price", "free"])
    assert refused.exit_code == 2 and "--price" in refused.output
