"""Plans from curves: each replica sustains its equal share of the rows, in closed form and in simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli.main import cli
from penstock.dataflow import Dataflow
from penstock.dataflow.errors import PlanError
from penstock.engines.simulated import Behaviour, Fixed, Mode, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.models.curve import Curve, curves_from_json
from penstock.plan import ExecutorGroup, Plan

# The published curve of the table lookup, and one of a parser.
CURVES = {
    "table": {"1": (3, 1.02, 1.15), "10": (10, 11.22, 3.45), "40": (20, 26.53, 9.20), "60": (40, 54.08, 16.09)},
    "parse": {"1": (310, 84.69, 35.63)},
}


def curves_text() -> str:
    return json.dumps(
        {
            name: {n: {"rows_per_s": w, "cpu": c, "memory": m} for n, (w, c, m) in points.items()}
            for name, points in CURVES.items()
        }
    )


def curves() -> dict[str, Curve]:
    return curves_from_json(curves_text())


def shop(selectivity: float = 1.0) -> Dataflow:
    flow = penstock.Dataflow("shop")
    events = flow.source("events", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=100))
    parsed = events.rows("parse", lambda row: row, "n bigint", selectivity=selectivity)
    parsed.rows("table", lambda row: row, "n bigint", threads=1).sink("out", penstock.noop())
    return flow


def curves_file(folder: Path) -> Path:
    file = folder / "curves.json"
    file.write_text(curves_text())
    return file


def planned(rate: float, flow: Dataflow, folder: Path, **options: object) -> tuple[Plan, float]:
    report = penstock.allocate(flow, rate=rate, curves=curves_file(folder), **options)  # type: ignore[arg-type]
    assert report.plan is not None and report.plan_rows_per_s is not None
    return report.plan, report.plan_rows_per_s


def test_the_published_bundles_become_replicas(tmp_path: Path) -> None:
    plan, sustained = planned(100, shop(), tmp_path)
    # MBA: 60 + 60 + 40 threads for 100 rows/s, of which full bundles sustain 40 and the last one 20.
    assert plan.replicas == {"parse": 3}
    assert (plan.threads, plan.rates) == ({"table": (60, 60, 40)}, {"table": (40.0, 40.0, 20.0)})
    assert plan.shares(["table"]) == (0.4, 0.4, 0.2)
    assert plan.cuts == {"parse"}
    assert sustained == pytest.approx(100.0)
    # The table has slots for itself, and the parser, which shares a slot with 40 of its threads, needs another one.
    assert (plan.slots, plan.groups) == (4, {})


def test_groups_have_a_slot_for_each_replica(tmp_path: Path) -> None:
    report = penstock.allocate(shop(), rate=100, curves=curves_file(tmp_path), groups=True)
    assert report.plan is not None
    assert report.plan.groups == {"table": ExecutorGroup(operators=("table",), slots=3)}
    assert any("40 threads of table share slot vm-0/0 with parse" in note for note in report.plan_notes)
    # Full bundles use the CPU of the curve, and the 100 rows/s take 27.3 % of the parser's slot.
    assert report.plan_use["table"].cpu == pytest.approx((54.08 + 54.08 + 26.53) / 3)
    assert report.plan_use[""].cpu == pytest.approx(84.69 * 100 / 310)
    assert report.plan_use[""].memory == pytest.approx(35.63 * 100 / 310)


def test_vm_sizes_imply_groups_and_a_price(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    sizes.write_text('[{"name": "D1", "slots": 1, "price_per_h": 0.1}]')
    report = penstock.allocate(shop(), rate=100, curves=curves_file(tmp_path), vms=sizes)
    assert report.plan is not None and set(report.plan.groups) == {"table"}
    assert report.plan_price_per_h == pytest.approx(0.4)
    without = penstock.allocate(shop(), rate=100, curves=curves_file(tmp_path), vms=sizes, groups=False)
    assert without.plan is not None and without.plan.groups == {}


def test_the_mapping_decides_the_bundles(tmp_path: Path) -> None:
    """Round robin spreads 161 threads over 3 slots, so none of them has a full bundle."""
    report = penstock.allocate(shop(), rate=100, curves=curves_file(tmp_path), mapping="dsm")
    assert report.plan is not None and report.plan_binding == "table"
    assert report.plan.threads == {"table": (54, 53, 53)}
    assert report.plan.groups == {}


def test_even_routing_has_equal_bundles(tmp_path: Path) -> None:
    plan, sustained = planned(100, shop(), tmp_path, routing="even")
    # A third of the rows is 33.3, which 54 threads sustain: 20 + (54 - 40) / 20 * 20 = 34.
    assert (plan.threads, plan.rates, plan.routing) == ({"table": 54}, {}, "even")
    assert sustained == pytest.approx(3 * 34.0)


def test_selectivities_count(tmp_path: Path) -> None:
    half, _ = planned(100, shop(selectivity=0.5), tmp_path)
    # 50 rows/s: a full bundle for 40, and 20 + 8/3 threads for the other 10.
    assert (half.replicas, half.threads) == ({"parse": 2}, {"table": (60, 10)})


@settings(max_examples=60, deadline=None)
@given(rate=st.floats(0.5, 2_000), method=st.sampled_from(["mba", "lsa"]))
def test_the_plan_sustains_the_rate_according_to_the_curves(
    rate: float, method: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan, sustained = planned(rate, shop(), tmp_path_factory.mktemp("curves"), method=method)
    replicas = plan.replicas["parse"]
    # Replicas reach their limits together, so they sustain the sum.
    table = sum(curves()["table"].at(threads).rows_per_s for threads in plan.bundles("table", replicas))
    assert sustained == pytest.approx(min(replicas * 310.0, table))
    if method == "mba":  # LSA assumes that threads on one slot do not slow each other down
        assert sustained >= rate * (1 - 1e-9)


def behaviour_at(rate: float) -> Behaviour:
    return Behaviour(
        operators={
            name: OperatorBehaviour(
                service_s=Fixed(value=1 / curve.single.rows_per_s),
                curve={str(n): point for n, point in zip(curve.threads, curve.points, strict=True)},
            )
            for name, curve in curves().items()
        },
        sources={"events": SourceBehaviour(rates=((0.0, rate),))},
    )


@pytest.mark.parametrize("groups", [False, True])
def test_the_simulated_plan_sustains_the_rate(tmp_path: Path, groups: bool) -> None:
    """The plan runs as it is written, on its own slots."""
    flow = shop()
    plan, sustained = planned(90, flow, tmp_path, groups=groups)
    engine = SimulatedEngine(flow, behaviour_at(90.0), plan=plan, mode=Mode.FLUID)
    engine.start()
    engine.advance(100.0)
    engine.observe()
    engine.advance(100.0)
    assert engine.observe().operator("out").processed_rows_per_s == pytest.approx(90.0, rel=0.02)
    engine.set_rate("events", 2 * sustained)
    engine.advance(50.0)
    engine.observe()
    engine.advance(100.0)
    assert engine.observe().operator("out").processed_rows_per_s == pytest.approx(sustained, rel=0.02)


@pytest.mark.parametrize(("routing", "sustained"), [(None, 100.0), ("capacity", 100.0), ("even", 60.0)])
def test_even_routing_ignores_the_rates_of_a_plan(tmp_path: Path, routing: Any, sustained: float) -> None:
    """Bundles that sustain 40, 40 and 20 rows/s sustain 60 with equal shares, so 30 of 90 rows/s wait.

    A row of the trace counts until the next one, and the last one as long as the row before it.
    """
    plan, _ = planned(100, shop(), tmp_path)
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,rate\n0,90\n600,90\n")
    penstock.simulate(
        shop(),
        trace=trace,
        plan=plan,
        routing=routing,
        behaviour=behaviour_at(90.0),
        policy="ds2",
        mode="off",
        engine="fluid",
        at=tmp_path / "run",
    )
    backlog = penstock.open_run(tmp_path / "run").windows()["backlog_rows"].iloc[-1]
    assert backlog == pytest.approx(max(0.0, 90.0 - sustained) * 1_200, rel=0.1, abs=50)


def test_the_command_writes_a_plan_and_says_what_it_cannot_express(tmp_path: Path) -> None:
    (tmp_path / "curves.json").write_text(curves_text())
    (tmp_path / "shop.py").write_text(
        "import penstock\n"
        "flow = penstock.Dataflow('shop')\n"
        "events = flow.source('events', penstock.generate(lambda n: n, schema='n bigint', rows_per_s=100))\n"
        "parsed = events.rows('parse', lambda row: row, 'n bigint')\n"
        "table = parsed.rows('table', lambda row: row, 'n bigint')\n"
        "table.rows('extra', lambda row: row, 'n bigint').sink('out', penstock.noop())\n"
    )
    words = ["allocate", str(tmp_path / "shop.py"), "--rate", "10", "--curves", str(tmp_path)]
    result = CliRunner().invoke(cli, [*words, "--plan", str(tmp_path / "plan.json")])
    assert result.exit_code == 0, result.output
    assert Plan.from_json((tmp_path / "plan.json").read_text()).threads == {}
    text = " ".join(result.output.split())
    assert "extra: no curve, so no slot is planned" in text
    assert "table: not declared with threads, so only the point of 1 thread is used" in text
    document = tmp_path / "flow.json"
    document.write_text('{"operators": ["table"], "streams": [{"from": null, "to": "table"}]}')
    refused = CliRunner().invoke(
        cli, ["allocate", str(document), "--rate", "1", "--curves", str(tmp_path), "--plan", "plan.json"]
    )
    assert refused.exit_code == 2 and "A plan requires a dataflow of operators" in refused.output


def test_a_plan_that_does_not_sustain_the_rate_is_not_written(tmp_path: Path) -> None:
    """Global state has one replica. The published parser processes 310 rows/s with one thread."""
    (tmp_path / "curves.json").write_text(curves_text())
    flow = penstock.Dataflow("shop")
    events = flow.source("events", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=100))
    events.global_state("parse", lambda df: df.groupBy().count()).sink("out", penstock.noop())
    file = tmp_path / "plan.json"
    with pytest.raises(PlanError, match=r"sustains 310 of the 500 rows/s, limited by 'parse'.*lower rate"):
        penstock.allocate(flow, rate=500, curves=tmp_path, plan=file)
    assert not file.exists()
    report = penstock.allocate(flow, rate=500, curves=tmp_path)
    assert report.plan_binding == "parse"
    assert report.plan_notes[0] == "the plan sustains 310 of the 500 rows/s, limited by 'parse'"
    penstock.allocate(flow, rate=310, curves=tmp_path, plan=file)
    assert Plan.from_json(file.read_text()).replicas == {"parse": 1}


def test_linear_scaling_of_a_falling_curve_is_not_written(tmp_path: Path) -> None:
    """LSA assumes 3 rows/s for each thread of the table lookup, but 60 threads on a slot sustain 40 rows/s."""
    (tmp_path / "curves.json").write_text(curves_text())
    with pytest.raises(PlanError, match="limited by 'table'"):
        penstock.allocate(shop(), rate=100, curves=tmp_path, method="lsa", plan=tmp_path / "plan.json")
