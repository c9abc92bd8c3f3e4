"""What a run has measured, as the behaviour of its operators in a simulation."""

from __future__ import annotations

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated.behaviour import Behaviour, OperatorBehaviour
from penstock.engines.simulated.distributions import BehaviourError, Distribution, Exponential, Fixed, Gamma
from penstock.measure.window import OperatorWindow, Window


def behaviour_of(flow: Dataflow, window: Window) -> Behaviour:
    """The cost, spread, selectivity and state of each operator; service is exponential where no spread was measured."""
    operators = {}
    seen = {one.operator: one for one in window.operators}
    for operator in flow.operators:
        if operator.kind in (Kind.SOURCE, Kind.SINK):
            continue
        if operator.name not in seen:
            raise BehaviourError(
                f"the run has no operator '{operator.name}', so it is not one of '{flow.name}'; give one that is"
            )
        one = seen[operator.name]
        if one.seconds_per_row is None:
            raise BehaviourError(
                f"the run has not measured yet what a row costs '{one.operator}'; let it run longer, or say it in a "
                "behaviour file"
            )
        operators[one.operator] = OperatorBehaviour(
            service_s=_service(one, one.seconds_per_row),
            selectivity=None if one.selectivity is None else Fixed(value=one.selectivity),
            routes=one.sent or {},
            state_bytes=one.state_bytes or 0,
        )
    return Behaviour(operators=operators)


def _service(one: OperatorWindow, mean_s: float) -> Distribution:
    if one.service_scv is None:
        return Exponential(mean=mean_s)
    return Gamma(mean=mean_s, scv=one.service_scv) if one.service_scv > 0 else Fixed(value=mean_s)
