"""How many processors each operator gets: the least latency for a budget, the fewest processors for a target."""

from penstock.planning.processors.assign import assign_processors, min_processors, one_less
from penstock.planning.processors.workload import Assignment, Needs, Operator, Workload

__all__ = ["Assignment", "Needs", "Operator", "Workload", "assign_processors", "min_processors", "one_less"]
