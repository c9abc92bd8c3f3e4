"""Outputs that are not proportional to the input, and replicas that wait: both against closed forms."""

from __future__ import annotations

import pytest

from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.engines.simulated.behaviour import UNLIMITED_ROWS
from penstock.engines.simulated.distributions import BehaviourError, Poisson
from penstock.measure.window import Window
from tests.support.simulated_flows import MODES, chain, plan_for


def observed(
    mode: str, behaviour: OperatorBehaviour, rate: float, seconds: float, slots: int = 64, **replicas: int
) -> Window:
    """Return what a chain of one operator does in so many seconds."""
    flow = chain("a")
    costs = Behaviour(
        operators={"a": behaviour}, sources={"source": SourceBehaviour(rates=((0.0, rate),), rows=UNLIMITED_ROWS)}
    )
    engine = SimulatedEngine(flow, costs, plan=plan_for(flow, slots, **replicas), mode=mode, seed=3)
    engine.start()
    engine.clock.sleep(seconds)
    window = engine.observe()
    engine.stop()
    return window


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rate", [20.0, 200.0])
def test_an_output_per_period_does_not_depend_on_the_input(mode: str, rate: float) -> None:
    ranking = OperatorBehaviour(service_s=Fixed(value=1e-4), selectivity=Fixed(value=10.0), period_s=2.0)
    rows_out = observed(mode, ranking, rate, 101.0).operator("a").rows_out
    # Ten rows in each of 50 periods. The rows of the last period leave with the next row or batch.
    assert rows_out in (490, 500)


@pytest.mark.parametrize("mode", MODES)
def test_the_selectivity_follows_the_parts_of_the_input(mode: str) -> None:
    split = OperatorBehaviour(
        service_s=Fixed(value=1e-4), selectivity=Poisson(mean=8.0), workload=(0.5, 1.5), workload_rows=1000
    )
    whole = observed(mode, split, 100.0, 200.0).operator("a")
    assert whole.selectivity == pytest.approx(8.0, rel=0.03)  # 20,000 rows: both parts equally often
    first = observed(mode, split, 100.0, 9.0).operator("a")
    assert first.selectivity == pytest.approx(4.0, rel=0.03)  # about 900 rows of the first part


def test_replicas_that_wait_do_not_slow_down_others() -> None:
    """Three replicas on one slot: 3 / 5 ms if they wait, 1 / 5 ms if they compute, and in between if they do both.

    If each of them needs the core for 20 % of its time, three of them do not saturate it. At 50 %, the core limits them
    to one row per 2.5 ms.
    """
    for share, per_s in ((0.0, 600.0), (0.2, 600.0), (1.0, 200.0), (0.5, 400.0)):
        costs = OperatorBehaviour(service_s=Fixed(value=0.005), cpu_share=share)
        rows = observed("row-by-row", costs, 2000.0, 20.0, slots=1, a=3).operator("a").rows_in
        assert rows == pytest.approx(20.0 * per_s, rel=0.01)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"period_s": 0.0}, "period_s of operator 'a' is 0.0"),
        ({"period_s": 1.0, "workload": (1.0,)}, "has both 'period_s' and 'workload'"),
        ({"workload": (-1.0,)}, "workload factor of operator 'a' is -1.0"),
        ({"workload": (1.0,), "workload_rows": 0}, "workload_rows of operator 'a' is 0"),
        ({"cpu_share": 1.5}, "cpu_share of operator 'a' is 1.5"),
    ],
)
def test_invalid_values_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(BehaviourError, match=message):
        observed("row-by-row", OperatorBehaviour(**fields), 1.0, 1.0)  # type: ignore[arg-type]


def test_the_fluid_mode_refuses_an_output_that_is_not_proportional() -> None:
    with pytest.raises(BehaviourError, match="'a' has an output that is not proportional to its input"):
        observed("fluid", OperatorBehaviour(period_s=1.0), 1.0, 1.0)
