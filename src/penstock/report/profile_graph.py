"""The profiled operators as nodes of the page's graph: edges and widths come from the measured streams."""

from __future__ import annotations

from penstock.report.operators import OperatorSummary
from penstock.report.profile_report import ProfileReport

_SCALE = 1e3  # widths follow the logarithm of a rate, and shares of all streams are below 1


def profile_operators(profile: ProfileReport) -> list[OperatorSummary]:
    """Return the operators, upstream first, with the replicas and cuts of the best plan."""
    plan = None if profile.best is None else profile.best.round.plan
    return [
        OperatorSummary(
            operator=operator.operator,
            kind=None,
            inputs=tuple(producer.operator for producer in profile.operators if operator.operator in producer.streams),
            feedback=(),
            cut=plan is not None and operator.operator in plan.cuts,
            pipeline=None,
            replicas=None if plan is None else plan.replicas.get(operator.operator),
            rows_in_per_s=None,
            rows_out_per_s=_SCALE * max(operator.streams.values(), default=0.0),
            seconds_per_row=operator.min_latency_s,
            utilisation=None,
            shared_cost=None,
            backlog_rows=None,
            state_rows=None,
        )
        for operator in profile.operators
    ]
