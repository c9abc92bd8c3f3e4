"""The Plan value: cuts, replicas, slots; validity against a dataflow; the difference of two plans; JSON."""

from penstock.plan.cuts import required_cuts
from penstock.plan.pipelines import Pipeline, pipelines
from penstock.plan.plan import Plan, PlanDiff, diff
from penstock.plan.validity import default_plan, rescaled, validate

__all__ = [
    "Pipeline",
    "Plan",
    "PlanDiff",
    "default_plan",
    "diff",
    "pipelines",
    "required_cuts",
    "rescaled",
    "validate",
]
