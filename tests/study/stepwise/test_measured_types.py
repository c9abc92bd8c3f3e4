"""The types of all operators of the six applications, measured in simulation, without noise and with 20 % noise."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.papers.stepwise_study import Engines
from benchmarks.papers.storm_flows import APPLICATIONS, Application
from penstock.dataflow import Kind, regions
from penstock.engines.simulated import SimulatedEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.plan import Plan, default_plan
from penstock.study.stepwise.feature_trial import measure_features

VARYING = ("split", "english", "hashtags")
# Splitting and filtering depend on the data, and the ranking is emitted once per period. All others are functions.
NOT_PROPORTIONAL = {
    "WC": {"split": "workload-dependent"},
    "SWC": {"split": "workload-dependent"},
    "TSA": {"english": "workload-dependent", "hashtags": "workload-dependent", "rank": "logic-dependent"},
}


def with_varying_data(application: Application, names: Collection[str]) -> Application:
    """Let operators emit 50 % fewer and 50 % more rows in alternate parts of the data."""
    operators = {
        name: msgspec.structs.replace(costs, workload=(0.5, 1.5) if name in names else ())
        for name, costs in application.costs.operators.items()
    }
    return replace(application, costs=application.costs.replace(operators=operators))


class NoisyEngine:
    """An engine whose windows show more or less output than there was, at random."""

    def __init__(self, engine: SimulatedEngine, noise: float, rng: np.random.Generator) -> None:
        self._engine, self._noise, self._rng = engine, noise, rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def observe(self) -> Window:
        window = self._engine.observe()
        operators = tuple(self._with_noise(operator) for operator in window.operators)
        return msgspec.structs.replace(window, operators=operators)

    def _with_noise(self, operator: OperatorWindow) -> OperatorWindow:
        if operator.rows_out is None:
            return operator
        factor = max(0.01, 1.0 + self._noise * self._rng.standard_normal())
        return msgspec.structs.replace(operator, rows_out=round(operator.rows_out * factor))


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_all_types_are_measured(name: str, noise: float) -> None:
    application = with_varying_data(APPLICATIONS[name](), VARYING)
    flow = application.flow
    own = {region.name: 1 for region in regions(flow) if region.kind is not Kind.SOURCE}
    plan = default_plan(flow, slots=12, replicas=own)
    for seed in range(3):
        engines, rng = Engines(application, seed), np.random.default_rng(seed)

        def fresh(plan: Plan, engines: Engines = engines, rng: np.random.Generator = rng) -> tuple[Any, Any]:
            engine, clock = engines.fresh(plan)
            return NoisyEngine(engine, noise, rng), clock

        measured = measure_features(fresh, plan, {})
        types = {operator.operator: operator.type for operator in measured if operator.operator in own}
        assert types == dict.fromkeys(own, "proportional") | NOT_PROPORTIONAL.get(name, {})
