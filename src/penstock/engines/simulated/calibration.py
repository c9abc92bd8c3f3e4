"""Estimate the behaviour of operators from a measured window of a run."""

from __future__ import annotations

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated.behaviour import Behaviour, OperatorBehaviour
from penstock.engines.simulated.distributions import BehaviourError, Distribution, Exponential, Fixed, Gamma
from penstock.measure.window import OperatorWindow, Window


def behaviour_from_window(flow: Dataflow, window: Window) -> Behaviour:
    """Return the measured cost, variation, selectivity and state of each operator.

    Service times are exponential if no variation was measured. Raises BehaviourError if the window lacks an operator of
    the dataflow or its cost per row.
    """
    operators = {}
    measured = {operator.operator: operator for operator in window.operators}
    for operator in flow.operators:
        if operator.kind in (Kind.SOURCE, Kind.SINK):
            continue
        if operator.name not in measured:
            raise BehaviourError(
                f"The run has no operator '{operator.name}'; give a run of the dataflow '{flow.name}'."
            )
        seen = measured[operator.name]
        if seen.seconds_per_row is None:
            raise BehaviourError(
                f"The run has not measured the cost per row of operator '{operator.name}' yet; let it run longer, or "
                "give the cost in a behaviour file."
            )
        operators[operator.name] = OperatorBehaviour(
            service_s=_service_time(seen, seen.seconds_per_row),
            selectivity=None if seen.selectivity is None else Fixed(value=seen.selectivity),
            routes=seen.sent or {},
            state_rows=seen.state_rows or 0,
            state_bytes=seen.state_bytes or 0,
        )
    return Behaviour(operators=operators)


def _service_time(seen: OperatorWindow, mean_s: float) -> Distribution:
    if seen.service_scv is None:
        return Exponential(mean=mean_s)
    return Gamma(mean=mean_s, scv=seen.service_scv) if seen.service_scv > 0 else Fixed(value=mean_s)
