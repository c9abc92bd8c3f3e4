"""`penstock simulate`: a policy on a simulated dataflow."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.store import StoreReader

FLOW = """
import penstock
flow = penstock.Dataflow("one")
rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))
rows.keyed("work", lambda df: df, keys=["n"]).sink("out", penstock.noop())
"""


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    """The load is 2 rows/s, 6 rows/s in the middle third, and 2 rows/s again; a replica serves 4 rows/s."""
    (tmp_path / "flow.py").write_text(FLOW)
    service = {"service_s": {"kind": "exponential", "mean": 0.25}}
    (tmp_path / "costs.json").write_text(json.dumps({"operators": {"work": service}}))
    rates = [2.0] * 30 + [6.0] * 30 + [2.0] * 30
    lines = [f"{minute * 60},{rate}" for minute, rate in enumerate(rates)]
    (tmp_path / "trace.csv").write_text("\n".join(["time_s,rate", *lines]))
    return ["simulate", f"{tmp_path}/flow.py", "--trace", f"{tmp_path}/trace.csv"]


def printed(*words: str, fails: bool = False) -> str:
    result = CliRunner().invoke(cli, list(words))
    assert (result.exit_code != 0) is fails, result.output
    return result.output + ("" if result.exception is None or not fails else str(result.exception))


def test_drs_follows_the_steps_of_a_trace(given: list[str], tmp_path: Path) -> None:
    at = tmp_path / "run"
    costs = ["--behaviour", f"{tmp_path}/costs.json", "--slots", "2", "--at", str(at)]
    sums = json.loads(printed(*given, *costs, "--policy", "drs", "--latency-ms", "700", "--json"))
    assert sums["seconds"] == pytest.approx(90 * 60, rel=0.01)
    with StoreReader(at) as store:
        plans = [
            (row.at_s, row.new.replicas["work"]) for _, row in store.decisions() if row.new and row.applied == "ok"
        ]
    # 6 rows/s need at least two replicas. The latency of 2 rows/s on one replica is 0.5 s (1 / (4 - 2)).
    steps = [replicas for at_s, replicas in plans if 30 * 60 < at_s < 60 * 60]
    assert steps and steps[-1] >= 2 and plans[-1][1] < max(steps)
    assert sums["slot_seconds"] < 90 * 60 * max(steps)
    assert sums["violations"] < sums["windows"] / 3
    again = printed(*given, *costs, "--policy", "drs", "--latency-ms", "700", fails=True)
    assert f"'{at}' already contains a run" in again


def test_quiet_hours_of_a_simulation(given: list[str], tmp_path: Path) -> None:
    words = [*given, "--behaviour", f"{tmp_path}/costs.json", "--slots", "2", "--policy", "drs", "--latency-ms", "700"]
    assert json.loads(printed(*words, "--quiet-hours", "00:00-23:59", "--json"))["changes"] == 0
    assert json.loads(printed(*words, "--quiet-hours", "02:00-03:00", "--json"))["changes"] > 0


@pytest.mark.parametrize("engine", ["row-by-row", "micro-batch"])
def test_organic_follows_the_steps_of_a_trace_in_both_directions(engine: str, given: list[str], tmp_path: Path) -> None:
    """At ten times the rate and speed, 60 rows/s need two replicas of 40 rows/s, and 20 rows/s need one."""
    service = {"service_s": {"kind": "exponential", "mean": 0.025}}
    (tmp_path / "costs.json").write_text(json.dumps({"operators": {"work": service}}))
    at = tmp_path / "run"
    words = ["--peak", "60", "--behaviour", f"{tmp_path}/costs.json", "--slots", "4", "--engine", engine]
    printed(*given, *words, "--policy", "organic", "--stable-periods", "2", "--at", str(at))
    with StoreReader(at) as store:
        applied = [row for _, row in store.decisions() if row.new is not None and row.applied == "ok"]
    kept = [row.new.replicas["work"] for row in applied if row.new is not None and row.verdict == "kept"]
    assert kept[0] == 1 and max(kept[1:]) >= 2 and kept[-1] == 1
    assert all(row.verdict is not None for row in applied)


def test_adaptation_parameters_are_for_organic_only(given: list[str], tmp_path: Path) -> None:
    words = ["--behaviour", f"{tmp_path}/costs.json", "--policy", "ds2", "--split-gain", "0.3"]
    assert "'ds2' has no adaptation parameters; use policy 'organic'" in printed(*given, *words, fails=True)


@pytest.mark.parametrize("every", ["10", "35"])
def test_a_simulation_ends_with_its_trace_for_any_duration_of_changes(
    every: str, given: list[str], tmp_path: Path
) -> None:
    costs = json.loads((tmp_path / "costs.json").read_text()) | {"change": {"fixed_s": 47.0}}
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    words = [*given, "--behaviour", f"{tmp_path}/costs.json", "--slots", "2", "--window-s", every, "--json"]
    sums = json.loads(printed(*words, "--policy", "drs", "--latency-ms", "700"))
    assert sums["changes"] >= 2 and sums["pause_s"] >= 2 * 47.0
    assert sums["seconds"] == pytest.approx(90 * 60)


def test_a_rate_equal_to_the_capacity_gets_one_more_replica(given: list[str], tmp_path: Path) -> None:
    """At 158 rows/s, two replicas of 80 rows/s are busy for 99 % of the time, and no target is met for long."""
    (tmp_path / "costs.json").write_text((tmp_path / "costs.json").read_text().replace("0.25", "0.0125"))
    (tmp_path / "trace.csv").write_text("time_s,rate\n0,158\n1200,158\n")
    words = ["--behaviour", f"{tmp_path}/costs.json", "--slots", "4", "--at", f"{tmp_path}/run", "--json"]
    sums = json.loads(printed(*given, *words, "--policy", "drs", "--latency-ms", "500"))
    assert sums["rolled_back"] == 0 and sums["violations"] == 0
    with StoreReader(tmp_path / "run") as store:
        made = [row.new.replicas["work"] for _, row in store.decisions() if row.new and row.applied == "ok"]
    assert made[-1] == 3


def test_a_source_follows_its_trace_to_the_end_however_many_rows_it_declares(given: list[str], tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.replace("rows_per_s=1", "rows=100, rows_per_s=1"))
    at = tmp_path / "run"
    words = ["--behaviour", f"{tmp_path}/costs.json", "--slots", "2", "--policy", "threshold", "--at", str(at)]
    printed(*given, *words, "--json")
    with StoreReader(at) as store:
        ((_, last),) = store.windows(last=1)
    assert last.operator("rows").rows_in_total == pytest.approx(30 * 60 * (2 + 6 + 2), rel=0.05)


def test_operators_cost_what_a_run_measured_also_where_it_ended_without_rows(given: list[str], tmp_path: Path) -> None:
    at, again = tmp_path / "run", tmp_path / "again"
    lines = (tmp_path / "trace.csv").read_text().splitlines()
    (tmp_path / "ends.csv").write_text("\n".join([*lines, "5400,0", "5460,0"]))
    words = ["--slots", "2", "--policy", "threshold", "--json"]
    measured = [*given[:-1], f"{tmp_path}/ends.csv", "--behaviour", f"{tmp_path}/costs.json", "--at", str(at)]
    printed(*measured, *words)
    printed(*given, "--like", str(at), *words, "--at", str(again))
    with StoreReader(again) as store:
        work = [window.operator("work") for _, window in store.windows()]
    rows = sum(operator.rows_in or 0 for operator in work)
    # The mean of about 200 exponential times has a standard error of 7 %.
    assert sum(
        (operator.rows_in or 0) * (operator.seconds_per_row or 0.0) for operator in work
    ) / rows == pytest.approx(0.25, rel=0.2)


def test_a_run_of_another_dataflow_is_refused_as_a_calibration(given: list[str], tmp_path: Path) -> None:
    words = ["--slots", "2", "--policy", "threshold"]
    printed(*given, "--behaviour", f"{tmp_path}/costs.json", *words, "--at", f"{tmp_path}/run")
    (tmp_path / "flow.py").write_text(FLOW.replace('"work"', '"other"'))
    assert "has no operator 'other'" in printed(*given, "--like", f"{tmp_path}/run", *words, fails=True)


@pytest.mark.long
def test_violations_are_of_the_quantile_and_slots_are_those_there_are(given: list[str], tmp_path: Path) -> None:
    costs = ["--behaviour", f"{tmp_path}/costs.json", "--slots", "2", "--mode", "recommend", "--json"]
    words = [*given, *costs, "--policy", "drs", "--latency-ms", "700"]
    mean, p99 = (json.loads(printed(*words, *more)) for more in ((), ("--quantile", "0.99")))
    assert mean["violations"] < p99["violations"]
    assert mean["slot_seconds"] <= 2 * mean["seconds"] * 1.001 and mean["last_hold"] is not None


def test_the_table_has_room_in_80_columns(given: list[str], tmp_path: Path) -> None:
    words = ["--behaviour", f"{tmp_path}/costs.json", "--slots", "2", "--policy", "drs", "--latency-ms", "700"]
    text = CliRunner().invoke(cli, [*given, *words], env={"COLUMNS": "80"}).output
    assert all(word in text for word in ("slot-hours", "violations", "verdict", "work: 2 -> 1 replicas", "at the end:"))


@pytest.mark.parametrize("policy", ["threshold", "stela", "ds2"])
def test_misses_are_counted_of_any_policy(policy: str, given: list[str], tmp_path: Path) -> None:
    words = [*given, "--behaviour", f"{tmp_path}/costs.json", "--slots", "2", "--mode", "off", "--policy", policy]
    sums = json.loads(printed(*words, "--latency-ms", "700", "--json"))
    # The mean latency of two replicas of 4 rows/s is 0.27 s at 2 rows/s and 0.57 s at 6 rows/s.
    assert 0 < sums["violations"] < sums["windows"] / 2
    assert json.loads(printed(*words, "--json"))["violations"] is None


def test_executors_come_with_the_slots_that_a_policy_asks_for(given: list[str], tmp_path: Path) -> None:
    at, costs = tmp_path / "run", json.loads((tmp_path / "costs.json").read_text())
    (tmp_path / "costs.json").write_text(json.dumps(costs | {"cluster": {"slots_per_executor": 1}}))
    given = [*given, "--behaviour", f"{tmp_path}/costs.json", "--slots", "1", "--at", str(at)]
    words = ["--policy", "drs", "--latency-ms", "700", "--executors", "1..4", "--json"]
    sums = json.loads(printed(*given, *words))
    with StoreReader(at) as store:
        plans = [row.new for _, row in store.decisions() if row.new and row.applied == "ok"]
    assert plans and all(plan.slots == plan.replicas["work"] for plan in plans)
    assert max(plan.slots for plan in plans) >= 2
    assert sums["seconds"] < sums["slot_seconds"] < 4 * sums["seconds"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "A simulation requires a policy, or a latency target or a limit"),
        (("--policy", "threshold"), "or like (--like), and not both"),
        (("--policy", "threshold", "--behaviour", "nowhere.json"), "Cannot read the behaviour file"),
        (("--policy", "drs", "--behaviour", "nowhere.json"), "requires a latency target, a limit, or both"),
        (
            ("--policy", "drs", "--max-slots", "9", "--behaviour", "nowhere.json"),
            "The policy may use 9 slots, but there are 2",
        ),
    ],
)
def test_missing_options_are_named(given: list[str], words: tuple[str, ...], says: str) -> None:
    assert says in printed(*given, *words, fails=True)


def test_an_overload_causes_no_endless_batch(given: list[str], tmp_path: Path) -> None:
    """20 rows/s of 0.25 s need five replicas; the run starts with one."""
    lines = [f"{minute * 60},{2.0 if minute < 10 else 20.0}" for minute in range(40)]
    (tmp_path / "trace.csv").write_text("\n".join(["time_s,rate", *lines]))
    costs = ["--behaviour", f"{tmp_path}/costs.json", "--slots", "1", "--at", f"{tmp_path}/run"]
    printed(*given, *costs, "--engine", "micro-batch", "--policy", "drs", "--latency-ms", "9000")
    with StoreReader(tmp_path / "run") as store:
        late = [row for _, row in store.decisions() if row.at_s > 20 * 60]
    assert late and {row.reason_code for row in late} == {"at-limit"}
    assert {row.needs_slots for row in late} <= {5, 6, 7, 8}  # as measured


def test_a_profiled_plan_is_applied(given: list[str], tmp_path: Path) -> None:
    """A replica serves 4 rows/s, so 6 rows/s need a second one, which the profile of two slots has."""
    flow, at = given[1], tmp_path / "study"
    costs = ["--behaviour", f"{tmp_path}/costs.json", "--slots", "2"]
    printed("profile", flow, *costs, "--latency-ms", "2000", "--at", str(at))
    (tmp_path / "plan.json").write_text('{"dataflow": "one", "replicas": {"work": 1}, "slots": 2}')
    first = ["--plan", f"{tmp_path}/plan.json", "--at", f"{tmp_path}/run"]
    sums = json.loads(printed(*given, *costs, *first, "--policy", "stepwise", "--profile", str(at), "--json"))
    assert sums["policy"] == "stepwise" and sums["changes"] == 1
    with StoreReader(tmp_path / "run") as store:
        (_, change), *_ = store.applied_changes()
    assert change.reason_code == "profiled" and change.new is not None and change.new.replicas["work"] >= 2
    refused = printed(*given, *costs, "--policy", "stepwise", "--profile", f"{tmp_path}/none", fails=True)
    assert "contains no profile" in refused


@pytest.mark.parametrize("zipf", [0.0, 2.0])
def test_a_million_million_keys(zipf: float, tmp_path: Path) -> None:
    """Four replicas serve 4 rows/s each, and 12 rows/s arrive for ten minutes.

    Without skew, each replica is a queue with 3 rows/s: the mean latency is 1 / (4 - 3) = 1 s. With exponent 2 the first
    key has 6 / pi^2 of the rows, and at least 12 * 6 / pi^2 - 4 = 3.3 rows/s wait at its replica.
    """
    (tmp_path / "flow.py").write_text(FLOW)
    work = {"service_s": {"kind": "exponential", "mean": 0.25}, "keys": 10**12, "zipf": zipf}
    (tmp_path / "costs.json").write_text(json.dumps({"operators": {"work": work}}))
    (tmp_path / "trace.csv").write_text("time_s,rate\n0,12\n300,12\n")
    (tmp_path / "plan.json").write_text(
        json.dumps({"dataflow": "one", "replicas": {"work": 4}, "cuts": [], "slots": 4})
    )
    options = {"--trace": "trace.csv", "--behaviour": "costs.json", "--plan": "plan.json", "--at": "run"}
    paths = [word for option, name in options.items() for word in (option, f"{tmp_path}/{name}")]
    sums = json.loads(
        printed("simulate", f"{tmp_path}/flow.py", *paths, "--policy", "ds2", "--mode", "recommend", "--json")
    )
    with StoreReader(tmp_path / "run") as store:
        waiting = next(row for row in store.windows()[-1][1].operators if row.operator == "work").backlog_rows
    assert waiting is not None
    if zipf:
        assert waiting > 0.9 * 600 * (12 * 6 / math.pi**2 - 4)
    else:
        assert sums["mean_latency_s"] == pytest.approx(1.0, rel=0.25) and waiting < 100
