"""`penstock.simulate`: the same numbers as `penstock simulate`, as values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock


@pytest.fixture
def flow() -> penstock.Dataflow:
    dataflow = penstock.Dataflow("one")
    rows = dataflow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))
    rows.keyed("work", lambda df: df, keys=["n"]).sink("out", penstock.noop())
    return dataflow


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """30 minutes of 2 rows/s, 30 of 6 and 30 of 2; a replica serves 4 rows/s."""
    service = {"service_s": {"kind": "exponential", "mean": 0.25}}
    (tmp_path / "costs.json").write_text(json.dumps({"operators": {"work": service}}))
    rates = [2.0] * 30 + [6.0] * 30 + [2.0] * 30
    (tmp_path / "day.csv").write_text("\n".join(["time_s,rate", *(f"{60 * m},{r}" for m, r in enumerate(rates))]))
    return {"trace": tmp_path / "day.csv", "behaviour": tmp_path / "costs.json"}


def test_without_decisions_the_slots_are_those_of_the_plan(flow: penstock.Dataflow, inputs: dict[str, Path]) -> None:
    result = penstock.simulate(flow, policy="threshold", mode="off", slots=2, **inputs)
    assert result.totals.seconds == pytest.approx(90 * 60) and result.totals.changes == 0
    assert result.totals.slot_seconds == pytest.approx(2 * 90 * 60)
    assert len(result.decisions()) == 0


def test_decisions_of_a_policy(flow: penstock.Dataflow, inputs: dict[str, Path]) -> None:
    result = penstock.simulate(flow, policy="drs", latency_s=0.7, slots=2, **inputs)
    decisions = result.decisions()
    assert (decisions.kind == "change").sum() >= result.totals.changes == len(result.changes) > 0
    assert result.totals.violations is not None and result.totals.violations < result.totals.windows / 3
    assert repr(result).startswith("<Simulation of policy 'drs': 1.50 h, ")
    html = result._repr_html_()
    assert "<script" not in html and "2 -&gt; 1 replicas" in html


def test_no_plan_changes_in_quiet_hours(flow: penstock.Dataflow, inputs: dict[str, Path]) -> None:
    """The load triples after half an hour; a simulation begins at midnight in any time zone."""
    result = penstock.simulate(flow, policy="drs", latency_s=0.7, slots=2, quiet_hours="00:20-01:10", **inputs)
    quiet = (20 * 60, 70 * 60)
    assert result.totals.changes and not any(quiet[0] <= change.at_s < quiet[1] for change in result.changes)
    decisions = result.decisions()
    assert (decisions.reason_code == "quiet-hours").any()
    with pytest.raises(penstock.PenstockError, match="'all day' is not a span of hours"):
        penstock.simulate(flow, policy="drs", latency_s=0.7, quiet_hours="all day", **inputs)


@pytest.mark.long
def test_like_takes_a_record_or_a_directory(flow: penstock.Dataflow, inputs: dict[str, Path], tmp_path: Path) -> None:
    at = tmp_path / "run"
    penstock.simulate(flow, policy="threshold", mode="off", slots=4, at=at, **inputs)
    given = {"trace": inputs["trace"], "policy": "threshold", "mode": "off", "engine": "fluid"}
    by_record = penstock.simulate(flow, like=penstock.open_run(at), **given)  # type: ignore[arg-type]
    by_path = penstock.simulate(flow, like=at, **given)  # type: ignore[arg-type]
    assert by_record.totals == by_path.totals
    assert by_record.totals.slot_seconds == pytest.approx(4 * 90 * 60)  # the slots of the run


def test_the_peak_scales_the_load(flow: penstock.Dataflow, inputs: dict[str, Path], tmp_path: Path) -> None:
    penstock.simulate(flow, policy="threshold", mode="off", slots=4, peak=3.0, at=tmp_path / "run", **inputs)
    operators = penstock.open_run(tmp_path / "run").operators()
    rows = operators[operators.operator == "rows"].rows_in.sum()
    assert rows == pytest.approx(30 * 60 * (1 + 3 + 1), rel=0.05)  # a Poisson process of 9,000 rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"behaviour": None}, "give either behaviour"),
        ({"engine": "slow"}, "There is no engine 'slow'"),
        ({"max_slots": 9, "policy": "drs"}, "may use 9 slots, but there are 2"),
    ],
)
def test_options_that_do_not_fit(
    flow: penstock.Dataflow, inputs: dict[str, Path], options: dict[str, object], message: str
) -> None:
    with pytest.raises(penstock.OptionError, match=message):
        penstock.simulate(flow, **{"policy": "threshold", **inputs, **options})  # type: ignore[arg-type]
