"""`penstock schema`: print the JSON schema of a file format or of the output of --json."""

from __future__ import annotations

import importlib

import click

from penstock.dataflow.errors import PenstockError

# name -> (module, type); a module is imported only when its schema is requested
SCHEMAS: dict[str, tuple[str, str]] = {
    "plan": ("penstock.plan.plan", "Plan"),
    "stations": ("penstock.planning.stations", "StationsDocument"),
    "assignment": ("penstock.planning.stations", "AssignmentResult"),
    "dataflow": ("penstock.models.flow", "Flow"),
    "curves": ("penstock.models.curve", "CurvesFormat"),
    "sizes": ("penstock.planning.vms", "SizesFormat"),
    "allocation": ("penstock.report.thread_schedule", "ScheduleReport"),
    "mst-fit": ("penstock.report.mst_results", "MstFits"),
    "mst-measure": ("penstock.report.mst_results", "MstMeasurement"),
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
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Accepted for consistency; a schema is always JSON.")
def command(name: str | None, as_json: bool) -> None:
    """Print the JSON schema of the format NAME, or the names of all formats.

    \b
    Example:
      penstock schema plan
    """
    import msgspec

    if name is None:
        click.echo(msgspec.json.encode(list(SCHEMAS)).decode() if as_json else "\n".join(SCHEMAS))
        return
    if name not in SCHEMAS:
        raise PenstockError(f"There is no format '{name}'; use one of: {', '.join(SCHEMAS)}.")
    module, kind = SCHEMAS[name]
    schema = msgspec.json.schema(getattr(importlib.import_module(module), kind))
    click.echo(msgspec.json.format(msgspec.json.encode(schema)).decode())
