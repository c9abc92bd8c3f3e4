"""How many processors each operator gets: the least latency for a budget, the fewest processors for a target."""

from penstock.planning.processors.drs_algorithms import assign_processors, min_processors, one_less
from penstock.planning.processors.operator_network import Assignment, OperatorNetwork, OperatorStation, Requirement

__all__ = [
    "Assignment",
    "OperatorNetwork",
    "OperatorStation",
    "Requirement",
    "assign_processors",
    "min_processors",
    "one_less",
]
