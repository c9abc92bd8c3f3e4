"""The Plan value, its validation against a dataflow, the difference of two plans, and JSON."""

from penstock.plan.build import default_plan, recut, rescaled
from penstock.plan.cuts import forbidden_cuts, required_cuts
from penstock.plan.pipelines import Pipeline, pipelines
from penstock.plan.plan import ExecutorGroup, Plan, PlanDiff, Routing, Threads, diff, threads_text
from penstock.plan.succession import check_successor, with_permanent_cuts
from penstock.plan.validation import validated, with_remaining_threads

__all__ = [
    "ExecutorGroup",
    "Pipeline",
    "Plan",
    "PlanDiff",
    "Routing",
    "Threads",
    "check_successor",
    "default_plan",
    "diff",
    "forbidden_cuts",
    "pipelines",
    "recut",
    "required_cuts",
    "rescaled",
    "threads_text",
    "validated",
    "with_permanent_cuts",
    "with_remaining_threads",
]
