"""The operator that owns each state of a Spark query, if the query contains several operators with state.

Spark numbers the states of a query from the output to the inputs: a node before the nodes below it, and the left side
of a join before the right side. The numbers are the names of the folders in `state/` of the checkpoint, and the order
of `stateOperators` in a progress report. An operator may own several states, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from penstock.engines.spark.compile.refusals import is_stateful
from penstock.engines.spark.jvm import PlanNode, analyzed_plan

StateOwners = tuple[str, ...]  # the owner of state 0, of state 1, ...


def state_owners(
    output: str, frames: Mapping[str, DataFrame], inputs: Mapping[str, Sequence[str]]
) -> StateOwners | None:
    """Return the operator that owns each state of the query that ends with the operator `output`.

    Args:
        output: The last operator of the query.
        frames: The output of each operator of the query.
        inputs: The inputs of each operator that are in the same query.

    Returns:
        None if the input of an operator cannot be found in the plan of its output, so that an owner is uncertain.
    """
    plans = {name: analyzed_plan(df) for name, df in frames.items()}
    owners: list[str] = []

    def visit(operator: str) -> bool:
        missing = list(inputs[operator])
        nodes = [plans[operator]]
        while nodes:
            node = nodes.pop()
            input_ = next((name for name in missing if _is_output(node, plans[name])), None)
            if input_ is not None:
                missing.remove(input_)
                if not visit(input_):
                    return False
                continue
            if is_stateful(node):
                owners.append(operator)
            nodes += reversed(node.children)
        return not missing

    return tuple(owners) if visit(output) else None


def _is_output(node: PlanNode, plan: PlanNode) -> bool:
    return node.columns().keys() == plan.columns().keys() and node.has_same_result(plan)
