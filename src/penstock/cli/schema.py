"""`penstock schema`: the JSON schema of a format."""

from __future__ import annotations

import importlib

import click

from penstock.dataflow.errors import PenstockError

# name -> (module, msgspec type); imported only when it is asked for
SCHEMAS: dict[str, tuple[str, str]] = {
    "plan": ("penstock.plan.plan", "Plan"),
    "stations": ("penstock.planning.stations", "StationsDocument"),
    "assignment": ("penstock.planning.stations", "AssignmentResult"),
    "dataflow": ("penstock.models.flow", "Flow"),
    "curves": ("penstock.models.curve", "CurvesFormat"),
    "sizes": ("penstock.planning.vms", "SizesFormat"),
    "allocation": ("penstock.report.thread_schedule", "ScheduleReport"),
    "mst-fit": ("penstock.report.mst_results", "MstFits"),
    "mst-subset": ("penstock.report.mst_results", "VmCountChoice"),
    "elastic": ("penstock.report.mst_results", "ElasticResult"),
    "window": ("penstock.measure.window", "Window"),
    "decision": ("penstock.store.records", "DecisionRecord"),
    "request": ("penstock.control.requests", "Request"),
    "answer": ("penstock.control.requests", "Answer"),
    "outline": ("penstock.report.dataflow_outline", "DataflowOutline"),
    "report": ("penstock.report.run_report", "RunReport"),
    "status": ("penstock.report.status", "RunStatus"),
}


@click.command("schema")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="A schema is JSON in any case.")
def command(name: str, as_json: bool) -> None:
    """Print the JSON schema of the format NAME.

    \b
    Example:
      penstock schema plan
    """
    import msgspec

    if name not in SCHEMAS:
        raise PenstockError(f"there is no format '{name}'; the formats are {', '.join(SCHEMAS)}")
    module, kind = SCHEMAS[name]
    schema = msgspec.json.schema(getattr(importlib.import_module(module), kind))
    click.echo(msgspec.json.format(msgspec.json.encode(schema)).decode())
