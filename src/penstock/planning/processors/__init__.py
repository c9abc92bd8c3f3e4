"""Processors per operator (DRS): the lowest latency within a budget, or the fewest processors for a latency target."""

from penstock.planning.processors.assignment import Assignment, Requirement
from penstock.planning.processors.drs_algorithms import assign_processors, min_processors, one_less
from penstock.planning.processors.operator_network import OperatorNetwork, OperatorStation

__all__ = [
    "Assignment",
    "OperatorNetwork",
    "OperatorStation",
    "Requirement",
    "assign_processors",
    "min_processors",
    "one_less",
]
