"""The rule which plan may follow another one in the same run.

Spark keeps all states of a query in one checkpoint. Penstock can divide a checkpoint between two queries, but Spark
numbers the batches of every query on its own, and two checkpoints cannot become one again. A cut between two operators
with state can therefore be added to a run, but not be removed.
"""

from __future__ import annotations

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PlanError
from penstock.plan.pipelines import pipelines
from penstock.plan.plan import Plan


def check_successor(flow: Dataflow, old: Plan, new: Plan) -> None:
    """Raise PlanError if a run under the validated plan `old` cannot change to the validated plan `new`."""
    removed = old.cuts - new.cuts
    if not removed:
        return
    query_of = {state: pipeline.name for pipeline in pipelines(flow, old) for state in pipeline.state}
    for pipeline in pipelines(flow, new):
        if len({query_of[state] for state in pipeline.state}) > 1:
            between = sorted(removed & set(pipeline.operators))
            states = " and ".join(f"'{state}'" for state in pipeline.state)
            names = ", ".join(f'"{name}"' for name in between)
            raise PlanError(
                f"The plan removes the cut after {names}, but the states of {states} are in separate checkpoints, "
                f'which Spark cannot merge; keep {names} in "cuts", or begin a new run with this plan in another '
                "directory."
            )


def with_permanent_cuts(flow: Dataflow, old: Plan, new: Plan) -> Plan:
    """Return the plan `new`, with the cuts of `old` if a run under `old` could not remove them."""
    try:
        check_successor(flow, old, new)
    except PlanError:
        return new.replace(cuts=old.cuts | new.cuts)
    return new
