"""`penstock.schema`: the JSON schema of a file format or of the output of a command with --json."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.dataflow.errors import PenstockError

# name -> (module, type); a module is imported only when its schema is requested
SCHEMAS: dict[str, tuple[str, str]] = {
    "plan": ("penstock.plan.plan", "Plan"),
    "behaviour": ("penstock.engines.simulated.behaviour", "Behaviour"),
    "stations": ("penstock.planning.stations", "StationsDocument"),
    "assignment": ("penstock.planning.stations", "AssignmentResult"),
    "dataflow": ("penstock.models.flow", "Flow"),
    "curves": ("penstock.models.curve", "CurvesFormat"),
    "sizes": ("penstock.planning.vms", "SizesFormat"),
    "allocation": ("penstock.report.thread_schedule", "ScheduleReport"),
    "mst-fit": ("penstock.report.mst_results", "MstFits"),
    "mst-measure": ("penstock.report.mst_results", "MstMeasurement"),
    "profile-platforms": ("penstock.study.stepwise.platform_curve", "PlatformCurve"),
    "mst-subset": ("penstock.report.mst_results", "VmCountChoice"),
    "profile": ("penstock.study.stepwise.profile", "Profile"),
    "comparison": ("penstock.study.stepwise.comparison", "Comparison"),
    "elastic": ("penstock.report.mst_results", "ElasticResult"),
    "window": ("penstock.measure.window", "Window"),
    "decision": ("penstock.store.records", "DecisionRecord"),
    "request": ("penstock.control.requests", "Request"),
    "answer": ("penstock.control.requests", "Answer"),
    "outline": ("penstock.report.dataflow_outline", "DataflowOutline"),
    "report": ("penstock.report.run_report", "RunReport"),
    "status": ("penstock.report.status", "RunStatus"),
}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a format, such as "plan".

    Raises:
        PenstockError: There is no such format; the message lists all formats.
    """
    import msgspec

    if name not in SCHEMAS:
        raise PenstockError(f"There is no format '{name}'; use one of: {', '.join(SCHEMAS)}.")
    module, kind = SCHEMAS[name]
    return msgspec.json.schema(getattr(importlib.import_module(module), kind))
